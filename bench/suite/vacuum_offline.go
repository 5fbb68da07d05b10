package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
)

// Columns of ways to a small file.
const (
	vacuumDurable  = "holdfast vacuum"
	vacuumOneFlush = "holdfast vacuum, one flush"
	copyHoldfast   = "holdfast compact"
	copyStock      = "stock compact"
)

// compactedLimit is the target for the size after a vacuum, of that of a compacted copy.
const compactedLimit = 1.05

// copyTxBytes is what a transaction of `bbolt compact` holds if it is not told otherwise.
const copyTxBytes = 64 << 10

// VacuumOffline measures a vacuum, with nothing else at work, and compacting the same
// file into a new one.
func VacuumOffline(c Config) (Table, error) {
	t := Table{Columns: []string{vacuumDurable, vacuumOneFlush, copyHoldfast, copyStock}, Peer: copyStock, Ours: vacuumDurable}
	source, err := c.fileOf("offline", 5*c.Thinned/2)
	if err != nil {
		return t, err
	}
	defer remove(source)
	c.logf("building a file of %s with keys that are deleted at random", FormatBytes(float64(c.Thinned)))
	left, err := buildThinned(source, c.Thinned)
	if err != nil {
		return t, err
	}
	size, err := sizeOf(source)
	if err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("A file of %s in which four of five keys were deleted at random is made small", FormatBytes(float64(size)))
	o := offline{c: &c, source: source, left: left, all: map[string]map[string][]sample{}}
	var runners []runner
	for _, w := range []struct {
		name    string
		inPlace bool
		run     func(dst, src string) error
	}{
		{vacuumDurable, true, func(path, _ string) error { return vacuumFile(path, false) }},
		{vacuumOneFlush, true, func(path, _ string) error { return vacuumFile(path, true) }},
		{copyHoldfast, false, copyAsHoldfast},
		{copyStock, false, copyAsStock},
	} {
		runners = append(runners, runner{w.name, func() (sample, error) { return o.once(w.name, w.inPlace, w.run) }})
	}
	if err := t.add(&c, Row{Workload: "time", Unit: "ns"}, runners); err != nil {
		return t, err
	}
	for _, r := range []struct{ workload, unit string }{{offlineWrote, "B"}, {offlineSize, "B"}, {offlineDisk, "B"}, {offlineRate, "/s"}} {
		t.Rows = append(t.Rows, Row{Workload: r.workload, Unit: r.unit, More: r.unit == "/s", Cells: cellsOf(o.all[r.workload])})
	}
	t.Rows = append(t.Rows, usableMeanwhile())
	sizes := o.all[offlineSize]
	for _, peer := range []string{copyHoldfast, copyStock} {
		t.ratioAtMost("random deletes: size after vacuum", "after "+peer, sizes[vacuumDurable], sizes[peer], compactedLimit)
	}
	return t, nil
}

const (
	offlineWrote = "bytes written"
	offlineSize  = "size of the file that is left"
	offlineDisk  = "the most disk taken above that at the start"
	offlineRate  = "durable commits of random keys afterwards, with Holdfast"
)

func usableMeanwhile() Row {
	cells := map[string]Cell{}
	for name, text := range map[string]string{
		vacuumDurable: "read, write", vacuumOneFlush: "read, write", copyHoldfast: "read", copyStock: "read",
	} {
		cells[name] = Cell{Text: text, Allocs: -1}
	}
	return Row{Workload: "what others can do with it meanwhile", Cells: cells}
}

// offline measures ways to make a file small.
type offline struct {
	c      *Config
	source string
	left   [][]byte                       // keys
	all    map[string]map[string][]sample // by row and column
}

// once makes the file small in one way: a copy of it in place, or the file itself into
// another, which is run's dst.
func (o *offline) once(name string, inPlace bool, run func(dst, src string) error) (sample, error) {
	dir := filepath.Join(filepath.Dir(o.source), "work")
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return sample{}, err
	}
	dst := filepath.Join(dir, "db")
	if inPlace {
		if err := copyFile(dst, o.source); err != nil {
			return sample{}, err
		}
	}
	disk, err := watchDisk(dir)
	if err != nil {
		return sample{}, err
	}
	before, err := written()
	began := time.Now()
	if err == nil {
		err = run(dst, o.source)
	}
	took := time.Since(began)
	after, failed := written()
	most, wrong := disk.end()
	if err := errors.Join(err, failed, wrong); err != nil {
		return sample{}, err
	}
	size, err := sizeOf(dst)
	if err != nil {
		return sample{}, err
	}
	rate, err := o.rate(dst)
	if err != nil {
		return sample{}, err
	}
	for row, value := range map[string]float64{
		offlineWrote: float64(after - before), offlineSize: float64(size), offlineDisk: float64(most), offlineRate: rate,
	} {
		if o.all[row] == nil {
			o.all[row] = map[string][]sample{}
		}
		o.all[row][name] = append(o.all[row][name], sample{value, -1})
	}
	return sample{float64(took), -1}, nil
}

// rate is how many commits of one key go to the file in a second.
func (o *offline) rate(path string) (float64, error) {
	db, err := holdfast.Open(path, 0o600, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	i := 0
	run, err := timed(o.c.Time, 1, func() error {
		i++
		return db.Update(func(tx *holdfast.Tx) error {
			return tx.Bucket(bigName).Put(o.left[i*7919%len(o.left)], noise[i%1000:i%1000+bigValue])
		})
	})
	return run.rate, err
}

// vacuumFile vacuums the file at path, from opening to closing, as the others are measured.
func vacuumFile(path string, oneFlush bool) error {
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: oneFlush})
	if err != nil {
		return err
	}
	_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
	if err == nil && oneFlush {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// copyAsHoldfast does what `holdfast compact` does: one flush, and what the copy grew too
// much is cut off.
func copyAsHoldfast(dst, src string) error {
	from, err := holdfast.Open(src, 0o600, &holdfast.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := holdfast.Open(dst, 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		return err
	}
	to.AllocSize = 16 << 20
	var size int64
	err = holdfast.Compact(to, from, 0)
	if err == nil {
		err = to.View(func(tx *holdfast.Tx) error {
			size = tx.Size()
			return nil
		})
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	f, err := os.OpenFile(dst, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// copyAsStock does what `bbolt compact` does, whose commits are durable unless it is told
// otherwise.
func copyAsStock(dst, src string) error {
	from, err := bbolt.Open(src, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := bbolt.Open(dst, 0o600, &bbolt.Options{})
	if err != nil {
		return err
	}
	return errors.Join(bbolt.Compact(to, from, copyTxBytes), to.Close())
}
