package command

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"holdfast"
)

// aged measures durable commits on a young file and on two with free pages, in turns.
func (s *benchSuite) aged(w *workloadReport) (err error) {
	files := []struct {
		name, label string
		bytes       int64
		past        bool
	}{
		{"young", "young file", s.size, false},
		{"aged_eighth", "aged, an eighth of the size", s.size / 8, true},
		{"aged", "aged", s.size, true},
	}
	var dbs []*holdfast.DB
	defer func() {
		for _, db := range dbs {
			err = errors.Join(err, db.Close())
		}
	}()
	var ops []clocked
	for _, f := range files {
		file := "aged-" + f.name + ".db"
		if err := s.make(file, s.agedFile(f.bytes, f.past)); err != nil {
			return err
		}
		db, err := s.database(file, holdfast.Options{})
		if err != nil {
			return err
		}
		dbs = append(dbs, db)
		ops = append(ops, clock(func() error { return db.Update(commitKey) }))
	}
	var before []holdfast.Stats
	for _, db := range dbs {
		before = append(before, db.Stats())
	}
	times, err := s.turns("aged", 1, ops...)
	if err != nil {
		return err
	}
	for i, f := range files {
		row := w.add(f.name, f.label, times[i])
		row.wrote(dbs[i], before[i])
		row.to(w.Rows[0], ratioMedian)
		if err := errors.Join(row.file(dbs[i]), committed(dbs[i], demoSmall, row.Operations)); err != nil {
			return err
		}
	}
	return nil
}

// commitMode is a way to commit, and how many goroutines do so at once.
type commitMode struct {
	name, label string
	options     holdfast.Options
	run         func(*holdfast.DB, func(*holdfast.Tx) error) error
	writers     []int
}

// commit measures commits of one key each by goroutines at once, in several modes.
func (s *benchSuite) commit(w *workloadReport) error {
	few, many := []int{1, 4}, []int{16, 64}
	all := append(few, many...)
	modes := []commitMode{
		{"update", "Update", holdfast.Options{}, (*holdfast.DB).Update, all},
		{"batch", "Batch", holdfast.Options{}, (*holdfast.DB).Batch, many}, // it waits for others to come
		{"strict", "Update, strict", holdfast.Options{StrictCompat: true}, (*holdfast.DB).Update, all},
		{"periodic", "Update, periodic", holdfast.Options{Durability: holdfast.Periodic}, (*holdfast.DB).Update, all},
		{"none", "Update, no flushes", holdfast.Options{Durability: holdfast.None}, (*holdfast.DB).Update, all},
	}
	measured := 0
	for _, m := range modes {
		measured += len(m.writers)
	}
	for _, m := range modes {
		name := "commit-" + m.name + ".db"
		if err := s.make(name, suiteFile{left: 1}); err != nil {
			return err
		}
		err := s.with(name, m.options, func(db *holdfast.DB) error { return s.commitIn(w, db, m, 1/float64(measured)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// commitIn measures one mode, with each number of writers for a share of the time.
func (s *benchSuite) commitIn(w *workloadReport, db *holdfast.DB, m commitMode, share float64) error {
	total := int64(0)
	for _, n := range m.writers {
		label := m.label + ", " + plural(n, "writer")
		before := db.Stats()
		t, err := s.measure(phase{what: label, share: share, workers: n}, func(int) error { return m.run(db, commitKey) })
		if err != nil {
			return err
		}
		row := w.add(fmt.Sprintf("%s_%d", m.name, n), label, t)
		row.wrote(db, before)
		row.to(w.Rows[0], ratioRate)
		total += t.n
	}
	return committed(db, demoSmall, total)
}

// How the file of vacuum is made: of so many values one stays. It is a part of the size of
// others, because vacuum takes its time beside a busy writer.
const (
	thinnedPart   = 4
	thinnedLeft   = 5
	thinnedDelete = 1000
)

// vacuum measures commits before, beside and after a vacuum, on keys all over the file.
func (s *benchSuite) vacuum(w *workloadReport) error {
	f := suiteFile{values: int(s.size / thinnedPart / demoValueBytes), size: demoValueBytes, left: thinnedLeft, past: true, atOnce: thinnedDelete}
	if err := s.make("vacuum.db", f); err != nil {
		return err
	}
	keys := (f.values + f.left - 1) / f.left
	random := rand.New(rand.NewPCG(suiteSeed, 2))
	return s.with("vacuum.db", holdfast.Options{}, func(db *holdfast.DB) error {
		commit := func() error {
			key := suiteKey(random.IntN(keys) * f.left) // one goroutine at a time commits
			return db.Update(func(tx *holdfast.Tx) error {
				b := tx.Bucket(demoBig)
				n, err := b.NextSequence()
				if err != nil {
					return err
				}
				return b.Put(key, suiteValue(n, f.size))
			})
		}
		done, err := s.vacuumBeside(w, db, commit)
		if err != nil {
			return err
		}
		if err := committed(db, demoBig, done); err != nil {
			return err
		}
		return keysThere(db, demoBig, int64(keys))
	})
}

// vacuumBeside returns how often commit was done.
func (s *benchSuite) vacuumBeside(w *workloadReport, db *holdfast.DB, commit func() error) (done int64, err error) {
	var rows []*suiteRow
	some := func(name, label string) error {
		before := db.Stats()
		t, err := s.measure(phase{what: label, share: 0.3, workers: 1}, func(int) error { return commit() })
		if err != nil {
			return err
		}
		row := w.add(name, label, t)
		row.wrote(db, before)
		rows = append(rows, row)
		return row.file(db)
	}
	if err := some("commits_before", "commits before"); err != nil {
		return 0, err
	}
	end := s.beside(commit)
	stop := s.progress("vacuum", 0, nil)
	t := &timed{}
	took, err := clock(func() error {
		_, err := db.Vacuum(s.ctx, holdfast.VacuumOptions{})
		return err
	})()
	stop()
	t.add(took)
	t.took = took
	beside, failed := end()
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	rows = append(rows, w.add("commits_beside", "commits beside the vacuum", beside))
	if err := w.add("vacuum", "the vacuum", t).file(db); err != nil {
		return 0, err
	}
	if err := some("commits_after", "commits after"); err != nil {
		return 0, err
	}
	for _, row := range rows {
		row.to(rows[0], ratioP99)
		done += row.Operations
	}
	return done, nil
}

// keysThere sees that a bucket has so many keys.
func keysThere(db *holdfast.DB, bucket []byte, n int64) error {
	return db.View(func(tx *holdfast.Tx) error {
		b := tx.Bucket(bucket)
		if b == nil {
			return errMissing
		}
		found := int64(0)
		for range b.All() {
			found++
		}
		if found != n {
			return fmt.Errorf("%w: %d keys were written, and the file has %d", errMissing, n, found)
		}
		return tx.Err()
	})
}
