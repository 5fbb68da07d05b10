package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
)

const settleHelp = `Make the newest state of a database the one that bbolt finds: to be run before
going back to bbolt after a crash, or on a snapshot of a file that was in use.

Holdfast commits with one flush. Until the file is closed, synced, or has seen no
commit for 50 ms, bbolt would open the state before the last flush. Holdfast itself
always finds the newest state, and its next opening for writing does what this
command does.

The meta pages are written, and nothing else; where there is nothing to do, not even
these. If the command is interrupted, run it again.`

type settleReport struct {
	File string `json:"file"`
	stateReport
	Settled bool `json:"settled"` // something was written
}

// stateReport is what a file says of its newest state.
type stateReport struct {
	Transaction  int  `json:"transaction"`
	Label        int  `json:"txid"` // as bbolt counts
	Slot         int  `json:"slot"`
	BboltBehind  bool `json:"bbolt_behind"`
	Unfinished   bool `json:"last_flush_unfinished"`
	Unreadable   bool `json:"meta_unreadable"`
	Unflushed    bool `json:"unflushed"`
	FreeRecorded bool `json:"free_pages_recorded"`
}

func newStateReport(s holdfast.FileState) stateReport {
	return stateReport{
		Transaction: s.Tx, Label: s.Label, Slot: s.Slot,
		BboltBehind: s.BboltBehind, Unfinished: s.Unfinished, Unreadable: s.Unreadable, Unflushed: s.Unflushed, FreeRecorded: s.FreeRecorded,
	}
}

func (a *app) newSettle() *cobra.Command {
	return &cobra.Command{
		Use:   "settle FILE",
		Short: "Make bbolt find the newest state, after a crash",
		Long:  settleHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.action((*call).settle),
	}
}

func (c *call) settle() error {
	path := c.args[0]
	if _, err := c.look(path); err != nil {
		return err
	}
	found, err := holdfast.Settle(path, holdfast.SettleOptions{Timeout: c.timeout})
	if err != nil {
		return c.explain(path, err)
	}
	r := &settleReport{File: path, stateReport: newStateReport(found), Settled: found.BboltBehind || found.Unfinished}
	if r.Settled {
		c.made = path
	}
	if c.json {
		return c.printJSON(r)
	}
	if r.Unreadable {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: note: a meta page, or what Holdfast wrote into one, could not be read, and may have named a newer transaction than %d: %s\n", c.name(), r.Transaction, lastFlush)
	}
	switch {
	case r.BboltBehind:
		fmt.Fprintf(c.out, "settled: bbolt would have been one flush behind; now it finds transaction %d, %s\n", r.Transaction, r.newest())
	case r.Unfinished:
		fmt.Fprintf(c.out, "settled: the last flush was not finished, and nothing is left of it; bbolt finds transaction %d, the newest that is whole\n", r.Transaction)
	default:
		fmt.Fprintf(c.out, "nothing to do: bbolt finds transaction %d, %s\n", r.Transaction, r.newest())
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
