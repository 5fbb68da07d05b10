package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newMount) }

const mountHelp = `Mount a snapshot at PATH, a directory that is there, until the command is interrupted (Ctrl-C), which
ends it with exit code 0. It can be run in the background of a script: kill -INT ends it, too.

A committed snapshot or a base is mounted to be read. An active one can be written.
Set-user-ID and devices have no effect there (nosuid, nodev).
The store is in use meanwhile: other commands, but for mount ls, top and doctor, wait (--wait).`

// closeTime is how long the end of a command waits for mounts that are in use. A variable for tests.
var closeTime = 10 * time.Second

func (a *app) newMount() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mount NAME PATH", Short: "Mount a snapshot until interrupted", Long: mountHelp, Args: cobra.ExactArgs(2),
		RunE: a.action((*call).mount), ValidArgsFunction: a.completeSnapshots(0),
	}
	a.namespaceFlag(cmd, cmd.Flags())
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Short: "List what is mounted", Args: cobra.NoArgs, RunE: a.action((*call).mounts), Annotations: map[string]string{runsHere: "yes"},
		Long: "List what of holdfastd, of any store, is mounted where this command sees it: what only a\nrunning step has is not.",
	})
	return cmd
}

// heedInterrupt has an interrupt end the command, also if it is ignored, as the shell of a script has it for commands
// in the background: for commands that end in no other way.
func (c *call) heedInterrupt() (stop context.CancelFunc) {
	if !signal.Ignored(os.Interrupt) {
		return func() {} // it does already
	}
	c.ctx, stop = signal.NotifyContext(c.ctx, os.Interrupt)
	return stop
}

func (c *call) mount() error {
	defer c.heedInterrupt()()
	path, err := filepath.Abs(c.path(c.args[1]))
	if err != nil {
		return err
	}
	return c.withStore(false, func(t *snapshot.Namespace) (err error) {
		if _, err := os.Stat(path); err != nil {
			return &nextError{err, "give a directory or file that is there"}
		}
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		ctx := context.WithoutCancel(c.ctx)
		if c.shared != nil {
			list, end, err := c.mountsOf(t, info)
			if err != nil {
				return err
			}
			return errors.Join(c.hold(c.shared.mounts, info, list, path), end(ctx))
		}
		m, err := c.openMounts()
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(ctx, closeTime)
			defer cancel()
			closeErr := m.Close(ctx)
			if err == nil { // else it is what keeps it from closing, too
				err = closeErr
			}
		}()
		list, end, err := c.mountsOf(t, info)
		if err != nil {
			return err
		}
		return errors.Join(c.hold(m, info, list, path), end(ctx))
	})
}

// mountsOf are the mounts of a snapshot: of a committed one those of a view, which end removes.
func (c *call) mountsOf(t *snapshot.Namespace, info snapshot.Info) (list []mount.Mount, end func(context.Context) error, err error) {
	if info.Kind != snapshot.Committed {
		list, err = t.Mounts(c.ctx, info.Name)
		return list, func(context.Context) error { return nil }, err
	}
	key := viewPrefix + rand.Text()
	list, err = t.View(c.ctx, key, info.Name)
	return list, func(ctx context.Context) error { return t.Remove(ctx, key) }, err
}

// viewPrefix begins the names of the views that mount makes.
const viewPrefix = "!mount/"

// unmounted removes the views of commands that were killed: only one process has the store.
func unmounted(ctx context.Context, t *snapshot.Namespace) error {
	var left []string
	err := t.WalkPrefix(ctx, viewPrefix, func(i snapshot.Info) error {
		if i.Kind == snapshot.View {
			left = append(left, i.Name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := t.Remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// hold mounts, and waits until the command is interrupted.
func (c *call) hold(m *mount.Manager, info snapshot.Info, list []mount.Mount, path string) error {
	spec, err := mount.FromMounts(list)
	if err != nil {
		return err
	}
	// What steps have left must not make other users of the machine root, nor lead to its disks.
	spec.Options = append(slices.Clone(spec.Options), "nosuid", "nodev")
	h, err := m.Acquire(c.ctx, spec)
	if err != nil {
		return err
	}
	_, err = h.Attach(m.Host(), path)
	if err == nil {
		err = c.announce(info, path)
		if err == nil {
			<-c.ctx.Done()
		}
	}
	h.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), closeTime)
	defer cancel()
	if waitErr := h.Wait(ctx); waitErr != nil {
		return &nextError{errors.Join(err, fmt.Errorf("%s is in use, and stays mounted: %w", path, waitErr)),
			"end what uses it, which fuser -vm shows, and unmount it with umount"}
	}
	return err
}

func (c *call) announce(info snapshot.Info, path string) error {
	if c.json {
		if err := cli.PrintJSON(c.out, map[string]string{"snapshot": info.Name, "path": path, "kind": strings.ToLower(info.Kind.String())}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.out, "%s is mounted at %s until this is interrupted\n", abbreviated(info.Name, false), printable(path))
	}
	return c.out.Flush()
}

// mounted is something of holdfastd that is mounted.
type mounted struct {
	Path   string `json:"path"`
	Type   string `json:"type"`
	Source string `json:"source"`
}

func (c *call) mounts() error {
	root, err := c.absRoot()
	if err != nil {
		return err
	}
	list, err := mountedHere(root)
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(c.out, "nothing is mounted")
		return nil
	}
	lines := [][]string{{"PATH", "TYPE", "SOURCE"}}
	for _, m := range list {
		lines = append(lines, []string{printable(m.Path), m.Type, printable(m.Source)})
	}
	cli.Columns(c.out, lines...)
	return nil
}
