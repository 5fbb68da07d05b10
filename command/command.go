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
	"context"
	"errors"

	"github.com/spf13/cobra"

	"holdfast/command/bench"
	"holdfast/command/blobcmd"
	"holdfast/command/cli"
	"holdfast/command/inspect"
	"holdfast/command/pages"
	"holdfast/command/repair"
	"holdfast/command/transfer"
)

const rootHelp = `holdfast works on database files of bbolt and Holdfast.

Commands that only read share the file with other readers and change no byte of
it. While a program has the file open for writing they read it through that program, if it is
on Holdfast and was started with HOLDFAST_SHARE=on in its environment; "compact -o" then makes a
backup. Otherwise no other can open the file, and while one reads it no other can write it: stop that
program first. A copy of a file in use by other means is whole only if it is a snapshot of the disk.

Exit codes: 0 done, 1 the operation failed, 2 the command line is wrong, 3 check,
doctor, blob check or surgery meta validate found damage, or salvage could not save
everything, 130 ended by Ctrl-C (128 and the number of any other signal). Of diff: 0 the same, 1 different, 2 any error.

Sizes are numbers of bytes, or have a unit such as 64KiB or 1GiB; durations are numbers
of seconds, or have a unit such as 500ms, 90s, 5m or 7d.

With --json an error is a line of JSON on standard error.

Colours are used on a terminal only, and not if NO_COLOR is set.`

// NewRootCommand makes the holdfast command with all that is below it, and with what more makes: commands whose libraries
// programs that embed these need not depend on.
func NewRootCommand(more ...func(*cli.App) *cobra.Command) *cobra.Command {
	a := &cli.App{}
	root := a.NewRoot("holdfast", "Look into, check and mend bbolt database files")
	root.Long = rootHelp
	root.Version = version()
	root.SilenceErrors = true
	root.SilenceUsage = true
	addCommands(a, root)
	for _, newCommand := range more {
		root.AddCommand(newCommand(a))
	}
	a.CompleteBuckets(root)
	a.CompleteShells(root)
	cli.NameArguments(root)
	cli.PlainErrors(root)
	return root
}

// NewBboltCommand makes the bbolt command: the commands that bbolt has too,
// with its flags, its order of arguments and the lines that scripts read, and
// those that it lacks as holdfast has them, without those for Holdfast itself.
func NewBboltCommand() *cobra.Command {
	a := &cli.App{Stock: true}
	root := a.NewRoot("bbolt", "Look into and check bbolt database files")
	root.Version = bboltVersion
	root.SilenceUsage = true
	addCommands(a, root)
	a.CompleteBuckets(root)
	a.CompleteShells(root)
	return root
}

// addCommands adds the commands of all packages.
func addCommands(a *cli.App, root *cobra.Command) {
	for _, commands := range [][]*cobra.Command{
		inspect.Commands(a), pages.Commands(a), transfer.Commands(a), repair.Commands(a), bench.Commands(a),
	} {
		root.AddCommand(commands...)
	}
	if !a.Stock {
		root.AddCommand(blobcmd.NewCommand(a), newMan(a))
	}
	root.AddCommand(newVersion(a))
}

// Execute runs root, prints its error to its error output, unless root leaves
// that to cobra, and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command) int {
	started := false
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		started = true
		cli.PrepareCompletion(root, cmd)
	}
	cmd, err := cli.Run(ctx, root)
	if err == nil {
		return cli.ExitOK
	}
	if !started && !cli.IsOutput(err) {
		if root.SilenceErrors {
			err = cli.PlainUnknown(root, err)
		}
		err = &cli.UsageError{Err: err}
	}
	if (root.SilenceErrors || started && cli.WantsJSON(root) || !started && cli.IsOutput(err)) && !errors.Is(err, cli.ErrDifferent) && !errors.Is(err, cli.ErrSilent) {
		cli.FailureOf(err).Print(root, cmd)
	}
	return cli.ExitCode(err)
}
