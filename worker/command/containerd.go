//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"holdfast/worker/content"
	"holdfast/worker/internal/remote"
	"holdfast/worker/server"
	"holdfast/worker/service"
)

// contentDir is the directory of a store with the content of its clients, a file for each.
const contentDir = "content"

// stopTime is how long calls of clients may take after a daemon was told to end.
const stopTime = 10 * time.Second

// clients are the sockets of proxy plugins that a daemon serves.
type clients struct {
	log    *slog.Logger
	served sync.WaitGroup
	failed chan error // of a socket that is not served any more

	servers []*server.Server
	stores  []*content.Store
	files   []service.Database
}

// serveClients serves each client that is configured on a socket of its own.
func (s *shared) serveClients(log *slog.Logger, at *sockets, list []clientConfig) (c *clients, err error) {
	c = &clients{log: log, failed: make(chan error, len(list))}
	for _, cfg := range list {
		if err := c.add(s, at, cfg); err != nil {
			return c, errors.Join(fmt.Errorf("containerd socket %s: %w", cfg.Socket, err), at.remove(), c.close())
		}
	}
	return c, nil
}

func (c *clients) add(s *shared, at *sockets, cfg clientConfig) error {
	for name, of := range map[string]string{socketName: "commands", apiSocketName: "the API"} {
		if filepath.Clean(cfg.Socket) == filepath.Join(s.store.Root(), name) {
			return &nextError{errors.New("that is the socket for " + of), "choose another path"}
		}
	}
	names, err := s.store.ClientNamespace(cfg.Namespace)
	if err != nil {
		return err
	}
	services := server.Services{Snapshots: names}
	if cfg.Content {
		dir := filepath.Join(s.store.Root(), contentDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if services.Content, err = content.Open(filepath.Join(dir, cfg.Namespace+".db"), content.Options{Timeout: time.Second, Share: s.share}); err != nil {
			return err
		}
		c.stores = append(c.stores, services.Content)
		c.files = append(c.files, service.Database{Name: contentDir + "/" + cfg.Namespace + ".db", DB: services.Content.Database()})
	}
	if !at.has(cfg.Socket) {
		if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o711); err != nil {
			return err
		}
		if err := removeStale(cfg.Socket); err != nil {
			return err
		}
	}
	l, err := at.listen(cfg.Socket)
	if err != nil {
		return err
	}
	srv := server.New(services, c.log)
	c.servers = append(c.servers, srv)
	c.served.Go(func() {
		if err := srv.Serve(remote.Guard(l, c.log)); err != nil {
			c.failed <- fmt.Errorf("serve %s: %w", cfg.Socket, err)
		}
	})
	c.log.Info("ready for containerd", "socket", cfg.Socket, "namespace", cfg.Namespace, "content", cfg.Content)
	return nil
}

// removeStale removes a socket that was left by a process that was killed.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return &nextError{errors.New("there is a file, and it is no socket"), "choose another path, or remove it"}
	}
	conn, err := remote.Dial(path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process listens there"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("whether another process listens there cannot be told: %w", err) // it may be busy
}

// close ends when calls have ended, or their time has passed, and what clients have written is saved.
func (c *clients) close() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	var stopped sync.WaitGroup
	for _, s := range c.servers {
		stopped.Go(func() { s.Stop(ctx) })
	}
	stopped.Wait()
	c.served.Wait()
	for _, s := range c.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
