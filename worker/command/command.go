// Package command holds the commands of holdfastd. Run NewRootCommand with Execute, which
// prints errors and returns the exit code.
//
// A command is one file: it registers the function that makes it.
package command

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/driver/zfs"
)

// Exit codes of the commands.
const (
	ExitOK     = 0 // done
	ExitFailed = 1 // the operation failed, or doctor found that something needed is missing
	ExitUsage  = 2 // the command line is wrong
)

// failsWith is the annotation of a command whose own failures, wrong command lines included, have
// another exit code than these, since it passes on that of another program.
const failsWith = "fails with"

// DefaultRoot is the directory of the store.
const DefaultRoot = "/var/lib/holdfast"

// TenantName is the tenant of what the commands make.
const TenantName = "local"

const rootHelp = `holdfastd keeps the storage of a machine that runs builds: bases that are imported
from images and archives, snapshots made from them, and their mounts.

The store is in the directory --root. Only one process uses it at a time.

Exit codes: 0 done, 1 the operation failed, or something that is needed is missing
(doctor), 2 the command line is wrong.

Colours are used on a terminal only, and not if NO_COLOR is set.`

// makers make the commands.
var makers []func(*app) *cobra.Command

// register is called by the file of each command, from init.
func register(make func(*app) *cobra.Command) { makers = append(makers, make) }

// app is what the commands of one root have in common.
type app struct {
	json   bool
	root   string
	driver string
	run    string

	tenant   string // of those commands that have a flag for it
	digests  bool   // of all that is committed
	volatile bool   // what is mounted to be written is flushed by the store alone
}

// NewRootCommand makes the holdfastd command with all that is below it.
func NewRootCommand() *cobra.Command {
	a := &app{}
	root := &cobra.Command{
		Use: "holdfastd", Short: "Storage for machines that run builds", Long: rootHelp,
		SilenceErrors: true, SilenceUsage: true,
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON with stable field names")
	flags.StringVar(&a.root, "root", DefaultRoot, "directory of the store")
	flags.StringVar(&a.driver, "driver", "", "how snapshots are kept; default: as the store was made, a new one with overlay, or as an ordinary user with copy: overlay|copy|btrfs|erofs|zfs:DATASET")
	flags.StringVar(&a.run, "run", "", "directory for what is mounted, on a tmpfs; default: one in /run for each store")
	_ = root.MarkPersistentFlagDirname("root") // a flag that is there
	_ = root.MarkPersistentFlagDirname("run")
	for _, make := range makers {
		root.AddCommand(make(a))
	}
	cli.CompleteValues(root)
	_ = root.RegisterFlagCompletionFunc("driver", cli.FlagValues(append(slices.Clone(driverNames), zfsPrefix)))
	cli.NameArguments(root)
	return root
}

// Execute runs root, prints its error to its error output and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command) int {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if !started {
		err = &cli.UsageError{Err: err}
	}
	var exit *exitError
	if !errors.Is(err, errSaid) && !(errors.As(err, &exit) && exit.err == nil) {
		cli.PrintError(root, cmd, err, cli.IsUsage(err))
	}
	if exit != nil {
		return exit.code
	}
	if own, err := strconv.Atoi(cmd.Annotations[failsWith]); err == nil {
		return own
	}
	if cli.IsUsage(err) {
		return ExitUsage
	}
	return ExitFailed
}

// exitError ends the program with an exit code of its own. err is what there is to say, nil if
// it was said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("%v", e.err) }
func (e *exitError) Unwrap() error { return e.err }

// errSaid is of a command that has printed what is wrong.
var errSaid = errors.New("something is wrong")

// call is one run of a command.
type call struct {
	*app
	ctx  context.Context
	cmd  *cobra.Command
	args []string
	out  *bufio.Writer // standard output, flushed when the command has ended
	room *room         // on the disk of the store that is open
}

// action makes what cobra runs of fn.
func (a *app) action(fn func(*call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c := &call{app: a, ctx: cmd.Context(), cmd: cmd, args: args, out: bufio.NewWriter(cli.Output{W: cmd.OutOrStdout()})}
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		if a.root == "" {
			return cli.Usagef("--root is empty; give the directory of the store")
		}
		return c.explain(cli.Flushed(c.out, fn(c)))
	}
}

// logger prints warnings of what goes on in the background.
func (c *call) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(c.cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// driverNames are the drivers that need nothing but their name.
var driverNames = []string{"overlay", "copy", "btrfs", "erofs"}

// zfsPrefix is before the dataset of the driver zfs.
const zfsPrefix = "zfs:"

func (a *app) newDriver(name string) (snapshot.Driver, error) {
	switch name {
	case "overlay":
		var options []string
		if a.volatile {
			options = append(options, "volatile")
		}
		if inUserns() { // others are the machine's root's
			options = append(options, "userxattr")
		}
		return overlay.New(options...), nil
	case "copy":
		return copy.New(), nil
	case "btrfs":
		return btrfs.New(), nil
	case "erofs":
		return erofs.New(), nil
	}
	if dataset, ok := strings.CutPrefix(name, zfsPrefix); ok {
		return zfs.New(dataset), nil
	}
	if name == "zfs" {
		return nil, cli.Usagef("the driver zfs needs a dataset that it makes, in a pool that is there: --driver zfs:tank/holdfast")
	}
	return nil, cli.Usagef("there is no driver %q; there are %s and zfs:DATASET", name, strings.Join(driverNames, ", "))
}

// defaultDriver is that of a new store.
func defaultDriver() string {
	if os.Geteuid() == 0 {
		return "overlay"
	}
	return "copy"
}

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
func (c *call) withStore(create bool, fn func(*snapshot.Tenant) error) (err error) {
	there, err := c.isStore()
	if err == nil && !create {
		err = c.needStore()
	}
	if err != nil {
		return err
	}
	s, err := c.openStore(there)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c.room.restore()
	defer c.room.restore() // there may be room now
	t, err := c.tenantOf(s)
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

// tenantOf is the tenant that the command is for. Others than that of the commands must have snapshots.
func (c *call) tenantOf(s *snapshot.Store) (*snapshot.Tenant, error) {
	name := cmp.Or(c.tenant, TenantName)
	if name != TenantName {
		all, err := s.Tenants(c.ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, name) {
			return nil, cli.Usagef("no tenant is called %q; those with snapshots: %s", name, cmp.Or(strings.Join(all, ", "), "none"))
		}
	}
	return s.Tenant(name)
}

// tenantFlag gives a command the flag --tenant.
func (a *app) tenantFlag(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVar(&a.tenant, "tenant", TenantName, "whose snapshots: holdfastd snapshot tenants lists all")
	_ = cmd.RegisterFlagCompletionFunc("tenant", func(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		c := &call{app: a, ctx: context.Background(), cmd: cmd}
		a.tenant = TenantName
		_ = c.withStore(false, func(t *snapshot.Tenant) (err error) {
			names, err = t.Store().Tenants(c.ctx)
			return err
		})
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

// noOtherDriver fails if a store that no dataset belongs to can be opened without. The driver zfs would make its dataset, and
// write down that it is the store's, before anybody sees that the store has another driver.
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
	c.room = newRoom(root)
	giveUp := c.giveUp(c.room)
	var first error
	for _, name := range names {
		d, err := c.newDriver(name)
		if err != nil {
			return nil, err
		}
		o := snapshot.Options{Driver: d, Digests: c.digests, Full: giveUp, Logger: c.logger()}
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

// isFull tells of an error that there is no room on the disk.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// lockPatience is how long a store that is locked is tried again: the child that a killed process was
// about to start has its locks for a moment.
const (
	lockPatience = 300 * time.Millisecond
	lockInterval = 5 * time.Millisecond
)

// lockWait is a variable for tests.
var lockWait = func() { time.Sleep(lockInterval) }

// openUnlocked opens a store, and waits a little if another process has it.
func (c *call) openUnlocked(root string, o snapshot.Options) (*snapshot.Store, error) {
	for begun := time.Now(); ; lockWait() {
		s, err := snapshot.Open(root, o)
		if !errors.Is(err, snapshot.ErrLocked) || time.Since(begun) > lockPatience || c.ctx.Err() != nil {
			return s, err
		}
	}
}

// runDir is the directory of the manager of mounts.
func (a *app) runDir() (string, error) {
	if a.run != "" {
		return filepath.Abs(a.run)
	}
	root, err := a.absRoot()
	if err == nil && inUserns() { // /run is not its own
		return filepath.Join(root, "run"), nil
	}
	if err != nil || root == DefaultRoot {
		return mount.DefaultDirectory, err
	}
	return fmt.Sprintf("%s-%x", mount.DefaultDirectory, sha256.Sum256([]byte(root)))[:len(mount.DefaultDirectory)+17], nil
}

// openMounts opens the manager of mounts of a store. The caller closes it.
func (c *call) openMounts(s *snapshot.Store) (*mount.Manager, error) {
	o, err := c.mountOptions(s)
	if err != nil {
		return nil, err
	}
	return mount.Open(c.ctx, o)
}

// mountOptions are those of the manager of mounts; the store is the first that it keeps.
func (c *call) mountOptions(s *snapshot.Store) (o mount.Options, err error) {
	root, err := c.absRoot()
	if err != nil {
		return o, err
	}
	dir, err := c.runDir()
	o = mount.Options{Directory: dir, Keep: []string{root}, Logger: c.logger()}
	if d, ok := s.Driver().(interface {
		Mounters() map[string]mount.Mounter
	}); ok {
		o.Mounters = d.Mounters()
	}
	return o, err
}

// find looks for a snapshot by its name, or by the beginning of the one name that begins so; of a
// digest the algorithm may be left out.
func (c *call) find(t *snapshot.Tenant, name string) (snapshot.Info, error) {
	info, err := t.Stat(c.ctx, name)
	if !errors.Is(err, snapshot.ErrNotFound) || len(name) < 4 {
		return info, err
	}
	var found []snapshot.Info
	walkErr := t.Walk(c.ctx, func(i snapshot.Info) error {
		if strings.HasPrefix(i.Name, name) || strings.HasPrefix(i.Name, "sha256:"+name) {
			found = append(found, i)
		}
		return nil
	})
	switch {
	case walkErr != nil:
		return snapshot.Info{}, walkErr
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return snapshot.Info{}, cli.Usagef("%d snapshots have names that begin with %q; give more of it", len(found), name)
	}
	return info, err
}

// completeSnapshots offers the names of snapshots for the argument that has that many before it; -1: for all.
func (a *app) completeSnapshots(before int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
		if before >= 0 && len(args) != before {
			return nil, cobra.ShellCompDirectiveDefault
		}
		c := &call{app: a, ctx: context.Background(), cmd: cmd}
		// There is nobody to tell of an error; running the command tells.
		_ = c.withStore(false, func(t *snapshot.Tenant) error {
			return t.Walk(c.ctx, func(i snapshot.Info) error {
				if strings.HasPrefix(i.Name, begun) && len(names) < 1000 {
					names = append(names, i.Name)
				}
				return nil
			})
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
