package command

import (
	"encoding/binary"
	"errors"
	"time"

	"holdfast"
)

// fillKeys is how many keys a transaction puts that fills a file.
const fillKeys = 1000

// fill measures filling new files with keys and values of 100 bytes, until there are as many bytes
// of values as --size says, or the time is over: without flushes but one at the end, and with
// one for each transaction.
func (s *benchSuite) fill(w *workloadReport) error {
	ways := []struct {
		name, label string
		options     holdfast.Options
		key         func(uint64) uint64
	}{
		{"in_order", "in order", unflushed, ascending},
		{"in_order_durable", "in order, durable", holdfast.Options{}, ascending},
		{"random", "random order", unflushed, scrambled},
	}
	for _, way := range ways {
		err := s.with("import-"+way.name+".db", way.options, func(db *holdfast.DB) error {
			before := db.Stats()
			t, err := s.fillWith(db, way.label, 1/float64(len(ways)), way.key)
			if err != nil {
				return err
			}
			row := w.add(way.name, way.label, t)
			row.amount(t, t.n*fillKeys, t.n*fillKeys*int64(scanValue+len(suiteKey(0))))
			row.wrote(db, before)
			row.to(w.Rows[0], ratioBytes)
			return errors.Join(row.file(db), keysThere(db, demoBig, t.n*fillKeys))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func ascending(i uint64) uint64 { return i }

// scrambled gives each number another one, without a pattern to be seen.
func scrambled(i uint64) uint64 {
	i = (i ^ i>>33) * 0xff51afd7ed558ccd // odd numbers: each step can be undone
	i = (i ^ i>>33) * 0xc4ceb9fe1a85ec53
	return i ^ i>>33
}

// fillWith fills a file in transactions, each of which is one operation. The time is that
// until all is flushed.
func (s *benchSuite) fillWith(db *holdfast.DB, what string, share float64, key func(uint64) uint64) (*timed, error) {
	defer s.progress(what, 0, nil)()
	t, b, start := &timed{}, s.budget(share), time.Now()
	buf := make([]byte, 8)
	for t.n == 0 || t.n*fillKeys*scanValue < s.size {
		if !b.next(t.n) {
			break
		}
		took, err := clock(func() error {
			return db.Update(func(tx *holdfast.Tx) error {
				in, err := tx.CreateBucketIfNotExists(demoBig)
				for i := range uint64(fillKeys) {
					if err != nil {
						break
					}
					n := uint64(t.n)*fillKeys + i
					binary.BigEndian.PutUint64(buf, key(n))
					err = in.Put(buf, suiteValue(n, scanValue))
				}
				return err
			})
		})()
		if err != nil {
			return nil, err
		}
		t.add(took)
	}
	if err := db.Sync(); err != nil {
		return nil, err
	}
	t.took = time.Since(start)
	return t, s.ctx.Err()
}

// open measures opening a young file and an aged one, in turns, and opening with a first
// commit. Closing is not measured.
func (s *benchSuite) open(w *workloadReport) error {
	names := []string{"young", "aged"}
	for _, name := range names {
		if err := s.make("open-"+name+".db", s.agedFile(s.size, name == "aged")); err != nil {
			return err
		}
	}
	var commits int64
	for _, kind := range []struct {
		name, label string
		use         func(*holdfast.DB) error
	}{
		{"open", "open", func(*holdfast.DB) error { return nil }},
		{"open_and_commit", "open and commit", func(db *holdfast.DB) error { return db.Update(commitKey) }},
	} {
		var ops []clocked
		for _, name := range names {
			ops = append(ops, func() (time.Duration, error) { return s.openOnce("open-"+name+".db", kind.use) })
		}
		times, err := s.turns("open", 0.5, ops...)
		if err != nil {
			return err
		}
		first := len(w.Rows)
		for i, name := range names {
			w.add(name+"_"+kind.name, kind.label+", "+name+" file", times[i]).to(w.Rows[first], ratioMedian)
		}
		commits = times[0].n
	}
	for i, name := range names {
		err := s.with("open-"+name+".db", holdfast.Options{}, func(db *holdfast.DB) error {
			return errors.Join(w.Rows[i].file(db), committed(db, demoSmall, commits))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openOnce is how long it takes to open a database and use it. It is closed again.
func (s *benchSuite) openOnce(name string, use func(*holdfast.DB) error) (time.Duration, error) {
	start := time.Now()
	var took time.Duration
	err := s.with(name, holdfast.Options{}, func(db *holdfast.DB) error {
		err := use(db)
		took = time.Since(start)
		return err
	})
	return took, err
}
