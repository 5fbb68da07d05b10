package command

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"holdfast"
)

// demo is one run of the demo command.
type demo struct {
	*call
	ctx   context.Context
	flags demoFlags
	bytes int64
	r     demoReport
}

// run makes both databases, measures, and prints each part when it is done.
func (d *demo) run() error {
	aged, young := filepath.Join(d.r.Dir, "aged.db"), filepath.Join(d.r.Dir, "young.db")
	if err := d.make(aged, young); err != nil {
		return err
	}
	if err := d.openBoth(aged, young); err != nil {
		return err
	}
	if err := d.grow(filepath.Join(d.r.Dir, "growing.db")); err != nil {
		return err
	}
	verdict, err := d.examine(aged)
	if err != nil {
		return err
	}
	d.r.Verdict = verdict
	if d.flags.keep {
		d.r.KeptFile = aged
	}
	if d.json {
		return nil
	}
	d.say("\n%s", d.paint(bold, "What `holdfast doctor` says of the aged file"))
	d.printDoctor(verdict)
	if d.flags.keep {
		d.say("\nThe files are in %s", d.r.Dir)
	} else {
		d.say("\nThe files are removed now; --keep keeps them.")
	}
	return nil
}

// make writes the two databases.
func (d *demo) make(aged, young string) error {
	stop := d.progress("writing and deleting "+size(d.bytes), 0, nil)
	defer stop()
	start := time.Now()
	d.r.Values = int(d.bytes / demoValueBytes)
	if err := makeAged(d.ctx, aged, d.r.Values); err != nil {
		return err
	}
	d.r.FillMS = time.Since(start).Milliseconds()
	return makeYoung(young)
}

// openBoth times the opening of both databases and then the commits on them,
// in turns.
func (d *demo) openBoth(aged, young string) error {
	a, err := openTimed(aged, &d.r.Aged)
	if err != nil {
		return err
	}
	defer a.Close()
	y, err := openTimed(young, &d.r.Young)
	if err != nil {
		return err
	}
	defer y.Close()
	d.say("%s: %s values of %d bytes written and deleted again (%.1f s), %d keys left", d.paint(bold, "Aged file"),
		count(d.r.Values), demoValueBytes, float64(d.r.FillMS)/1000, demoKeys)
	d.say("%s: the same %d keys and nothing else", d.paint(bold, "Young file"), demoKeys)
	if err := d.commits(a, y); err != nil {
		return err
	}
	d.printStores()
	if err := a.Close(); err != nil {
		return err
	}
	return y.Close()
}

// flushEvery is the number of pairs of commits to one bare flush.
const flushEvery = 8

// commits measures commits on both databases and bare flushes, in turns, so
// that what else goes on on the machine meets all of them alike.
func (d *demo) commits(a, y *holdfast.DB) error {
	runtime.GC() // what writing the aged file left behind is not to be paid for here
	flush, err := newFlushMeter(filepath.Join(d.r.Dir, "flush"))
	if err != nil {
		return err
	}
	aged, young := &commitMeter{db: a}, &commitMeter{db: y}
	turns := []*commitMeter{young, aged}
	for n, start := 0, time.Now(); n == 0 || time.Since(start) < d.flags.time; n++ {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		for _, m := range turns {
			if err := m.commit(); err != nil {
				return err
			}
		}
		slices.Reverse(turns) // so that neither always comes first
		if n%flushEvery == 0 {
			if err := flush.flush(); err != nil {
				return err
			}
		}
	}
	aged.report(&d.r.Aged)
	young.report(&d.r.Young)
	d.r.FlushUS, err = flush.median()
	return err
}

func (d *demo) printStores() {
	a, y := &d.r.Aged, &d.r.Young
	row := func(name string, value func(*demoStore) string) []string {
		return []string{"  " + name, value(y), value(a)}
	}
	d.say("")
	d.table(
		[]string{"", "young", "aged"},
		row("file", func(s *demoStore) string { return size(s.SizeBytes) }),
		row("free pages", func(s *demoStore) string { return count(s.FreePages) }),
		row("open, median", func(s *demoStore) string { return micros(s.OpenUS) }),
		row("bytes written by a one-key commit", func(s *demoStore) string {
			if s.BytesPerCommit == nil {
				return "not measured here"
			}
			return count(int64(*s.BytesPerCommit + 0.5))
		}),
		row("one-key commit, median", func(s *demoStore) string { return micros(s.CommitMidUS) }),
		row("one-key commit, p99", func(s *demoStore) string { return micros(s.CommitP99US) }),
		row("commits a second, by the median", func(s *demoStore) string { return count(int64(s.CommitsPerSec)) }))
	if d.r.InMemory {
		d.say("  %s commits each, in turns. Nothing was flushed to a disk: %s is in memory (tmpfs); --dir gives another place.",
			count(a.Commits), filepath.Dir(d.r.Dir))
		return
	}
	d.say("  %s commits each, in turns, every one flushed to the disk; to write and flush a page takes %s here by itself.",
		count(a.Commits), micros(d.r.FlushUS))
}

// grow measures a writer that makes the file grow, and short readers beside it,
// without and with another reader that stays open.
func (d *demo) grow(path string) error {
	for _, held := range []bool{false, true} {
		g, err := growth(d.ctx, path, held, d.flags.time/2)
		if err != nil {
			return err
		}
		d.r.Growing = append(d.r.Growing, g)
	}
	d.say("\n%s", d.paint(bold, "A file that grows while it is read"))
	lines := [][]string{{"", "grown by", "commit median", "commit worst", "read median", "read p99", "read worst"}}
	for _, g := range d.r.Growing {
		name := "  no reader stays open"
		if g.ReaderHeld {
			name = "  a reader stays open"
		}
		lines = append(lines, []string{name, size(g.GrownBytes), micros(g.CommitMidUS), micros(g.CommitMaxUS),
			micros(g.ReadMidUS), micros(g.ReadP99US), micros(g.ReadMaxUS)})
	}
	d.table(lines...)
	return nil
}
