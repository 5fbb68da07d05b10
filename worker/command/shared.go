package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"holdfast/command/cli"
	"holdfast/worker/mount"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// shared is what the commands have in common that a daemon runs for others: the store is open, and stays so.
type shared struct {
	store  *snapshot.Store
	mounts *mount.Manager
	runner *step.Runner
	room   *room
	cache  *remotecache.Cache // nil: there is none
	page   string             // its address, with the token; "": there is none

	digests bool                // each snapshot gets one
	share   string              // of databases
	mirrors map[string][]string // of registries
}

// openShared opens the store of a command for the commands that others send. The caller closes it.
func (c *call) openShared(got *config) (s *shared, err error) {
	there, err := c.isStore()
	if err != nil {
		return nil, err
	}
	c.patience, c.volatile = c.wait, true
	s = &shared{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(c))
		}
	}()
	c.keep, c.digests, c.share = int64(got.Disk.Keep), got.Digests, got.Share
	s.digests, s.mirrors, s.share = got.Digests, got.mirrors(), got.Share
	if got.Sync == syncDeferred {
		c.sync = snapshot.SyncDeferred
	}
	if s.store, err = c.openStore(there); err != nil {
		return s, err
	}
	s.room = c.room
	s.room.restore()
	names, err := s.store.Namespace(DefaultNamespace)
	if err != nil {
		return s, err
	}
	all, err := s.store.Namespaces(c.ctx)
	if err != nil {
		return s, err
	}
	for _, name := range all { // no other command looks there as long as there is a daemon
		t, err := s.store.Namespace(name)
		if err == nil {
			err = unmounted(c.ctx, t)
		}
		if err != nil {
			return s, err
		}
	}
	if s.mounts, err = c.openMountsFor(s.store, nil); err != nil {
		return s, err
	}
	if err = s.openCache(c, got, names); err != nil {
		return s, err
	}
	s.runner, err = step.New(c.ctx, step.Options{Namespace: names, Mounts: s.mounts, Full: c.giveUp(s.room), Remote: s.remote(), Share: c.share,
		Concurrency: got.Steps.Concurrency, MaxOutput: int(got.Steps.MaxOutput), Logger: c.logger()})
	if err == nil && s.cache != nil {
		s.cache.Start(s.runner.RecordedOf)
	}
	return s, err
}

// close closes what openShared has opened for the command c, however far it came.
func (s *shared) close(c *call) (err error) {
	if s.runner != nil {
		err = s.runner.Close()
	}
	if s.cache != nil { // which the runner has used
		s.cache.Close()
	}
	if s.mounts != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), closeTime)
		defer cancel()
		err = errors.Join(err, s.mounts.Close(ctx))
	}
	if s.store != nil {
		err = errors.Join(err, c.removeRun(), s.store.Close()) // in this order: who has the store has the directory
	}
	return err
}

// withShared runs fn with the store that is open.
func (c *call) withShared(fn func(*snapshot.Namespace) error) error {
	if c.digests && !c.shared.digests {
		return cli.Usagef("--digests is for a store that has them: set digests = true in the configuration of holdfastd serve, and restart it")
	}
	if c.paths && !sameFiles(c.pid) {
		return &nextError{errors.New("the daemon sees other files than this command, which has another root directory or mount namespace"), "run it where the daemon runs, as by nsenter -t PID -m"}
	}
	if asked, _, _ := strings.Cut(c.driver, ":"); c.driverGiven() && asked != c.shared.store.Driver().Name() {
		return fmt.Errorf("open snapshot store %s: %w: it was made with driver %s, and is opened with %s", c.root, snapshot.ErrOtherDriver,
			c.shared.store.Driver().Name(), c.driver)
	}
	c.room = c.shared.room
	t, err := c.namespaceOf(c.shared.store)
	if err == nil {
		err = fn(t)
	}
	if err == nil && c.digests {
		err = c.digested(c.shared.store)
	}
	return err
}

func (c *call) driverGiven() bool {
	f := c.cmd.Flag("driver")
	return f != nil && f.Changed
}

// path is where a path leads that a command was given, which can be of another process: relative to its working directory, and with
// its own descriptors. It is not cleaned: a/.. is somewhere else if a is a symbolic link.
func (a *app) path(path string) string {
	if a.dir == "" {
		return path
	}
	if !filepath.IsAbs(path) {
		path = a.dir + string(filepath.Separator) + path
	}
	if a.pid == 0 {
		return path
	}
	a.paths = true
	of := fmt.Sprintf("/proc/%d", a.pid)
	for _, own := range [][2]string{
		{"/dev/stdin", of + "/fd/0"}, {"/dev/stdout", of + "/fd/1"}, {"/dev/stderr", of + "/fd/2"}, {"/dev/fd", of + "/fd"},
		{"/proc/self", of}, {"/proc/thread-self", of},
	} {
		if rest, ok := strings.CutPrefix(path, own[0]); ok && (rest == "" || rest[0] == filepath.Separator) {
			return own[1] + rest
		}
	}
	return path
}
