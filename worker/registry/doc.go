// Package registry pulls images from registries into a namespace of snapshots, and pushes them. It is the one place
// that talks to registries, through google/go-containerregistry, which knows names, credentials and tokens.
//
// # Pulling
//
//	client := &registry.Client{Downloads: filepath.Join(store.Root(), "downloads")}
//	result, err := client.Pull(ctx, namespace, "debian:stable", image.Options{Name: "debian"})
//
// The layers that the store does not have are downloaded, several at once, while those before are extracted. What an
// interrupted Pull has downloaded stays for the next one, for a day.
//
// # Registries are not trusted
//
// What they send is compared with its digest and size before it is used, mirrors and what they redirect to included.
// Who answers for a tag is the first mirror that has it: give a digest where that matters. Documents are bounded as
// those of layouts are, and no server is waited for that sends nothing.
package registry

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Errors of this package, besides those of package image. They come wrapped, with what was asked of which registry:
// compare with errors.Is.
var (
	// ErrReference: a text that is not a reference to an image, or not a name of a registry.
	ErrReference = errors.New("not a reference")

	// ErrNotFound: a registry does not have an image, or a blob.
	ErrNotFound = errors.New("the registry does not have it")

	// ErrDenied: a registry wants other credentials.
	ErrDenied = errors.New("the registry denies it")

	// ErrStalled: a registry has sent, or taken, nothing worth mentioning for Client.Stall.
	ErrStalled = errors.New("no progress")

	// ErrPlainHTTP: a registry, or what it redirects to, is not reached by TLS.
	ErrPlainHTTP = errors.New("plain HTTP is refused")
)

// Defaults of a Client.
const (
	DefaultJobs  = 4
	DefaultStall = time.Minute
	DefaultKeep  = 16 << 30
)

// Client pulls and pushes. Its methods can be called by several goroutines at once; its fields are not changed
// meanwhile.
type Client struct {
	// Downloads is a directory for what is being downloaded. It is made when it is needed. Only one process uses
	// it at a time.
	Downloads string

	// Keep is how many bytes of interrupted downloads stay there; 0: DefaultKeep.
	Keep int64

	// Mirrors are, by the host of a registry such as docker.io, hosts that are asked first. A host can
	// have a port, and http:// before it.
	Mirrors map[string][]string

	// PlainHTTP has registries reached without TLS that do not have it. Those on this machine always are.
	PlainHTTP bool

	Keychain authn.Keychain // where credentials come from; nil: the files of docker and podman, and their helpers
	Jobs     int            // how many layers are transferred at once; 0: DefaultJobs
	Stall    time.Duration  // how long a registry may make no progress; 0: DefaultStall

	// Backoff is how long to wait before the nth attempt, from 1, of what has failed and may succeed. nil:
	// half a second, and twice as long each time. Servers can ask for up to a minute.
	Backoff func(n int) time.Duration

	transport http.RoundTripper // of tests; nil: one of this package
}

// Progress counts what a Pull or Push has transferred. It may be looked at meanwhile.
type Progress struct {
	done, total atomic.Int64
}

// Transferred is how many bytes were transferred, of how many; of 0 if that is not known yet.
func (p *Progress) Transferred() (done, total int64) { return p.done.Load(), p.total.Load() }

// attempts is how often a request is tried that brings nothing.
const attempts = 5

// longestWait is how long a server can ask to wait for.
const longestWait = time.Minute

func (c *Client) jobs() int {
	if c.Jobs > 0 {
		return c.Jobs
	}
	return DefaultJobs
}

func (c *Client) stall() time.Duration {
	if c.Stall > 0 {
		return c.Stall
	}
	return DefaultStall
}

func (c *Client) keep() int64 {
	if c.Keep > 0 {
		return c.Keep
	}
	return DefaultKeep
}

func (c *Client) keychain() authn.Keychain {
	if c.Keychain != nil {
		return c.Keychain
	}
	return authn.DefaultKeychain
}

// backoff is how long to wait before the nth further attempt.
func (c *Client) backoff(n int) time.Duration {
	if c.Backoff != nil {
		return c.Backoff(n)
	}
	return min(500*time.Millisecond<<(n-1), 8*time.Second)
}
