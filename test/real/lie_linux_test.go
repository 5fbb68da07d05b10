package real

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// lieMinimums are the failed flushes that a run must have seen, by what was lost.
var lieMinimums = map[string]int{
	"while creating": 1,
	"while opening":  3,
	"while closing":  4,
	// One flush for a commit.
	"the meta, all pages":     5,
	"the meta, some pages":    1,
	"the meta, no pages":      1,
	"not the meta, pages":     2,
	"while settling":          1,
	"a dead process's commit": 3,
	// Two flushes, with StrictCompat.
	"all pages of a commit":       3,
	"some pages of a commit":      1,
	"a meta":                      2,
	"the cache showed a meta":     5,
	"the cache showed pages":      5,
	"commits over the lost pages": 5,
	"remounted as it was":         5,
}

// lieFile is a database on a disk whose n-th flush failed.
type lieFile struct {
	t      *testing.T
	disk   *disk
	rand   *rand.Rand
	path   string
	model  *model
	opts   holdfast.Options
	counts map[string]int
	syncs  bool // Sync is called behind each commit
	metas  bool // lie behind the pages on the device
	newer  bool // a commit that nobody was told of may be there
}

func TestFlushThatLies(t *testing.T) {
	needsMounts(t)
	const files = 6 * kinds
	counts := map[string]int{}
	tried := 0
	for seed := range seeds(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			againWith(t, seed)
			d := newDisk(t, 256, lieOptions...)
			r := rand.New(rand.NewPCG(seed, 0))
			var all []*lieFile
			for i := range 3 * files {
				kind := i % kinds
				if i >= files { // what is rare
					if missing(counts, lieMinimums) == "" {
						break
					}
					kind = []int{4, 6, 10, 11, 11}[i%5]
				}
				f := newLieFile(t, d, r, i, counts)
				if err := f.run(kind); err != nil {
					t.Fatalf("file %d, page size %d: %v", i, f.opts.PageSize, err)
				}
				all = append(all, f)
				tried++
			}
			d.remount()
			for i, f := range all {
				if err := f.verify(); err != nil {
					t.Fatalf("after a remount: file %d, page size %d: %v", i, f.opts.PageSize, err)
				}
			}
		})
	}
	t.Logf("%d failed flushes: %v", tried, counts)
	for what, least := range lieMinimums {
		if counts[what] < least {
			t.Errorf("%s: %d, want %d at least", what, counts[what], least)
		}
	}
}

func newLieFile(t *testing.T, d *disk, r *rand.Rand, i int, counts map[string]int) *lieFile {
	f := &lieFile{t: t, disk: d, rand: r, counts: counts, path: filepath.Join(d.dir, fmt.Sprintf("db%d", i))}
	f.opts = holdfast.Options{
		PageSize: []int{1024, 4096, 4096, 16384}[r.IntN(4)], NoFreelistSync: r.IntN(2) == 0,
		SettleDelay: -1, // a flush beside a transaction would have the device fail for that one's reads, too
	}
	f.model = newModel(history{seed: r.Uint64(), large: 20 << 10})
	return f
}

// run brings the file about, lets one flush fail, and opens it again.
func (f *lieFile) run(kind int) error {
	file := &failing{path: f.path, disk: f.disk, rand: f.rand, killed: f.rand.IntN(3) > 0}
	dies := f.plan(kind, file)
	if kind != 0 {
		if err := f.prepare(); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if err := giveBlocks(f.path); err != nil {
		return err
	}
	if dies {
		f.newer = true
		f.counts["a dead process's commit"]++
		if err := f.die(); err != nil {
			return err
		}
	}
	plain, err := vfs.OpenOS(f.path, os.O_RDWR, 0, nil)
	if err != nil {
		return err
	}
	file.File, file.metas = plain, 2*int64(f.opts.PageSize)
	if err := f.fail(file); err != nil {
		return fmt.Errorf("%s lost: %w", file.what, err)
	}
	if !file.failed {
		return errors.New("no flush failed")
	}
	f.counts[file.what]++
	if err := f.lies(true); err != nil {
		return err
	}
	f.newer = f.newer || file.what == lostNothing
	if err := f.reopen(); err != nil {
		return fmt.Errorf("%s lost, opened again: %w", file.what, err)
	}
	return nil
}

// kinds is the number of kinds of failures that plan knows.
const kinds = 12

// plan says which flush fails, of files that take turns. The first flush opens the
// file; then each commit has one, or with StrictCompat one for its pages and one
// for its meta. It says whether a process died before.
func (f *lieFile) plan(kind int, file *failing) (dies bool) {
	strict := 1 + 2*f.rand.IntN(4)
	file.after = 1 + f.rand.IntN(6)
	switch kind {
	case 0:
		file.after = f.rand.IntN(2) // of a creation
	case 1, 5:
		file.after, file.part = 0, kind == 5 // what a dead process has left
		f.opts.StrictCompat = f.rand.IntN(3) == 0
		return true
	case 2:
		file.after = 100 // of Close
	case 3:
		f.opts.StrictCompat, file.after = true, strict // pages, all of them
	case 6:
		f.opts.StrictCompat, file.after, file.part = true, strict, true // pages
	case 7:
		f.opts.StrictCompat, file.after = true, strict+1 // a meta
	case 8: // a commit
	case 9, 10:
		file.part = true // of a commit
	case 11:
		file.fromMetas, f.metas = true, true
	default:
		file.after, file.part, f.syncs = f.rand.IntN(14), f.rand.IntN(3) == 0, true
	}
	return false
}

// prepare makes a file with some commits and copies it to the disk in pieces
// of any size: so large are the units in which the page cache holds it.
func (f *lieFile) prepare() error {
	if f.rand.IntN(2) == 0 {
		f.opts.PageSize = 4096
	}
	elsewhere := filepath.Join(f.t.TempDir(), "db")
	db, err := holdfast.Open(elsewhere, 0o600, &f.opts)
	if err != nil {
		return err
	}
	db.NoSync = true
	for range 1 + f.rand.IntN(30) {
		if err := f.commit(db); err != nil {
			return err
		}
	}
	if err := db.Close(); err != nil {
		return err
	}
	if f.metas {
		if err := makeTail(f.path, elsewhere); err != nil {
			return err
		}
	}
	return copyInto(f.path, elsewhere, 4096<<f.rand.IntN(8))
}

// makeTail makes a file as long as the other, which has the place of its first
// pages behind that of all others, on the device: it is written without them, and
// they are inserted.
func makeTail(path, like string) error {
	const head = 64 << 10
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, max(fileSize(like)-head, 4096)))
	return errors.Join(err, f.Sync(), unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_INSERT_RANGE, 0, head), f.Close())
}

// giveBlocks creates the file if there is none, reserves blocks for its first
// pages and flushes it.
func giveBlocks(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 64<<10)
	return errors.Join(err, f.Sync(), f.Close())
}

// commit makes the next edit; the model follows if the commit succeeds.
func (f *lieFile) commit(db *holdfast.DB) error {
	n := f.model.number + 1
	if err := (holdfastDB{db}).update(func(tx transaction) error { return f.model.edit(tx.root, n) }); err != nil {
		return err
	}
	return f.model.forward(n)
}

// dying is a file whose process dies instead of flushing.
type dying struct {
	vfs.File
	flushes int // that come before
}

var errDead = errors.New("dead")

// DropCache does nothing, as a dead process does; it would write what was not
// flushed.
func (f *dying) DropCache(off, n int64) error {
	if f.flushes < 0 {
		return nil
	}
	return f.File.DropCache(off, n)
}

func (f *dying) Sync() error {
	if f.flushes--; f.flushes < 0 {
		return errDead
	}
	return f.File.Sync()
}

// die leaves in the page cache what a process leaves that is killed within a
// commit: pages that were not flushed, or a meta.
func (f *lieFile) die() error {
	plain, err := vfs.OpenOS(f.path, os.O_RDWR, 0, nil)
	if err != nil {
		return err
	}
	// One flush to open the file, and one or two for each commit.
	file := &dying{File: &failing{File: plain, failed: true}, flushes: 1 + f.rand.IntN(6)}
	db, err := bridge.Open(file, &f.opts)
	if err != nil {
		return err
	}
	for range 10 {
		if err = f.commit(db); err != nil {
			break
		}
	}
	if !errors.Is(err, errDead) {
		return errors.Join(fmt.Errorf("the last commit gave %v, want its flush's error", err), db.Close())
	}
	return db.Close()
}

// fail commits until the flush fails and looks at what the database does then.
func (f *lieFile) fail(file *failing) error {
	fresh := f.model.number == 0
	db, err := bridge.Open(file, &f.opts)
	if err != nil {
		file.what = "while opening"
		if fresh {
			file.what = "while creating"
		}
		return wantFailure(err, file, false)
	}
	db.AllocSize = 64 << 10
	if err := f.adopt(db); err != nil {
		return err
	}
	before, err := db.Begin(false)
	if err != nil {
		return err
	}
	linesBefore := f.model.lines()
	for range 4 + f.rand.IntN(6) {
		if err = f.commit(db); err != nil {
			break
		}
		if f.syncs {
			if err = db.Sync(); err != nil {
				file.what = "while settling"
				break
			}
		}
	}
	if err == nil { // then it is Close whose flush fails
		file.what = "while closing"
		db.NoFreelistSync = false
		err = errors.Join(before.Rollback(), f.closing(db, file))
		file.what = "while closing"
		return err
	}
	return errors.Join(
		wantFailure(err, file, true),
		f.stopped(db, file, err),
		f.inspect(db),
		f.inspectTx(before, linesBefore),
		before.Rollback(),
		db.Close())
}

// closing lets a flush of Close fail, or one of the commit before it.
func (f *lieFile) closing(db *holdfast.DB, file *failing) error {
	if err := f.commit(db); err != nil { // so that there is something to leave
		return errors.Join(wantFailure(err, file, true), f.stopped(db, file, err), db.Close())
	}
	file.after, file.part = f.rand.IntN(2), f.rand.IntN(2) == 0
	if err := db.Close(); err != nil || !file.part && !file.clean {
		return wantFailure(err, file, true)
	}
	f.counts["nothing was lost in closing"]++
	file.failed = true // what was written is on the device
	return nil
}

// wantFailure tells whether err is what a failed flush has to give.
func wantFailure(err error, file *failing, stopped bool) error {
	if err == nil || !errors.Is(err, unix.EIO) || stopped && !errors.Is(err, holdfast.ErrStopped) {
		return fmt.Errorf("error %v, want EIO, and ErrStopped if it is open", err)
	}
	if !bytes.Contains([]byte(err.Error()), []byte(file.path)) {
		return fmt.Errorf("the error does not name the file: %v", err)
	}
	return nil
}

// stopped tells whether every write gives the first error again, although the
// device is sound and a flush would succeed.
func (f *lieFile) stopped(db *holdfast.DB, file *failing, first error) error {
	if err := file.File.Sync(); err != nil {
		return fmt.Errorf("a second flush gave %w, want success: then there is no lie", err)
	}
	size := fileSize(f.path)
	touch := func(tx *holdfast.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte("new"))
		return err
	}
	for what, do := range map[string]func() error{
		"Update": func() error { return db.Update(touch) },
		"Batch":  func() error { return db.Batch(touch) },
		"Sync":   db.Sync,
		"Begin": func() error {
			tx, err := db.Begin(true)
			if err == nil {
				err = errors.Join(errors.New("a transaction"), tx.Rollback())
			}
			return err
		},
	} {
		if err := do(); err == nil || err.Error() != first.Error() || !errors.Is(err, holdfast.ErrStopped) {
			return fmt.Errorf("%s after the failure gave %v, want %v", what, err, first)
		}
	}
	if now := fileSize(f.path); now != size {
		return fmt.Errorf("the file went from %d to %d bytes after the failure", size, now)
	}
	return nil
}

// adopt goes on to a commit that is there and may be, although it failed.
func (f *lieFile) adopt(db *holdfast.DB) error {
	return db.View(func(tx *holdfast.Tx) error {
		if n := newHoldfastTx(tx).number(); f.newer && n == f.model.number+1 {
			f.counts["a commit was there that had failed"]++
			return f.model.forward(n)
		}
		return nil
	})
}

func (f *lieFile) inspect(db *holdfast.DB) error {
	return db.View(func(tx *holdfast.Tx) error { return f.inspectTx(tx, f.model.lines()) })
}

func (f *lieFile) inspectTx(tx *holdfast.Tx, want []string) error {
	t := newHoldfastTx(tx)
	got, err := t.lines()
	return errors.Join(err, compare(got, want), t.check())
}

// lies compares what the page cache shows with what the device has. Metas that
// differ are an error unless they may.
func (f *lieFile) lies(may bool) error {
	cached, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	device, err := readDevice(f.path)
	if err != nil {
		return err
	}
	if len(device) != len(cached) {
		return fmt.Errorf("the device has %d bytes of the file, the cache %d", len(device), len(cached))
	}
	head := min(2*f.opts.PageSize, len(cached))
	metas := !bytes.Equal(cached[:head], device[:head])
	if metas && !may {
		return errors.New("opened, and the page cache still shows metas that are not on the device")
	}
	if may && metas {
		f.counts["the cache showed a meta"]++
	}
	if may && !bytes.Equal(cached[head:], device[head:]) {
		f.counts["the cache showed pages"]++
	}
	return nil
}

// reopen opens the file while the page cache still shows what was lost, and
// looks whether it is the newest acknowledged state.
func (f *lieFile) reopen() error {
	opts := f.opts
	opts.NoFreelistSync = true // Close writes nothing then
	db, err := holdfast.Open(f.path, 0o600, &opts)
	if err != nil {
		return err
	}
	if err := errors.Join(f.adopt(db), f.lies(false), f.inspect(db)); err != nil {
		return errors.Join(err, db.Close())
	}
	if f.rand.IntN(2) == 0 {
		f.counts["remounted as it was"]++
		return db.Close()
	}
	f.counts["commits over the lost pages"]++
	for range 1 + f.rand.IntN(4) {
		if err := f.commit(db); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	return errors.Join(f.inspect(db), db.Close())
}

// verify opens the file with nothing in the page cache, by both engines.
func (f *lieFile) verify() error {
	copied := filepath.Join(f.t.TempDir(), "copy")
	if err := copyFile(copied, f.path, 1<<20); err != nil {
		return err
	}
	stock, err := openStock(copied, openOptions{})
	if err != nil {
		return err
	}
	err = stock.view(func(tx transaction) error {
		got, err := tx.lines()
		return errors.Join(err, compare(got, f.model.lines()), tx.check())
	})
	if err = errors.Join(err, stock.close()); err != nil {
		return fmt.Errorf("bbolt: %w", err)
	}
	db, err := holdfast.Open(f.path, 0o600, &f.opts)
	if err != nil {
		return err
	}
	return errors.Join(f.inspect(db), db.Close())
}
