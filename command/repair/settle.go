package repair

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const settleHelp = `Make the newest state of a database the one that bbolt finds: to be run before
going back to bbolt after a crash, or on a snapshot of a file that was in use.

Holdfast commits with one flush. Until the file is closed, synced, or has seen no
commit for a second, bbolt would open the state before the last flush. Holdfast itself
always finds the newest state, and its next opening for writing does what this
command does.

The meta pages are written, and nothing else; where there is nothing to do, not even
these. If the command is interrupted, run it again.`

type settleReport struct {
	File string `json:"file"`
	cli.StateReport
	Settled bool `json:"settled"` // something was written
}

func newSettle(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "settle FILE",
		Short: "Make bbolt find the newest state, after a crash",
		Long:  settleHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(runSettle),
	}
}

func runSettle(c *cli.Call) error {
	path := c.Args[0]
	if _, err := c.Look(path); err != nil {
		return err
	}
	found, err := holdfast.Settle(path, holdfast.SettleOptions{Timeout: c.Timeout})
	if err != nil {
		return c.Explain(path, err)
	}
	r := &settleReport{File: path, StateReport: cli.NewStateReport(found), Settled: found.BboltBehind || found.Unfinished}
	if r.Settled {
		c.Made = path
	}
	if c.JSON {
		return c.PrintJSON(r)
	}
	if r.Unreadable {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: a meta page, or what Holdfast wrote into one, could not be read, and may have named a newer transaction than %d: %s\n", c.Name(), r.Transaction, cli.LastFlush)
	}
	switch {
	case r.BboltBehind:
		fmt.Fprintf(c.Out, "settled: bbolt would have been one flush behind; now it finds transaction %d, %s\n", r.Transaction, r.newest())
	case r.Unfinished:
		fmt.Fprintf(c.Out, "settled: the last flush was not finished, and nothing is left of it; bbolt finds transaction %d, the newest that is whole\n", r.Transaction)
	default:
		fmt.Fprintf(c.Out, "nothing to do: bbolt finds transaction %d, %s\n", r.Transaction, r.newest())
	}
	return nil
}

// newest says which transaction a settled file has.
func (r *settleReport) newest() string {
	if r.Unreadable {
		return "the newest that can be read"
	}
	return "the newest"
}
