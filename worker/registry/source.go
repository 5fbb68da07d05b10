package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// source is a place where a repository is: at its registry, or at a mirror of that.
type source struct {
	client *Client
	repo   name.Repository

	mu     sync.Mutex
	http   *http.Client // nil: not asked yet
	worked bool
}

// parse reads a reference.
func (c *Client) parse(ref string) (name.Reference, error) {
	var options []name.Option
	if c.PlainHTTP {
		options = append(options, name.Insecure)
	}
	r, err := name.ParseReference(ref, options...)
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w to an image: %w", ref, ErrReference, err)
	}
	return r, nil
}

// sources are those of a repository, mirrors first.
func (c *Client) sources(repo name.Repository) (list []*source, err error) {
	for host, mirrors := range c.Mirrors {
		of, err := name.NewRegistry(host)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", host, err)
		}
		if of.RegistryStr() != repo.RegistryStr() {
			continue
		}
		for _, m := range mirrors {
			at, err := c.mirror(m)
			if err != nil {
				return nil, err
			}
			list = append(list, &source{client: c, repo: at.Repo(repo.RepositoryStr())})
		}
	}
	return append(list, &source{client: c, repo: repo}), nil
}

// mirror reads the host of a mirror.
func (c *Client) mirror(text string) (name.Registry, error) {
	host, plain := strings.CutPrefix(text, "http://")
	host = strings.TrimSuffix(strings.TrimPrefix(host, "https://"), "/")
	var options []name.Option
	if plain || c.PlainHTTP {
		options = append(options, name.Insecure)
	}
	at, err := name.NewRegistry(host, append(options, name.StrictValidation)...)
	if err != nil {
		return at, fmt.Errorf("the mirror %q: %w: it is a host with or without a port: %w", text, ErrReference, err)
	}
	return at, nil
}

// CheckMirror is ErrReference if a text names no mirror.
func CheckMirror(text string) error {
	_, err := new(Client).mirror(text)
	return err
}

// CheckHost is ErrReference if a text names no registry.
func CheckHost(text string) error {
	if _, err := name.NewRegistry(text, name.StrictValidation); err != nil {
		return fmt.Errorf("the registry %q: %w: %w", text, ErrReference, err)
	}
	return nil
}

// base is the transport to a registry, without credentials.
func (c *Client) base(r name.Registry) *guard {
	next := c.transport
	if next == nil {
		next = newTransport(c.stall())
	}
	insecure, _ := name.NewRegistry(r.RegistryStr())
	plain := c.PlainHTTP || r.Scheme() == "http" && insecure.Scheme() != "http" || onThisMachine(r.RegistryStr())
	return &guard{next: next, plain: plain, stall: c.stall()}
}

// onThisMachine tells of a host, with or without a port, that it is this machine.
func onThisMachine(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// connect asks the registry what credentials it wants. kept tells that it has not: those are used that it took before.
func (s *source) connect(ctx context.Context) (client *http.Client, kept bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return s.http, true, nil
	}
	auth, err := authn.Resolve(ctx, s.client.keychain(), s.repo)
	if err != nil {
		return nil, false, fmt.Errorf("credentials for %s: %w", s.repo.RegistryStr(), err)
	}
	t, err := transport.NewWithContext(ctx, s.repo.Registry, auth, s.client.base(s.repo.Registry), []string{s.repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, false, explain(err)
	}
	s.http = &http.Client{Transport: t}
	return s.http, false, nil
}

// forget has the next request ask for credentials: those of a client are not taken any more.
func (s *source) forget(client *http.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http == client {
		s.http = nil
	}
}

// get asks for something of the repository. Its answer has one of the status codes; the caller closes the body.
func (s *source) get(ctx context.Context, path string, header http.Header, codes ...int) (*http.Response, error) {
	for again := false; ; again = true {
		client, kept, err := s.connect(ctx)
		if err != nil {
			return nil, err
		}
		resp, err := s.ask(ctx, client, path, header, codes)
		if !errors.Is(err, ErrDenied) {
			return resp, err
		}
		s.forget(client)
		if again || !kept { // otherwise they may have expired, or been changed
			return nil, err
		}
	}
}

// ask is get with some credentials.
func (s *source) ask(ctx context.Context, client *http.Client, path string, header http.Header, codes []int) (*http.Response, error) {
	u := url.URL{Scheme: s.repo.Scheme(), Host: s.repo.RegistryStr(), Path: "/v2/" + s.repo.RepositoryStr() + "/" + path}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	resp, err := client.Do(r)
	if err != nil {
		if explained := explain(err); !errors.Is(explained, ErrNotFound) {
			return nil, explained
		}
		return nil, &discreet{err} // of the server of tokens, which has no images
	}
	if slices.Contains(codes, resp.StatusCode) {
		s.mu.Lock()
		s.worked = true
		s.mu.Unlock()
		return resp, nil
	}
	defer resp.Body.Close()
	err = explain(transport.CheckError(resp, codes...))
	if seconds, e := strconv.Atoi(resp.Header.Get("Retry-After")); e == nil && seconds > 0 {
		err = &later{err, min(time.Duration(min(seconds, 3600))*time.Second, longestWait)}
	}
	return nil, err
}

// later is an error of a server that says when to come again.
type later struct {
	err  error
	wait time.Duration
}

func (e *later) Error() string { return e.err.Error() }
func (e *later) Unwrap() error { return e.err }

// explain says which error of this package an answer of a registry is.
func explain(err error) error {
	if err == nil {
		return nil
	}
	err = &discreet{err}
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// discreet is an error in whose text URLs have no queries: in those to which registries redirect there are credentials.
type discreet struct{ error }

var query = regexp.MustCompile(`\?[\w.~%-]+=[^\s"]*`)

func (e *discreet) Error() string { return query.ReplaceAllString(e.error.Error(), "?...") }
func (e *discreet) Unwrap() error { return e.error }

// temporary tells whether what has failed may succeed when it is tried again.
func (s *source) temporary(err error) bool {
	var answer *transport.Error
	var network net.Error
	switch {
	case errors.As(err, &answer):
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout
	case errors.Is(err, ErrStalled):
		return false
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &network) && network.Timeout(): // of one that has answered before
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.worked
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return true
	}
	text := err.Error() // of HTTP/2: streams and connections that a server has ended
	return strings.Contains(text, "http2: ") || strings.Contains(text, "stream error: ")
}

// retry calls fn until it succeeds, or fails in a way that stays. fn tells how many bytes it has brought that were
// not there before: a download that goes on is not given up.
func (s *source) retry(ctx context.Context, fn func() (brought int64, err error)) error {
	for failed, brought := 0, int64(0); ; {
		n, err := fn()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if brought += n; brought >= enough {
			failed, brought = 0, 0
		}
		if failed++; failed == attempts || !s.temporary(err) {
			return err
		}
		wait := s.client.backoff(failed)
		var asked *later
		if errors.As(err, &asked) {
			wait = max(wait, asked.wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// enough is how much a number of attempts has to bring to count as none.
const enough = 1 << 20

// Host is the registry of a reference, as Mirrors name it.
func (c *Client) Host(ref string) (string, error) {
	r, err := c.parse(ref)
	if err != nil {
		return "", err
	}
	return r.Context().RegistryStr(), nil
}
