package append

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast"
	"holdfast/test/hook"
)

// appendModel is what a bucket should hold: values, and nested buckets.
type appendModel struct {
	values  map[string]string
	buckets map[string]*appendModel
}

func newAppendModel() *appendModel {
	return &appendModel{values: map[string]string{}, buckets: map[string]*appendModel{}}
}

func (m *appendModel) clone() *appendModel {
	c := &appendModel{values: maps.Clone(m.values), buckets: map[string]*appendModel{}}
	for name, b := range m.buckets {
		c.buckets[name] = b.clone()
	}
	return c
}

func (m *appendModel) keys() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for k := range m.values {
			if !yield(k) {
				return
			}
		}
		for k := range m.buckets {
			if !yield(k) {
				return
			}
		}
	})
}

// compare fails unless b holds what the model says, forwards, backwards and by key.
func (m *appendModel) compare(b *holdfast.Bucket) error {
	keys := m.keys()
	i := 0
	for k, v := range b.All() {
		if i == len(keys) || string(k) != keys[i] {
			return fmt.Errorf("key %d is %q", i, k)
		}
		if want, ok := m.values[keys[i]]; ok != (v != nil) || ok && want != string(v) {
			return fmt.Errorf("the value of %q has %d bytes, want %d", k, len(v), len(want))
		}
		i++
	}
	if i != len(keys) {
		return fmt.Errorf("%d keys, want %d: %w", i, len(keys), b.Tx().Err())
	}
	for k := range b.Backward() {
		if i--; i < 0 || string(k) != keys[i] {
			return fmt.Errorf("backwards, key %d is %q", i, k)
		}
	}
	for k, v := range m.values {
		if got := b.Get([]byte(k)); string(got) != v {
			return fmt.Errorf("%q has %d bytes, want %d", k, len(got), len(v))
		}
	}
	for name, nested := range m.buckets {
		child := b.Bucket([]byte(name))
		if child == nil {
			return fmt.Errorf("no bucket %q", name)
		}
		if err := nested.compare(child); err != nil {
			return fmt.Errorf("in %q: %w", name, err)
		}
	}
	return nil
}

// appendHistory is a random history of transactions that append and do other things.
type appendHistory struct {
	t     *testing.T
	rng   *rand.Rand
	db    *holdfast.DB
	root  *appendModel
	lent  []lentValue // that the transaction has read
	named int

	spills bool     // transactions are written early
	put    [][]byte // values given to Put since then
	quiet  bool     // they read nothing but at their end
	dense  bool     // leaves are shared out
}

// lentValue is a value as Get gave it, and a copy.
type lentValue struct {
	value []byte
	copy  string
}

func (h *appendHistory) size() int {
	switch h.rng.IntN(4) {
	case 0:
		return h.rng.IntN(20)
	case 1:
		return h.rng.IntN(600)
	case 2:
		return 1024 - 60 + h.rng.IntN(120)
	}
	return h.rng.IntN(6000)
}

func (h *appendHistory) value() []byte {
	h.named++
	return []byte(strings.Repeat(fmt.Sprintf("%x.", h.named), 3000)[:h.size()])
}

func pick[V any](rng *rand.Rand, m map[string]V) (string, bool) {
	if len(m) == 0 {
		return "", false
	}
	return slices.Sorted(maps.Keys(m))[rng.IntN(len(m))], true
}

// bucket is a bucket at any depth, and its model.
func (h *appendHistory) bucket(tx *holdfast.Tx, root *appendModel) (*holdfast.Bucket, *appendModel) {
	var b *holdfast.Bucket
	m := root
	for {
		name, ok := pick(h.rng, m.buckets)
		if !ok || b != nil && h.rng.IntN(3) > 0 {
			return b, m
		}
		m = m.buckets[name]
		if b == nil {
			b = tx.Bucket([]byte(name))
		} else {
			b = b.Bucket([]byte(name))
		}
		if b == nil {
			h.t.Fatalf("bucket %q is not there: %v", name, tx.Err())
		}
		if h.dense {
			hook.Bucket(b).SetDense()
		}
	}
}

// behind is a key behind all of m.
func (h *appendHistory) behind(m *appendModel) []byte {
	last := ""
	if keys := m.keys(); len(keys) > 0 {
		last = keys[len(keys)-1]
	}
	n := 0
	_, _ = fmt.Sscanf(last, "%08d", &n)
	return fmt.Appendf(nil, "%08d%s", n+1+h.rng.IntN(3), strings.Repeat("k", h.rng.IntN(3)*h.rng.IntN(60)))
}

func (h *appendHistory) append(b *holdfast.Bucket, m *appendModel) error {
	for range 1 + h.rng.IntN(30) {
		k, v := h.behind(m), h.value()
		m.values[string(k)] = string(v)
		if err := b.Append(k, v); err != nil {
			return err
		}
		for i := range v {
			v[i] = '!'
		}
		clear(k)
		if h.rng.IntN(20) == 0 {
			key := slices.Sorted(maps.Keys(m.values))[h.rng.IntN(len(m.values))]
			if err := b.Append([]byte(key), nil); !errors.Is(err, holdfast.ErrUnordered) {
				return fmt.Errorf("append of %q, which is there: %v", key, err)
			}
		}
	}
	return nil
}

// act does one thing to a bucket.
func (h *appendHistory) act(tx *holdfast.Tx, root *appendModel) error {
	b, m := h.bucket(tx, root)
	if b == nil || h.rng.IntN(25) == 0 {
		name := h.behind(root)
		root.buckets[string(name)] = newAppendModel()
		b, err := tx.CreateBucket(name)
		if err == nil && h.rng.IntN(3) == 0 {
			b.FillPercent = []float64{0.1, 0.3, 0.9, 1}[h.rng.IntN(4)]
		}
		return err
	}
	switch h.rng.IntN(12) {
	case 0, 1, 2, 3, 4:
		return h.append(b, m)
	case 5:
		for range h.rng.IntN(8) {
			k, v := fmt.Appendf(nil, "%08d", h.rng.IntN(400)), h.value()
			if m.buckets[string(k)] != nil {
				continue
			}
			m.values[string(k)] = string(v)
			h.put = append(h.put, v)
			if err := b.Put(k, v); err != nil {
				return err
			}
		}
	case 6:
		n := h.rng.IntN(1 + len(m.values))
		switch h.rng.IntN(6) {
		case 0: // it becomes small
			n = max(0, len(m.values)-1-h.rng.IntN(2))
		case 1, 2, 3:
			n = min(n, 5)
		}
		for range n {
			k, _ := pick(h.rng, m.values)
			delete(m.values, k)
			if err := b.Delete([]byte(k)); err != nil {
				return err
			}
		}
	case 7:
		if h.quiet {
			return nil
		}
		c := b.Cursor()
		if k, _ := c.Seek([]byte("~~")); k != nil {
			return fmt.Errorf("%q is behind all", k)
		}
		if k, v := c.Prev(); v != nil {
			h.lent = append(h.lent, lentValue{k, string(k)}, lentValue{v, string(v)})
		}
		for range h.rng.IntN(8) {
			if k, ok := pick(h.rng, m.values); ok {
				v := b.Get([]byte(k))
				if string(v) != m.values[k] {
					return fmt.Errorf("%q has %d bytes, want %d", k, len(v), len(m.values[k]))
				}
				h.lent = append(h.lent, lentValue{v, string(v)})
			}
		}
	case 8:
		name := h.behind(m)
		m.buckets[string(name)] = newAppendModel()
		_, err := b.CreateBucket(name)
		return err
	case 9:
		if name, ok := pick(h.rng, m.buckets); ok {
			delete(m.buckets, name)
			return b.DeleteBucket([]byte(name))
		}
	case 10:
		if name, ok := pick(h.rng, m.buckets); ok && root.buckets[name] == nil {
			child := b.Bucket([]byte(name))
			if h.rng.IntN(2) == 0 {
				if err := child.Append([]byte("~"), make([]byte, h.size())); err != nil {
					return err
				}
				if err := child.Delete([]byte("~")); err != nil {
					return err
				}
			}
			moved := m.buckets[name]
			delete(m.buckets, name)
			if err := tx.MoveBucket([]byte(name), b, nil); err != nil {
				return err
			}
			root.buckets[name] = moved
		}
	case 11:
		if b.Stats(); h.quiet {
			return nil
		}
		c := b.Cursor()
		if keys := m.keys(); len(keys) > 0 {
			if k, _ := c.Last(); string(k) != keys[len(keys)-1] {
				return fmt.Errorf("the last key is %q, want %q", k, keys[len(keys)-1])
			}
			if _, ok := m.values[keys[len(keys)-1]]; ok {
				delete(m.values, keys[len(keys)-1])
				return c.Delete()
			}
		}
	}
	return nil
}

// transaction is one, with some acts.
func (h *appendHistory) transaction() error {
	tx, err := h.db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	root := h.root.clone()
	h.lent = nil
	for range 1 + h.rng.IntN(20) {
		if err := h.act(tx, root); err != nil {
			return err
		}
		if h.spills && h.rng.IntN(3) == 0 {
			done, err := tx.Spill(int64(h.rng.IntN(2)) << h.rng.IntN(20))
			if err != nil {
				return err
			}
			for i := 0; done && h.quiet && i < len(h.put); i++ {
				clear(h.put[i]) // the caller may use them again, unless he has read them
			}
			if done {
				h.put = h.put[:0]
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(root.buckets)) {
		if h.rng.IntN(2) == 0 {
			if err := root.buckets[name].compare(tx.Bucket([]byte(name))); err != nil {
				return fmt.Errorf("before the commit, in %q: %w", name, err)
			}
		}
	}
	for _, l := range h.lent {
		if !bytes.Equal(l.value, []byte(l.copy)) {
			return fmt.Errorf("a value that was read has changed")
		}
	}
	if h.rng.IntN(5) == 0 {
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	h.root = root
	return nil
}

func (h *appendHistory) compare() error {
	return h.db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(h.root.buckets)) {
			if err := h.root.buckets[name].compare(tx.Bucket([]byte(name))); err != nil {
				return fmt.Errorf("in %q: %w", name, err)
			}
		}
		return nil
	})
}

func TestAppendHistories(t *testing.T) {
	seeds := 30
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := &appendHistory{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 5))}
			h.run(25)
		})
	}
}

// TestSpillHistories is TestAppendHistories with transactions that are written early.
func TestSpillHistories(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 16
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := &appendHistory{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 6)), spills: true, quiet: seed%2 == 0, dense: seed%4 < 2}
			h.run(25)
		})
	}
}

func (h *appendHistory) run(rounds int) {
	t := h.t
	h.root = newAppendModel()
	options := &holdfast.Options{PageSize: 1024, NoSeals: h.rng.IntN(5) == 0, StrictCompat: h.rng.IntN(5) == 0, NoSync: h.rng.IntN(5) == 0}
	if !options.StrictCompat && h.rng.IntN(3) == 0 {
		options.Durability = []holdfast.Durability{holdfast.Periodic, holdfast.None}[h.rng.IntN(2)]
	}
	path := filepath.Join(t.TempDir(), "db")
	open := func() {
		var err error
		if h.db, err = holdfast.Open(path, 0o600, options); err != nil {
			t.Fatal(err)
		}
		held := int64(1) << h.rng.IntN(18)
		hook.WriteEarly(h.db, held, int8(1-2*h.rng.IntN(2)))
	}
	open()
	var reader *holdfast.Tx
	defer func() {
		if reader != nil {
			_ = reader.Rollback()
		}
		_ = h.db.Close()
	}()
	for round := range rounds {
		if err := h.transaction(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := h.compare(); err != nil {
			t.Fatalf("behind round %d: %v", round, err)
		}
		switch h.rng.IntN(6) {
		case 0:
			if reader != nil {
				_ = reader.Rollback()
			}
			reader, _ = h.db.Begin(false)
		case 1:
			if reader != nil {
				_ = reader.Rollback()
				reader = nil
			}
			if err := h.db.Close(); err != nil {
				t.Fatal(err)
			}
			open()
			if err := h.compare(); err != nil {
				t.Fatalf("opened again behind round %d: %v", round, err)
			}
		}
	}
}
