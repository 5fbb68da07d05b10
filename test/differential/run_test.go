package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// run has followers follow a history.
type run struct {
	t         *testing.T
	h         *History
	followers []*Follower
	files     []string // of each follower
	steps     int
	trace     bool
	leaks     map[string]bool // pages that were lost before the session began
	tally     *soak.Tally     // of the operations
}

func newRun(t *testing.T, h *History, tally *soak.Tally) *run {
	r := &run{t: t, h: h, tally: tally, trace: os.Getenv("HOLDFAST_TRACE") != ""}
	// A hang is ended by the test's timeout, which does not say which seed.
	watchdog := time.AfterFunc(3*time.Minute, func() {
		fmt.Fprintf(os.Stderr, "%s: seed %d does not end\n", t.Name(), h.Seed)
	})
	t.Cleanup(func() { watchdog.Stop() })
	return r
}

func (r *run) follow(f *Follower, file string) {
	r.followers, r.files = append(r.followers, f), append(r.files, file)
}

func (r *run) fatal(f *Follower, op ops.Op, problem string) {
	r.t.Helper()
	r.t.Fatalf("seed %d (HOLDFAST_SEED=%[1]d), step %d, %s:\n%s\n%s", r.h.Seed, r.steps, f.Name, describe(op), problem)
}

// do has all followers do op.
func (r *run) do(op ops.Op) {
	r.t.Helper()
	r.steps++
	r.tally.Add(op.Kind.String())
	if r.trace {
		fmt.Printf("%d: %s\n", r.steps, describe(op))
	}
	want := r.h.apply(op)
	for i, f := range r.followers {
		op.File = r.files[i]
		got := f.Do(op)
		if op.Kind == ops.Check {
			r.verify(f, op, got)
			continue
		}
		if d := difference(op, want, got, f.Stock && r.h.nilPut(op)); d != "" {
			r.fatal(f, op, d+r.contentDifference(f, op))
		}
	}
}

// contentDifference says where a follower's content is not the model's.
func (r *run) contentDifference(f *Follower, op ops.Op) string {
	if op.Kind != ops.Dump {
		return ""
	}
	op.Kind = ops.List
	want, got := r.h.apply(op), f.Do(op)
	for i := range max(len(want.Lines), len(got.Lines)) {
		w, g := at(want.Lines, i), at(got.Lines, i)
		if w != g {
			return fmt.Sprintf("\nelement %d of %d is %s,\nwant, of %d,  %s\n%s", i, len(got.Lines), g, len(want.Lines), w, got.Err)
		}
	}
	return "\n" + got.Err
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}

var lost = regexp.MustCompile(`^page (\d+): unreachable unfreed`)

// verify looks at the faults that a follower's Check found. bbolt is allowed to
// have lost pages, Holdfast to have inherited those of bbolt.
func (r *run) verify(f *Follower, op ops.Op, got ops.Result) map[string]bool {
	r.t.Helper()
	if got.Err != "" {
		r.fatal(f, op, got.Err)
	}
	leaks := map[string]bool{}
	for _, line := range got.Lines {
		m := lost.FindStringSubmatch(line)
		if m == nil {
			r.fatal(f, op, line)
		}
		leaks[m[1]] = true
		if !f.Stock && !r.leaks[m[1]] {
			r.fatal(f, op, line+" (new since the session began)")
		}
	}
	return leaks
}

// session opens the database, runs some transactions and closes it.
func (r *run) session(o ops.Options, transactions int) {
	h := r.h
	holds := h.chance(2)
	if holds && o.InitialMmapSize < 1<<30 {
		o.InitialMmapSize = 1 << 30 // or bbolt's writer would wait for the readers
	}
	h.model.moves = true
	for _, f := range r.followers {
		h.model.moves = h.model.moves && f.Moves
	}
	if len(r.leaks) > 0 {
		o.Strict = false // it would panic about what bbolt has lost
	}
	r.do(ops.Op{Kind: ops.Open, Options: o})
	for range transactions {
		if holds && len(h.readers) < 4 && h.chance(2) {
			r.do(h.begin(false))
		}
		r.transaction()
		for len(h.readers) > 0 && h.chance(3) {
			r.do(h.endReader(h.rand.IntN(len(h.readers))))
		}
		if h.chance(6) {
			r.check()
		}
		if h.chance(25) {
			r.copies()
		}
	}
	for len(h.readers) > 0 {
		r.do(h.endReader(0))
	}
	if h.chance(2) {
		r.check()
	}
	r.do(ops.Op{Kind: ops.Close})
}

// transaction runs a writing transaction, with reads of older ones in between.
func (r *run) transaction() {
	h := r.h
	begin := h.begin(true)
	r.do(begin)
	for n := 1 << h.rand.IntN(8); n > 0 || len(h.queue) > 0; n-- {
		if len(h.queue) == 0 && len(h.readers) > 0 && h.chance(8) {
			tx := h.readers[h.rand.IntN(len(h.readers))]
			for more := true; more; more = len(h.queue) > 0 {
				r.do(h.next(tx))
			}
			continue
		}
		r.do(h.next(begin.Tx))
	}
	if h.chance(10) {
		r.do(h.dump(begin.Tx))
	}
	end := h.endWriter()
	r.do(end)
	if h.chance(10) {
		r.do(end) // the transaction has ended
	}
}

// check checks the structure and all content.
func (r *run) check() {
	begin := r.h.begin(false)
	r.do(begin)
	r.do(ops.Op{Kind: ops.Check, Tx: begin.Tx})
	r.do(r.h.dump(begin.Tx))
	r.do(r.h.endReader(len(r.h.readers) - 1))
}

// copies has the followers write copies of their databases, and looks at them.
func (r *run) copies() {
	begin := r.h.begin(false)
	r.do(begin)
	r.do(ops.Op{Kind: ops.WriteTo, Tx: begin.Tx})
	r.do(r.h.endReader(len(r.h.readers) - 1))
	r.do(ops.Op{Kind: ops.Compact, N: uint64(r.h.rand.IntN(3)) * 10000})
	for i, f := range r.followers {
		for _, suffix := range []string{ops.CopySuffix, ops.CompactSuffix} {
			for _, checker := range []*Follower{Holdfast(), Stock()} {
				leaks := r.inspect(checker, r.files[i]+suffix)
				if len(leaks) > 0 && !f.Stock && (len(r.leaks) == 0 || suffix == ops.CompactSuffix) {
					r.t.Fatalf("seed %d, step %d: in %s of %s, %s finds lost pages %v", r.h.Seed, r.steps, suffix, f.Name, checker.Name, leaks)
				}
			}
			if err := os.Remove(r.files[i] + suffix); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// inspect opens the database for reading with f and checks it. It gives the
// pages that are lost.
func (r *run) inspect(f *Follower, file string) map[string]bool {
	r.t.Helper()
	open := ops.Op{Kind: ops.Open, File: file, Options: ops.Options{ReadOnly: true, PreLoadFreelist: true}}
	if got := f.Do(open); got.Err != "" {
		r.fatal(f, open, got.Err)
	}
	write := ops.Op{Kind: ops.Begin, Tx: -2, Writable: true}
	if got := f.Do(write); got.Err != berrors.ErrDatabaseReadOnly.Error() {
		r.fatal(f, write, "of a read-only database: "+quote(got.Err))
	}
	begin, check, dump := ops.Op{Kind: ops.Begin, Tx: -1}, ops.Op{Kind: ops.Check, Tx: -1}, ops.Op{Kind: ops.Dump, Tx: -1}
	want := r.h.apply(begin)
	if d := difference(begin, want, f.Do(begin), false); d != "" {
		r.fatal(f, begin, d)
	}
	got := f.Do(check)
	leaks := map[string]bool{}
	for _, line := range got.Lines {
		if m := lost.FindStringSubmatch(line); m != nil {
			leaks[m[1]] = true
		} else {
			r.fatal(f, check, line)
		}
	}
	want = r.h.apply(dump)
	if d := difference(dump, want, f.Do(dump), false); d != "" {
		r.fatal(f, dump, d+r.contentDifference(f, dump))
	}
	for _, kind := range []ops.Kind{ops.Rollback, ops.Close} {
		op := ops.Op{Kind: kind, Tx: -1}
		if got := f.Do(op); got.Err != "" {
			r.fatal(f, op, got.Err)
		}
	}
	return leaks
}

// describe is op in a line.
func describe(op ops.Op) string {
	s := fmt.Sprintf("%v tx %d", op.Kind, op.Tx)
	if op.Kind <= ops.Close {
		return fmt.Sprintf("%v %s %+v", op.Kind, filepath.Base(op.File), op.Options)
	}
	if op.Kind >= ops.NewCursor {
		s += fmt.Sprintf(" cursor %d", op.Cursor)
	}
	if op.Path != nil {
		s += " in " + pathText(op.Path)
	}
	if op.Dst != nil {
		s += " to " + pathText(op.Dst)
	}
	if op.Key != nil {
		s += " key " + show(op.Key, true)
	}
	if op.Kind == ops.Put {
		s += fmt.Sprintf(" value of %d bytes, nil %v, fill %v", len(op.Value), op.NilValue, op.Fill)
	}
	if op.N != 0 {
		s += fmt.Sprintf(" n %d", op.N)
	}
	return s
}

func pathText(path []string) string {
	var s []string
	for _, p := range path {
		s = append(s, show([]byte(p), true))
	}
	return strings.Join(s, "/")
}
