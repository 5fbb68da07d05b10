package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/zfs"
)

// absRoot is the directory of the store, without symbolic links as far as it is there.
func (a *app) absRoot() (string, error) {
	path, err := filepath.Abs(a.root)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	return path, nil
}

// isStore tells whether there is a store.
func (a *app) isStore() (bool, error) {
	_, err := os.Stat(filepath.Join(a.root, "metadata.db"))
	if errors.Is(err, fs.ErrNotExist) {
		// One without metadata is told of by Open.
		entries, _ := os.ReadDir(filepath.Join(a.root, "snapshots"))
		return len(entries) > 0, nil
	}
	return err == nil, err
}

// needStore fails if there is no store.
func (c *call) needStore() error {
	there, err := c.isStore()
	if err == nil && !there {
		err = &rootError{root: c.root, what: "there is no store", next: "holdfastd import makes one, or give its directory with --root"}
	}
	return err
}

// withStore opens the store, for as long as fn runs. create: one is made if there is none.
func (c *call) withStore(create bool, fn func(*snapshot.Namespace) error) (err error) {
	if c.shared != nil {
		return c.withShared(fn)
	}
	there, err := c.isStore()
	if err == nil && !create {
		err = c.needStore()
	}
	if err != nil {
		return err
	}
	if c.waits {
		c.patience = c.wait
	}
	s, err := c.openStore(there)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.removeRun(), s.Close()) }() // in this order: who has the store has the directory
	c.room.restore()
	defer c.room.restore() // there may be room now
	t, err := c.namespaceOf(s)
	if err == nil {
		err = unmounted(c.ctx, t)
	}
	if err == nil {
		err = fn(t)
	}
	if err == nil && c.digests {
		err = c.digested(s)
	}
	return err
}

// namespaceOf is the namespace that the command is for. Others than that of the commands, and those of clients, must have
// snapshots.
func (c *call) namespaceOf(s *snapshot.Store) (*snapshot.Namespace, error) {
	name := cmp.Or(c.namespace, DefaultNamespace)
	if name != DefaultNamespace {
		all, err := s.Namespaces(c.ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, name) && !s.IsClient(name) {
			return nil, cli.Usagef("no namespace is called %q; those with snapshots: %s", name, cmp.Or(strings.Join(all, ", "), "none"))
		}
	}
	return s.Namespace(name)
}

// namespaceFlag gives a command the flag --namespace.
func (a *app) namespaceFlag(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVar(&a.namespace, "namespace", DefaultNamespace, "namespace of the snapshots; holdfastd snapshot namespaces lists all")
	a.complete(cmd, "namespace", func(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		c := &call{app: a, ctx: context.Background(), cmd: cmd}
		a.namespace = DefaultNamespace
		err := c.withStore(false, func(t *snapshot.Namespace) (err error) {
			names, err = t.Store().Namespaces(c.ctx)
			return err
		})
		if errors.Is(err, errServed) {
			_ = c.ask(&names, "snapshot", "namespaces", "--json")
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// digested waits until all that was committed has a digest.
func (c *call) digested(s *snapshot.Store) error {
	stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "computing digests", Step: cli.ProgressStep}.Start()
	defer stop()
	return s.Digested(c.ctx)
}

// candidates are the drivers with which a store is opened, one after the other, until one is right.
func (c *call) candidates(root string, there bool) ([]string, error) {
	dataset, err := zfs.DatasetOf(root)
	switch {
	case err != nil:
		return nil, err
	case dataset != "" && (c.driver == "" || c.driver == "zfs"):
		return []string{zfsPrefix + dataset}, nil
	case c.driver != "":
		if there && dataset == "" && strings.HasPrefix(c.driver, zfsPrefix) {
			err = c.noOtherDriver(root)
		}
		return []string{c.driver}, err
	case there:
		first := defaultDriver()
		return append([]string{first}, slices.DeleteFunc(slices.Clone(driverNames), func(n string) bool { return n == first })...), nil
	}
	return []string{defaultDriver()}, nil
}

// noOtherDriver fails if a store that no dataset belongs to can be opened without. The driver zfs would
// make its dataset, and write down that it is the store's, before anybody sees that the store has another
// driver.
func (c *call) noOtherDriver(root string) error {
	for _, name := range driverNames {
		d, err := c.newDriver(name)
		if err != nil {
			return err
		}
		s, err := c.openUnlocked(root, snapshot.Options{Driver: d, Logger: c.logger()})
		if err == nil {
			return errors.Join(fmt.Errorf("open snapshot store %s: %w: it was made with driver %s, and is opened with %s", root, snapshot.ErrOtherDriver, name, c.driver), s.Close())
		}
		if !otherDriver(err) {
			return err
		}
	}
	return nil
}

// otherDriver tells of an error of opening a store that another driver may be right.
func otherDriver(err error) bool {
	return errors.Is(err, snapshot.ErrOtherDriver) || errors.Is(err, snapshot.ErrUnsupported)
}

// openStore opens the store with the driver that is asked for, or that it was made with.
func (c *call) openStore(there bool) (*snapshot.Store, error) {
	root, err := c.absRoot()
	if err != nil {
		return nil, err
	}
	names, err := c.candidates(root, there)
	if err != nil {
		return nil, err
	}
	if !there {
		if err := os.MkdirAll(root, 0o700); err != nil {
			return nil, err
		}
	}
	c.room = newRoom(root, c.keep)
	giveUp := c.giveUp(c.room)
	var first error
	for _, name := range names {
		d, err := c.newDriver(name)
		if err != nil {
			return nil, err
		}
		o := snapshot.Options{Driver: d, Digests: c.digests, Sync: c.sync, Share: c.share, Full: giveUp, Logger: c.logger()}
		s, err := c.openUnlocked(root, o)
		// A driver that is asked whether it works tries, which takes room. Another process does not have the store then.
		if there && isFull(err) && giveUp() {
			s, err = c.openUnlocked(root, o)
		}
		if err == nil || !otherDriver(err) {
			return s, err
		}
		if first == nil || errors.Is(first, snapshot.ErrOtherDriver) {
			first = err
		}
	}
	return nil, first
}

// look opens a store that is there for a short time, until done, or gives that of the daemon that runs the command.
func (c *call) look() (s *snapshot.Store, done func(), err error) {
	if c.shared != nil {
		return c.shared.store, func() {}, nil
	}
	if s, err = c.openStore(true); err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // nothing was written
}

// isFull tells of an error that there is no room on the disk.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// defaultWait is how long a command waits for another one that has the store.
const defaultWait = time.Minute

// lockPatience is how long a store that is locked is tried again at least: the child that a killed process was
// about to start has its locks for a short time.
const (
	lockPatience = 300 * time.Millisecond
	lockInterval = 5 * time.Millisecond
	lockSeldom   = 50 * time.Millisecond // after lockPatience
	lockSilence  = time.Second           // after that long it is said who is waited for
)

// errServed: a daemon has begun to serve the store for which a command waits.
var errServed = errors.New("a daemon has it")

// lockWait is a variable for tests.
var lockWait = func(ctx context.Context, time time.Duration) { sleep(ctx, time) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// openUnlocked opens a store, and waits if another process has it.
func (c *call) openUnlocked(root string, o snapshot.Options) (*snapshot.Store, error) {
	begun, interval, said := time.Now(), lockInterval, false
	for {
		s, err := snapshot.Open(root, o)
		waited := time.Since(begun)
		if errors.Is(err, snapshot.ErrLocked) && c.cmd.Annotations[runsHere] == "" && c.isServed() {
			return nil, fmt.Errorf("%w: %w", errServed, err)
		}
		if !errors.Is(err, snapshot.ErrLocked) || waited > max(lockPatience, c.patience) {
			return s, err
		}
		if waited > lockSilence && !said {
			said = true
			fmt.Fprintf(c.cmd.ErrOrStderr(), "waiting up to %s: %v\n", cli.DurationText(c.patience), err)
		}
		if waited > lockPatience {
			interval = lockSeldom
		}
		lockWait(c.ctx, interval)
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
	}
}
