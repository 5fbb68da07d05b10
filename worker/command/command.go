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
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/userns"
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
	"holdfast/worker/step"
)

// Exit codes of the commands.
const (
	ExitOK     = 0 // done
	ExitFailed = 1 // the operation failed, or doctor found that something needed is missing
	ExitUsage  = 2 // the command line is wrong

	exitInterrupted = cli.ExitSignal + int(syscall.SIGINT) // by Ctrl-C; of another signal 128 and its number
)

// failsWith is the annotation of a command whose own failures, wrong command lines included, have
// another exit code than these, since it returns that of another program.
const failsWith = "fails with"

// runsHere is the annotation of a command that no daemon runs for it.
const runsHere = "runs here"

// DefaultRoot is the directory of the store.
const DefaultRoot = "/var/lib/holdfast"

// DefaultNamespace is the namespace of what the commands make.
const DefaultNamespace = "local"

const rootHelp = `holdfastd keeps the storage of a machine that runs builds: bases that are imported
from images and archives, snapshots made from them, and their mounts.

The store is in the directory --root. Only one process uses it at a time; others wait for it
(--wait).

Exit codes: 0 done, 1 the operation failed, or something that is needed is missing
(doctor), 2 the command line is wrong, 130 ended by Ctrl-C (128 and the number of any
other signal).

Sizes are numbers of bytes, or have a unit such as 64KiB or 1GiB; durations are numbers
of seconds, or have a unit such as 500ms, 90s, 5m or 7d.

With --json an error is a line of JSON on standard error.

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
	wait   time.Duration // for another process that has the store

	shared *shared // of a daemon that runs the command; nil: the command has the store for itself
	keep   int64   // bytes of the disk that are never reserved
	sync   snapshot.SyncMode
	dir    string // to which paths are relative; "": the process's working directory
	pid    int    // of the process that was given the command, if that is another one
	paths  bool   // it was given some

	namespace string // of those commands that have a flag for it
	digests   bool   // of all that is committed
	share     string // of its databases, see holdfast.Options
	volatile  bool   // what is mounted to be written is flushed by the store alone
}

// NewRootCommand makes the holdfastd command with all that is below it.
func NewRootCommand() *cobra.Command { return newRoot(&app{}) }

// newRoot makes the commands of an app. What flags set in it begins as they say.
func newRoot(a *app) *cobra.Command {
	own := *a
	root := &cobra.Command{
		Use: "holdfastd", Short: "Storage for machines that run builds", Long: rootHelp,
		Example: "  holdfastd doctor\n  holdfastd import files.tar base\n" +
			"  holdfastd step --base base -- sh -c 'echo hello >/greeting'\n  holdfastd snapshot ls\n  holdfastd prune --dry-run",
		SilenceErrors: true, SilenceUsage: true, Version: version(),
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON with stable field names")
	flags.StringVar(&a.root, "root", DefaultRoot, "directory of the store")
	flags.StringVar(&a.driver, "driver", "", "how snapshots are kept; default: as the store was made, a new one with overlay, or as an unprivileged user with copy: overlay|copy|btrfs|erofs|zfs:DATASET")
	flags.StringVar(&a.run, "run", "", "directory for what is mounted, on a tmpfs; default: one in /run for each store")
	cli.DurationVar(flags, &a.wait, "wait", defaultWait, "how long to wait for another process that has the store; 0: not")
	if a.shared != nil {
		a.root, a.driver, a.run = own.root, own.driver, own.run
	}
	_ = root.MarkPersistentFlagDirname("root") // a flag that is there
	_ = root.MarkPersistentFlagDirname("run")
	for _, make := range makers {
		root.AddCommand(make(a))
	}
	a.complete(root, "driver", cli.FlagValues(append(slices.Clone(driverNames), zfsPrefix)))
	if a.shared == nil {
		cli.RefuseShells(root)
	}
	cli.NameArguments(root)
	cli.PlainErrors(root)
	return root
}

// Execute runs root, prints its error to its error output and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command) int {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	return execute(ctx, root)
}

// execute is Execute with a context that ends when the command is to.
func execute(ctx context.Context, root *cobra.Command) int {
	started := false
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		started = true
		cli.PrepareCompletion(root, cmd)
	}
	cmd, err := cli.Run(ctx, root)
	if err == nil {
		return ExitOK
	}
	if !started && !cli.IsOutput(err) {
		err = &cli.UsageError{Err: cli.PlainUnknown(root, err)}
	}
	err = cli.InterruptedBy(ctx, err)
	code := exitCode(cmd, err)
	var exit *exitError
	if !errors.Is(err, errSaid) && !(errors.As(err, &exit) && exit.err == nil) {
		failureOf(err, code).Print(root, cmd)
	}
	return code
}

// exitCode is the exit code that tells an error of cmd.
func exitCode(cmd *cobra.Command, err error) int {
	var exit *exitError
	var interrupted *cli.Interrupted
	if errors.As(err, &exit) {
		return exit.code
	}
	if errors.As(err, &interrupted) {
		return interrupted.Code()
	}
	if errors.Is(err, context.Canceled) { // by a program that has the command in it
		return exitInterrupted
	}
	if own, err := strconv.Atoi(cmd.Annotations[failsWith]); err == nil {
		return own
	}
	if cli.IsUsage(err) {
		return ExitUsage
	}
	return ExitFailed
}

// failureOf is err as it is printed.
func failureOf(err error, code int) cli.Failure {
	f := cli.Failure{Message: err.Error(), ExitCode: code, Kind: cli.KindFailed}
	var interrupted *cli.Interrupted
	var ofRoot *rootError
	var next *nextError
	switch {
	case errors.As(err, &interrupted), code == exitInterrupted:
		f.Kind = cli.KindInterrupted
	case cli.IsUsage(err):
		f.Kind = cli.KindUsage
	case errors.Is(err, snapshot.ErrDamaged), errors.Is(err, snapshot.ErrDistrusted), errors.Is(err, snapshot.ErrCorrupt), errors.Is(err, snapshot.ErrMissing), errors.Is(err, step.ErrResults):
		f.Kind = cli.KindDamaged
	}
	switch {
	case errors.As(err, &ofRoot):
		f.File, f.Next = ofRoot.root, ofRoot.next
	case errors.As(err, &next):
		f.Next = next.next
	}
	return f
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

	waits    bool          // for another process; offering names does not
	patience time.Duration // how long the store may be another process's
}

// action makes what cobra runs of fn.
func (a *app) action(fn func(*call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c := &call{app: a, ctx: cmd.Context(), cmd: cmd, args: args, out: bufio.NewWriter(cli.Output{W: cmd.OutOrStdout()}), waits: true}
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		if a.root == "" {
			return cli.Usagef("--root is empty; give the directory of the store")
		}
		if err := noEmptyFlags(cmd.Flags()); err != nil {
			return err
		}
		if err := checkDriver(a.driver); a.driver != "" && err != nil {
			return err
		}
		switch here := cmd.Annotations[runsHere] != ""; {
		case here && a.shared != nil:
			return cli.Usagef("no daemon runs %s", cmd.CommandPath())
		case !here && a.shared == nil:
			if done, err := c.forward(); done {
				return err
			}
		}
		err := fn(c)
		if errors.Is(err, errServed) { // nothing was done yet
			if done, err := c.forward(); done {
				return err
			}
		}
		return c.explain(cli.Flushed(c.out, err))
	}
}

// checkDriver refuses a name that no driver has, also where a daemon has the store.
func checkDriver(name string) error {
	if name+":" == zfsPrefix || strings.HasPrefix(name, zfsPrefix) || slices.Contains(driverNames, name) {
		return nil
	}
	return cli.Usagef("there is no driver %q; there are %s and zfs:DATASET", name, strings.Join(driverNames, ", "))
}

// noEmptyFlags refuses flags that are given with nothing, as by a variable that is not set: they would mean the same as
// if they were not given.
func noEmptyFlags(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		if f.Value.Type() == "string" && f.Value.String() == "" || isList && slices.Contains(list.GetSlice(), "") {
			err = cli.Usagef("--%s is empty; give a value, or leave the flag out", f.Name)
		}
	})
	return err
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
		if userns.RunningInUserNS() { // others are the machine's root's
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
	return nil, checkDriver(name)
}

// defaultDriver is that of a new store.
func defaultDriver() string {
	if os.Geteuid() == 0 {
		return "overlay"
	}
	return "copy"
}

// runDir is the directory of the manager of mounts.
func (a *app) runDir() (string, error) {
	if a.run != "" {
		return filepath.Abs(a.run)
	}
	root, err := a.absRoot()
	if err == nil && userns.RunningInUserNS() { // /run is not its own
		return filepath.Join(root, "run"), nil
	}
	if err != nil || root == DefaultRoot {
		return mount.DefaultDirectory, err
	}
	return fmt.Sprintf("%s-%x", mount.DefaultDirectory, sha256.Sum256([]byte(root)))[:len(mount.DefaultDirectory)+17], nil
}

// removeRun removes the directory of the manager of mounts if it is this store's alone and has nothing in it.
func (c *call) removeRun() error {
	dir, err := c.runDir()
	if err != nil || c.run != "" || userns.RunningInUserNS() || dir == mount.DefaultDirectory {
		return err
	}
	return mount.RemoveDirectory(dir)
}

// openMounts opens the manager of mounts of a store. The caller closes it.
func (c *call) openMounts() (*mount.Manager, error) {
	o, err := c.mountOptions()
	if err != nil {
		return nil, err
	}
	return mount.Open(c.ctx, o)
}

// mountOptions are those of the manager of mounts; the store is the first that it keeps.
func (c *call) mountOptions() (o mount.Options, err error) {
	root, err := c.absRoot()
	if err != nil {
		return o, err
	}
	dir, err := c.runDir()
	return mount.Options{Directory: dir, Keep: []string{root}, Logger: c.logger(), Mounters: mounters}, err
}

// mounters mount what the kernel does not know. Only tests set them.
var mounters map[string]mount.Mounter

// find looks for a snapshot by its name, or by the beginning of the one name that begins so; of a
// digest the algorithm may be left out.
func (c *call) find(t *snapshot.Namespace, name string) (snapshot.Info, error) {
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

// complete has a function offer values of a flag. Nobody asks a daemon, which would keep that for ever: cobra has them in a variable.
func (a *app) complete(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if a.shared == nil {
		_ = cmd.RegisterFlagCompletionFunc(flag, fn) // a flag that is there
	}
}

// completeSnapshots offers the names of snapshots for the argument that has that many before it; -1: for all.
func (a *app) completeSnapshots(before int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
		if before >= 0 && len(args) != before {
			return nil, cobra.ShellCompDirectiveDefault
		}
		c := &call{app: a, ctx: context.Background(), cmd: cmd}
		// An error cannot be told here; running the command tells.
		err := c.withStore(false, func(t *snapshot.Namespace) error {
			return t.Walk(c.ctx, func(i snapshot.Info) error {
				if strings.HasPrefix(i.Name, begun) && len(names) < 1000 {
					names = append(names, i.Name)
				}
				return nil
			})
		})
		if errors.Is(err, errServed) {
			var all []struct{ Name string }
			_ = c.ask(&all, "snapshot", "ls", "--json", "--namespace="+cmp.Or(c.namespace, DefaultNamespace))
			for _, one := range all {
				if strings.HasPrefix(one.Name, begun) && len(names) < 1000 {
					names = append(names, one.Name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
