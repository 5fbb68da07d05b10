//go:build unix

package command

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/worker/internal/remote"
	"holdfast/worker/prune"
	"holdfast/worker/registry"
	"holdfast/worker/service"
	"holdfast/worker/snapshot"
)

const (
	apiSocketName = "api.sock"   // in the directory of a store: the service of worker/api
	tokenName     = "http.token" // what a client of the address for HTTP must know
)

// apiServer serves the service of worker/api on a socket, and where the configuration says so by HTTP.
type apiServer struct {
	service *service.Service
	log     *slog.Logger
	page    string // the address of the page, with the token; "": there is none
	servers []*http.Server
	served  sync.WaitGroup
	failed  chan error // of a listener that is not served any more
}

// livePolicies are by what a daemon prunes now.
type livePolicies struct {
	atomic.Pointer[service.Policies]
}

func (p *livePolicies) set(got *config, policies prune.Config) {
	p.Store(&service.Policies{Config: policies, Interval: time.Duration(got.Prune.Interval)})
}

func policiesOf(got *config, policies prune.Config) *livePolicies {
	p := &livePolicies{}
	p.set(got, policies)
	return p
}

// serveAPI begins to serve the service.
func (c *call) serveAPI(s *shared, log *slog.Logger, at *sockets, got *config, clients *clients, policies *livePolicies) (a *apiServer, err error) {
	a = &apiServer{log: log, failed: make(chan error, 2)}
	names, err := s.store.Namespace(DefaultNamespace)
	if err != nil {
		return a, err
	}
	databases := []service.Database{{Name: "metadata.db", DB: s.store.Database()}, {Name: "results.db", DB: s.runner.Database()}, {Name: "mounts.db", DB: s.mounts.Database()}}
	databases = append(databases, clients.files...)
	a.service = service.New(service.Options{
		Version: version(), Namespace: names, Runner: s.runner, Mounts: s.mounts, Databases: databases, Concurrency: s.runner.Concurrency(), Cache: s.cache, Logger: log,
		Client: registry.Client{Downloads: filepath.Join(s.store.Root(), downloadsName)},
		Show: func(ctx context.Context, info snapshot.Info) (string, func() error, error) {
			return showTree(ctx, names, s.mounts, info)
		},
		Policies: func() service.Policies { return *policies.Load() },
		Reserve: func(ctx context.Context, base string, bytes int64) (func(), error) {
			return c.reserveFor(ctx, s, names, base, bytes, policies.Load().Config)
		},
	})
	l, err := at.replace(filepath.Join(s.store.Root(), apiSocketName))
	if err != nil {
		return a, err
	}
	a.serve(remote.Guard(l, log), service.Access{}, nil)
	return a, a.serveHTTP(got.HTTP, s.store.Root())
}

// reserveFor is reserve for a step that no command has asked for.
func (c *call) reserveFor(ctx context.Context, s *shared, t *snapshot.Namespace, base string, bytes int64, policies prune.Config) (func(), error) {
	own := *c
	own.ctx, own.room = ctx, s.room
	return own.reserve(t, base, bytes, &stepFlags{app: c.app, policies: policies})
}

// serveHTTP serves at the address that is configured.
func (a *apiServer) serveHTTP(h httpConfig, root string) error {
	if h.Listen == "" {
		return nil
	}
	token, err := tokenOf(h, root)
	if err != nil {
		return err
	}
	secure, err := h.secure()
	if err != nil {
		return err
	}
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	l, err := net.Listen("tcp", h.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	address := scheme + "://" + forBrowsers(l.Addr()) + "/"
	a.page = address + "#token=" + token
	a.serve(l, service.Access{Token: token}, secure)
	a.log.Info("ready for browsers", "address", address)
	return nil
}

// forBrowsers is a host and port that a browser can open: the machine's name if all its addresses are listened at.
func forBrowsers(at net.Addr) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return at.String()
	}
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return net.JoinHostPort(name, strconv.Itoa(tcp.Port))
}

// tokenOf reads the token, or makes one.
func tokenOf(h httpConfig, root string) (string, error) {
	path := h.TokenFile
	if path == "" {
		path = filepath.Join(root, tokenName)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			if err := makeToken(path); err != nil {
				return "", fmt.Errorf("make the token: %w", err)
			}
		}
	}
	return readToken(path)
}

// makeToken writes a token, so that a crash leaves all of it or none.
func makeToken(path string) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func (a *apiServer) serve(l net.Listener, access service.Access, secure *tls.Config) {
	srv := service.NewServer(a.service.Handler(access), a.log)
	srv.TLSConfig, l = secure, service.Limit(l)
	a.servers = append(a.servers, srv)
	a.served.Go(func() {
		var err error
		if secure != nil {
			err = srv.ServeTLS(l, "", "")
		} else {
			err = srv.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	})
}

// drain returns when the calls that run have ended; when ctx ends, it ends them. Those that only watch end at once.
func (a *apiServer) drain(ctx context.Context) {
	if a.service != nil {
		a.service.End()
	}
	var stopped sync.WaitGroup
	for _, srv := range a.servers {
		stopped.Go(func() {
			if srv.Shutdown(ctx) != nil {
				_ = srv.Close()
			}
		})
	}
	stopped.Wait()
	a.served.Wait()
}

// close is the end of drain, which need not have begun.
func (a *apiServer) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	a.drain(ended)
	if a.service != nil {
		a.service.Close()
	}
}
