package differential

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"holdfast"
	"holdfast/test/soak"
	"holdfast/test/stock/ops"
)

// TestVariants does the same changes in several ways: with other options, cut
// into other transactions, with some done, rolled back and done again, with
// readers that hold old states, with closing and opening in between. Each change
// gives the same result in each of them, and the content is the same in the end.
func TestVariants(t *testing.T) { histories(t, variantsKind) }

var variantsKind = kind{"variants", 20, func(t *testing.T, seed uint64, tally *soak.Tally) {
	h := New(seed, pageSize(seed))
	h.Stock = true // no operation that bbolt does otherwise
	script, results := changes(h)
	dir := t.TempDir()
	for i, f := range []*Follower{Holdfast(), Holdfast(), Holdfast(), Stock()} {
		v := &variant{
			t: t, f: f, tally: tally, script: script, results: results,
			rand: rand.New(rand.NewPCG(seed, uint64(i))),
			name: fmt.Sprintf("seed %d (HOLDFAST_SEED=%[1]d), variant %d, %s", seed, i, f.Name),
			file: filepath.Join(dir, fmt.Sprint(i)),
		}
		h.page = pageSize(v.rand.Uint64())
		v.run(h)
	}
}}

// changes makes up a list of changes, with the results that they have to have.
func changes(h *History) ([]ops.Op, []ops.Result) {
	begin := h.begin(true)
	h.apply(begin)
	t := h.model.txs[begin.Tx]
	var script []ops.Op
	var results []ops.Result
	for range 50 + h.rand.IntN(400) {
		var op ops.Op
		if len(h.queue) > 0 {
			op, h.queue = h.queue[0], h.queue[1:]
		} else {
			op = h.write(begin.Tx, t)
		}
		script, results = append(script, op), append(results, h.apply(op))
	}
	h.queue = nil
	h.apply(ops.Op{Kind: ops.Commit, Tx: begin.Tx})
	return script, results
}

// variant is one way to do the changes.
type variant struct {
	t       *testing.T
	f       *Follower
	tally   *soak.Tally
	script  []ops.Op
	results []ops.Result
	rand    *rand.Rand
	name    string
	file    string

	options ops.Options
	tx      int
	readers []reading
}

// reading is a reading transaction and what it saw at first.
type reading struct {
	tx  int
	saw []byte
}

func (v *variant) do(op ops.Op) ops.Result {
	v.t.Helper()
	v.tally.Add(op.Kind.String())
	op.File = v.file
	got := v.f.Do(op)
	if op.Kind < ops.CreateBucket && got.Err != "" {
		v.t.Fatalf("%s: %s: %s", v.name, describe(op), got.Err)
	}
	return got
}

func (v *variant) run(h *History) {
	v.open(h)
	for from := 0; from < len(v.script); {
		to := min(len(v.script), from+1+v.rand.IntN(1<<v.rand.IntN(9)))
		if v.rand.IntN(5) == 0 {
			v.part(from, to, ops.Rollback)
		}
		v.part(from, to, ops.Commit)
		from = to
		switch v.rand.IntN(8) {
		case 0:
			v.close()
			v.open(h)
		case 1:
			v.tx++
			v.do(ops.Op{Kind: ops.Begin, Tx: v.tx})
			v.readers = append(v.readers, reading{v.tx, v.do(ops.Op{Kind: ops.Dump, Tx: v.tx}).Value})
		}
	}
	v.close()
	r := newRun(v.t, h, v.tally)
	for _, checker := range []*Follower{Stock(), Holdfast()} {
		if leaks := r.inspect(checker, v.file); len(leaks) > 0 && !v.f.Stock {
			v.t.Fatalf("%s: %s finds lost pages %v", v.name, checker.Name, leaks)
		}
	}
}

func (v *variant) open(h *History) {
	v.options = h.options()
	v.options.InitialMmapSize = 1 << 30 // or bbolt's writer would wait for the readers
	v.do(ops.Op{Kind: ops.Open, Options: v.options})
}

// close lets the readers look once more, and closes the database.
func (v *variant) close() {
	v.t.Helper()
	for _, reader := range v.readers {
		if saw := v.do(ops.Op{Kind: ops.Dump, Tx: reader.tx}).Value; !bytes.Equal(saw, reader.saw) {
			v.t.Fatalf("%s: a reader sees something else than at first", v.name)
		}
		v.do(ops.Op{Kind: ops.Rollback, Tx: reader.tx})
	}
	v.readers = nil
	v.do(ops.Op{Kind: ops.Close})
}

// part does some of the changes in one transaction.
func (v *variant) part(from, to int, end ops.Kind) {
	v.t.Helper()
	v.tx++
	tx := v.tx
	v.do(ops.Op{Kind: ops.Begin, Tx: tx, Writable: true})
	for i := from; i < to; i++ {
		op := v.script[i]
		op.Tx = tx
		if d := difference(op, v.results[i], v.do(op), false); d != "" {
			v.t.Fatalf("%s, change %d, %+v: %s: %s", v.name, i, v.options, describe(op), d)
		}
	}
	v.do(ops.Op{Kind: end, Tx: tx})
}

// TestBatchIsUpdate puts the same keys by Update, one after the other, and by
// Batch, many at once: the content is the same.
func TestBatchIsUpdate(t *testing.T) {
	var want []byte
	for i, options := range []struct{ size, writers int }{{0, 1}, {1, 4}, {3, 4}, {1000, 16}} {
		db, err := OpenHoldfast(filepath.Join(t.TempDir(), "db"), ops.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		db.MaxBatchSize = options.size
		var writers sync.WaitGroup
		const keys = 480
		for w := range options.writers {
			writers.Go(func() {
				for k := w; k < keys; k += options.writers {
					put := func(tx *holdfast.Tx) error {
						b, err := tx.CreateBucketIfNotExists(fmt.Append(nil, "b", k%7))
						if err != nil {
							return err
						}
						return b.Put(fmt.Append(nil, "k", k), bytesOfNoise[k:2*k])
					}
					do := db.Batch
					if i == 0 {
						do = db.Update
					}
					if err := do(put); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		f := shared(db)
		f.Do(ops.Op{Kind: ops.Begin, Tx: 1})
		got := f.Do(ops.Op{Kind: ops.Dump, Tx: 1})
		if got.Err != "" {
			t.Fatal(got.Err)
		}
		if want == nil {
			want = got.Value
		}
		if !bytes.Equal(got.Value, want) {
			t.Errorf("%+v: another content than with Update", options)
		}
		if lines := f.Do(ops.Op{Kind: ops.Check, Tx: 1}).Lines; len(lines) > 0 {
			t.Errorf("%+v: %q", options, lines)
		}
		f.Do(ops.Op{Kind: ops.Rollback, Tx: 1})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
