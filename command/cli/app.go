package cli

import (
	"bufio"
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/blob"
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
	ExitInterrupted = ExitSignal + int(syscall.SIGINT) // by Ctrl-C
)

// defaultTimeout is how long opening a file waits for another process's lock.
const defaultTimeout = time.Second

// App is what the commands of one root have in common.
type App struct {
	Stock   bool // in bbolt's shape
	JSON    bool
	Timeout time.Duration
	Quiet   bool // what is noted of files is left out

	keyFile string    // of the key of encrypted stores, as a flag gives it
	key     *blob.Key // as it was read

	root     *cobra.Command
	noted    map[string]bool // what Note has said
	catching context.Context // ends when the process is asked to end; nil: such a signal ends the process at once
}

// NewRoot makes the command above all others, with the flags that all have.
func (a *App) NewRoot(name, short string) *cobra.Command {
	root := &cobra.Command{Use: name, Short: short}
	a.root = root
	flags := root.PersistentFlags()
	flags.BoolVar(&a.JSON, "json", false, "print JSON with stable field names")
	DurationVar(flags, &a.Timeout, "timeout", defaultTimeout, "how long to wait for a file that another process has locked; 0: for ever")
	return root
}

// Note tells, once, what there is to know of a file besides what the command prints.
func (a *App) Note(file, what string) {
	line := fmt.Sprintf("%s: note: %s\n", OneLine(file), what)
	if a.Quiet || a.root == nil || a.noted[line] {
		return
	}
	if a.noted == nil {
		a.noted = map[string]bool{}
	}
	a.noted[line] = true
	fmt.Fprint(a.root.ErrOrStderr(), line)
}

// Call is one run of a command.
type Call struct {
	*App
	Ctx  context.Context
	Cmd  *cobra.Command
	Args []string
	Out  *bufio.Writer // standard output, flushed when the command has ended

	Made   string          // the file that the command has written or changed, for good; "": none yet
	ending context.Context // the last one that was catching; nil: there was none
}

// Action makes what cobra runs of fn.
func (a *App) Action(fn func(*Call) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c := &Call{App: a, Ctx: cmd.Context(), Cmd: cmd, Args: args, Out: bufio.NewWriter(Output{W: cmd.OutOrStdout()})}
		if c.Ctx == nil {
			c.Ctx = context.Background()
		}
		err := c.emptyFlags()
		if err == nil {
			err = c.withMade(Flushed(c.Out, fn(c)))
		}
		if c.ending != nil {
			err = InterruptedBy(c.ending, err)
		}
		if a.JSON {
			cmd.SilenceErrors, cmd.SilenceUsage = true, true // Execute prints them
		}
		return err
	}
}

// named are flags whose value names something.
var named = []string{"into", "name", "resume", "output", "input", "value-file", "store", "expect", "blob-columns", "key-column", "value-column",
	"to", "to-store", "from", "from-store", "exec", "lease", "key-file"}

// emptyFlags is an error of the command line if one of named was given without a name, as by a variable of a shell
// that is not set: that is not as if it were not given.
func (c *Call) emptyFlags() error {
	for _, name := range named {
		if f := c.Cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return Usagef("--%s is given with an empty value", name)
		}
	}
	return nil
}

// Comparison is an action that tells whether two things are the same, with the exit codes of diff.
func (a *App) Comparison(compare func(*Call) (same bool, err error)) func(*cobra.Command, []string) error {
	return a.Action(func(c *Call) error {
		same, err := compare(c)
		if err == nil {
			err = c.Out.Flush()
		}
		switch {
		case err != nil && !IsClosedPipe(err):
			return &troubleError{err}
		case err != nil || same:
			return err
		}
		c.Cmd.SilenceErrors = true // the lines have said it
		return ErrDifferent
	})
}

// ErrDifferent is returned by diff when the databases differ.
var ErrDifferent = fmt.Errorf("the databases differ")

// troubleError is an error of diff, which has the exit code 1 for something else.
type troubleError struct{ err error }

func (e *troubleError) Error() string { return e.err.Error() }

func (e *troubleError) Unwrap() error { return e.err }

// Group is a command that only has others below it.
func Group(name, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return UnknownCommand(cmd, args[0])
		},
	}
}
