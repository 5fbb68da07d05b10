package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/bridge"
)

const watchHelp = `Print what a program that has the database open commits, as it becomes durable.

Each line is a state of the database: its transaction, how many transactions there were since the
line before, and the pages that are new in it and that it has given up. Several transactions between
two looks (--interval) are one line. With --keys the keys follow that were added (+), changed (~)
and removed (-) in all of them; a bucket that was moved is removed and added, with its keys.

The program has to share the database: start it with HOLDFAST_SHARE=on in its environment. While a
state is compared with the next one, the program cannot reuse the pages of both; else of one.
What was committed after the last look is not shown when the program closes the database or ends.
Then the command ends, too; with --follow it waits for the next one that opens it.`

type watchFlags struct {
	keys     bool
	values   bool
	maxKeys  int
	interval time.Duration
	count    int
	follow   bool
}

func newWatch(a *cli.App) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch FILE",
		Short: "Print what a program that has the database open commits",
		Long:  watchHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runWatch(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.keys, "keys", false, "print the keys that were added, changed and removed")
	flags.BoolVar(&f.values, "values", false, "print values, too, cut if they are long; with --keys")
	flags.IntVar(&f.maxKeys, "max-keys", cli.MaxPrinted, "so many keys a line at most; the others are counted")
	cli.DurationVar(flags, &f.interval, "interval", 100*time.Millisecond, "time between two looks")
	flags.IntVar(&f.count, "count", 0, "end after so many lines; 0: on Ctrl-C")
	flags.BoolVar(&f.follow, "follow", false, "wait until a program opens the database, and for the next one when it closes it")
	return cmd
}

func (f *watchFlags) check() error {
	switch {
	case f.values && !f.keys:
		return cli.Usagef("--values is for the keys that are printed: give --keys")
	case f.maxKeys < 0:
		return cli.Usagef("--max-keys is %d; give 0 to count only, or more", f.maxKeys)
	case f.interval < time.Millisecond:
		return cli.Usagef("--interval is %s; give 1ms or more", f.interval)
	case f.count < 0:
		return cli.Usagef("--count is %d; give 0 for no end, or more", f.count)
	}
	return nil
}

// watcher watches one database.
type watcher struct {
	*cli.Call
	f     watchFlags
	ctx   context.Context
	file  string
	print watchPrinter

	db    *cli.Database
	owner string       // the process that has it open
	shown *holdfast.Tx // of the state last printed, or begun with
	next  *holdfast.Tx // of a later one that is not durable yet; nil: there is none
	looks int          // since next was begun
	lines int
}

func runWatch(c *cli.Call, f watchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if !f.follow {
		if _, err := c.Look(c.Args[0]); err != nil {
			return err
		}
	}
	ctx, stop := c.Interruptible()
	defer stop()
	w := &watcher{Call: c, f: f, ctx: ctx, file: c.Args[0], print: watchPrinter{Call: c, f: f}}
	err := w.run()
	w.close()
	return err
}

// run watches one owner after the other.
func (w *watcher) run() error {
	for told := false; ; {
		err := w.open()
		switch {
		case err == nil:
			told = false
			if err = w.watch(); err == nil {
				return nil // enough lines
			}
			w.close()
			if !isGone(err) {
				return w.explain(err)
			}
			w.say("%s has closed it, or has ended; transaction %d is the last one shown", w.owner, w.print.last)
			if !w.f.follow {
				return nil
			}
		case !w.f.follow || !isGone(err) && !errors.Is(err, fs.ErrNotExist):
			return w.explain(err)
		}
		if !told {
			told = true
			w.say("waiting for a program that opens it")
		}
		if err := w.pause(); err != nil {
			return err
		}
	}
}

// isGone tells whether err says that no process shares the database any more, or yet.
func isGone(err error) bool {
	return errors.Is(err, holdfast.ErrOwnerGone) || errors.Is(err, holdfast.ErrNotShared)
}

// say tells what is no line of the output.
func (w *watcher) say(format string, args ...any) {
	fmt.Fprintf(w.Cmd.ErrOrStderr(), "%s: %s\n", cli.OneLine(w.file), fmt.Sprintf(format, args...))
}

func (w *watcher) explain(err error) error {
	e := &cli.FileError{File: w.file, Err: err}
	switch {
	case errors.Is(err, holdfast.ErrNotShared):
		e.What = "no program has it open and shares it"
		e.Next = "start the program with HOLDFAST_SHARE=on in its environment, and give watch the same (if it has that, its log says why it does not share); or wait for it with --follow"
	case errors.Is(err, errors.ErrUnsupported):
		e.What = "what another program commits can be watched on Linux only"
	default:
		if dir, failed := cli.ShareDir("", w.file); failed == nil && isIn(dir, err) {
			return shareError(w.Call, dir, w.file, err)
		}
		return w.Explain(w.file, err)
	}
	return e
}

// isIn tells whether err is of a file in dir, or of dir.
func isIn(dir string, err error) bool {
	var of *fs.PathError
	return errors.As(err, &of) && (of.Path == dir || filepath.Dir(of.Path) == dir)
}

// pause waits until the next look.
func (w *watcher) pause() error {
	timer := time.NewTimer(w.f.interval)
	defer timer.Stop()
	select {
	case <-w.ctx.Done():
		return errors.Join(cli.ErrSilent, w.ctx.Err())
	case <-timer.C:
		return nil
	}
}

// open opens the database through its owner, and begins with its state.
func (w *watcher) open() (err error) {
	if w.db, err = w.ReadShared(w.file); err != nil {
		return err
	}
	pid, _ := w.db.SharedBy()
	w.owner = cli.Process(pid)
	if err = w.begin(); err != nil {
		w.close()
		return err
	}
	w.say("watching from transaction %d", w.print.last)
	return nil
}

// begin begins with the owner's newest state.
func (w *watcher) begin() (err error) {
	if w.shown, err = w.db.Begin(false); err == nil {
		w.print.last = w.shown.ID()
	}
	return err
}

// drop lets the states go.
func (w *watcher) drop() {
	for _, tx := range []**holdfast.Tx{&w.shown, &w.next} {
		if *tx != nil {
			_ = (*tx).Rollback() // what was read in it was confirmed, or is not used
			*tx = nil
		}
	}
}

func (w *watcher) close() {
	w.drop()
	if w.db != nil {
		_ = w.db.Close() // it was only read
		w.db = nil
	}
}

// watch prints what the owner commits. It returns nil once there are enough lines.
func (w *watcher) watch() error {
	for {
		if err := w.look(); err != nil {
			if err = w.again(err); err != nil {
				return err
			}
		}
		if w.f.count > 0 && w.lines >= w.f.count {
			return nil
		}
		if err := w.pause(); err != nil {
			return err
		}
	}
}

// again begins anew if err says that the states that are held count no more and others do.
func (w *watcher) again(err error) error {
	ended := errors.Is(err, holdfast.ErrReaderEnded)
	if !ended && !errors.Is(err, holdfast.ErrStopped) {
		return err
	}
	last := w.print.last
	w.drop()
	if err := w.begin(); err != nil {
		return err
	}
	switch {
	case ended && last == w.print.last:
		w.say("the reader was ended from outside; nothing was committed meanwhile")
	case ended:
		w.say("the reader was ended from outside: what was committed after transaction %d, up to transaction %d, is not shown", last, w.print.last)
	default:
		w.say("writing has stopped, and transactions were lost; watching goes on from transaction %d", w.print.last)
	}
	return nil
}

// looksForNote is how many looks a state may not be durable before that is said.
const looksForNote = 50

// look prints what has become durable.
func (w *watcher) look() error {
	for range 2 { // a state that was waited for, and what came after it
		newest, durable, err := w.newest()
		if err != nil {
			return err
		}
		if w.next == nil {
			if newest <= w.shown.ID() {
				return nil
			}
			if w.next, err = w.db.Begin(false); err != nil {
				return err
			}
			w.looks = 0
			if _, durable, err = w.newest(); err != nil {
				return err
			}
		}
		if durable < w.next.ID() {
			if w.looks++; w.looks == looksForNote {
				w.say("transaction %d is not durable yet; it is shown once the program has flushed it", w.next.ID())
			}
			return nil
		}
		if err := w.show(); err != nil {
			return err
		}
		if w.f.count > 0 && w.lines >= w.f.count {
			return nil
		}
	}
	return nil
}

// newest is the newest transaction, and the newest durable one, of an owner who lives and lets the states be read.
func (w *watcher) newest() (newest, durable int, err error) {
	newest, durable, err = bridge.Newest(w.shown)
	for _, tx := range []*holdfast.Tx{w.shown, w.next} {
		if tx != nil {
			if lost := tx.Err(); lost != nil {
				return 0, 0, lost
			}
		}
	}
	return newest, durable, err
}

// show prints the next state, from which watching goes on. While it prints it holds that one only.
func (w *watcher) show() error {
	c, err := bridge.Compare(w.ctx, w.shown, w.next)
	if err != nil {
		return w.interrupted(err)
	}
	changes := newWatchChanges(w.f, w.JSON)
	if w.f.keys {
		if err := bridge.CompareKeys(w.ctx, w.shown, w.next, w.f.values, changes.add); err != nil {
			return w.interrupted(err)
		}
	}
	since := w.next.ID() - w.shown.ID()
	_ = w.shown.Rollback() // what was read was confirmed
	w.shown, w.next = w.next, nil
	w.lines++
	if err := w.print.state(w.shown, w.db.Info().PageSize, since, c, changes); err != nil {
		return err
	}
	return w.Out.Flush()
}

// interrupted is err of a comparison that a signal may have ended.
func (w *watcher) interrupted(err error) error {
	if w.ctx.Err() != nil {
		return errors.Join(cli.ErrSilent, w.ctx.Err())
	}
	return err
}
