// Package command holds the commands on database files, so that programs can
// offer them under a command of their own. The holdfast command is
// NewRootCommand; NewBboltCommand has the same commands in the shape of bbolt's,
// for scripts that read its output.
//
// Run either with Execute, which prints errors and returns the exit code.
//
// Commands that only read (info, check, stats, pages, page, page-item, dump, inspect,
// buckets, keys, get, doctor, export, diff) open the file for reading with the lock that
// readers share, and change no byte of it; so do those of blob but for put, rm, gc and
// check --repair. No command but put --create, blob put --create and import --create makes a
// database where there was none, apart from what compact, salvage, surgery and bench write.
package command

import (
	"bufio"
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// Exit codes of the commands.
const (
	ExitOK      = 0 // done
	ExitFailed  = 1 // the operation failed
	ExitUsage   = 2 // the command line is wrong
	ExitDamaged = 3 // check found damage, or salvage a loss

	// diff has exit codes of its own, those of the command that it has its name from.
	ExitDifferent = 1 // the databases differ
	ExitTrouble   = 2 // any error

	// Of what a signal has ended the exit code is 128 and the signal's number.
	ExitInterrupted = cli.ExitSignal + int(syscall.SIGINT) // by Ctrl-C
)

// defaultTimeout is how long opening a file waits for another process's lock.
const defaultTimeout = time.Second

const rootHelp = `holdfast works on database files of bbolt and Holdfast.

Commands that only read share the file with other readers and change no byte of
it. While a program has the file open for writing, no other can open it, and
while one reads it no other can write it: stop that program first. A copy of a file
in use is whole only if the program makes it, or a snapshot of the disk.

Exit codes: 0 done, 1 the operation failed, 2 the command line is wrong, 3 check,
doctor, blob check or surgery meta validate found damage, or salvage could not save
everything, 130 ended by Ctrl-C (128 and the number of any other signal). Of diff: 0 the same, 1 different, 2 any error.

Sizes are numbers of bytes, or have a unit such as 64KiB or 1GiB; durations are numbers
of seconds, or have a unit such as 500ms, 90s, 5m or 7d.

With --json an error is a line of JSON on standard error.

Colours are used on a terminal only, and not if NO_COLOR is set.`

// NewRootCommand makes the holdfast command with all that is below it.
func NewRootCommand() *cobra.Command {
	a := &app{}
	root := a.newRoot("holdfast", "Look into, check and mend bbolt database files")
	root.Long = rootHelp
	root.Version = version()
	root.SilenceErrors = true
	root.SilenceUsage = true
	a.addCommands(root)
	a.completeBuckets(root)
	cli.CompleteValues(root)
	a.completeShells(root)
	cli.NameArguments(root)
	cli.PlainErrors(root)
	return root
}

// NewBboltCommand makes the bbolt command: the commands that bbolt has too,
// with its flags, its order of arguments and the lines that scripts read, and
// those that it lacks as holdfast has them, without those for Holdfast itself.
func NewBboltCommand() *cobra.Command {
	a := &app{stock: true}
	root := a.newRoot("bbolt", "Look into and check bbolt database files")
	root.Version = bboltVersion
	root.SilenceUsage = true
	a.addCommands(root)
	a.completeBuckets(root)
	cli.CompleteValues(root)
	a.completeShells(root)
	return root
}

// addCommands adds the commands of all packages.
func (a *app) addCommands(root *cobra.Command) {
	for _, commands := range [][]*cobra.Command{
		a.inspectCommands(), a.pagesCommands(), a.transferCommands(), a.repairCommands(), a.benchCommands(),
	} {
		root.AddCommand(commands...)
	}
	if !a.stock {
		root.AddCommand(a.newBlob(), a.newMan())
	}
	root.AddCommand(a.newVersion())
}

// app is what the commands of one root have in common.
type app struct {
	stock   bool // in bbolt's shape
	json    bool
	timeout time.Duration

	catching context.Context // ends when the process is asked to end; nil: such a signal ends the process at once
}

func (a *app) newRoot(name, short string) *cobra.Command {
	root := &cobra.Command{Use: name, Short: short}
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print JSON with stable field names")
	cli.DurationVar(flags, &a.timeout, "timeout", defaultTimeout, "how long to wait for a file that another process has locked; 0: for ever")
	return root
}

// call is one run of a command.
type call struct {
	*app
	ctx  context.Context
	cmd  *cobra.Command
	args []string
	out  *bufio.Writer // standard output, flushed when the command has ended

	made   string          // the file that the command has written or changed, for good; "": none yet
	ending context.Context // the last one that was catching; nil: there was none
}

// action makes what cobra runs of fn.
func (a *app) action(fn func(*call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c := &call{app: a, ctx: cmd.Context(), cmd: cmd, args: args, out: bufio.NewWriter(cli.Output{W: cmd.OutOrStdout()})}
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		err := c.emptyFlags()
		if err == nil {
			err = c.withMade(cli.Flushed(c.out, fn(c)))
		}
		if c.ending != nil {
			err = cli.InterruptedBy(c.ending, err)
		}
		if a.json {
			cmd.SilenceErrors, cmd.SilenceUsage = true, true // Execute prints them
		}
		return err
	}
}

// named are flags whose value names something.
var named = []string{"into", "name", "resume", "output", "input", "value-file", "store", "expect", "blob-columns", "key-column", "value-column"}

// emptyFlags is an error of the command line if one of named was given without a name, as by a variable of a shell
// that is not set: that is not as if it were not given.
func (c *call) emptyFlags() error {
	for _, name := range named {
		if f := c.cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return usagef("--%s is given with an empty value", name)
		}
	}
	return nil
}

// Execute runs root, prints its error to its error output, unless root leaves
// that to cobra, and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command) int {
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := cli.Run(ctx, root)
	if err == nil {
		return ExitOK
	}
	if !started && !cli.IsOutput(err) {
		if root.SilenceErrors {
			err = cli.PlainUnknown(root, err)
		}
		err = &usageError{Err: err}
	}
	if (root.SilenceErrors || started && cli.WantsJSON(root) || !started && cli.IsOutput(err)) && !errors.Is(err, ErrDifferent) && !errors.Is(err, errSilent) {
		failureOf(err).Print(root, cmd)
	}
	return ExitCode(err)
}
