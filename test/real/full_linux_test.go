package real

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
)

func TestFullExt4(t *testing.T) {
	testFull(t, func(t *testing.T) string { return newDisk(t, 16).dir })
}

func TestFullTmpfs(t *testing.T) {
	testFull(t, func(t *testing.T) string { return mountTmpfs(t, "6m") })
}

// testFull runs the cases, each on a file system of its own.
func testFull(t *testing.T, mounted func(*testing.T) string) {
	needsMounts(t)
	for seed := range seeds(t, 1) {
		for name, run := range map[string]func(*fullDisk){
			"by-commits": (*fullDisk).byCommits,
			"by-another": (*fullDisk).byAnother,
			"sparse":     (*fullDisk).sparse,
			"crowd":      (*fullDisk).crowd,
			"creation":   (*fullDisk).creation,
			"compaction": (*fullDisk).compaction,
			"vacuum":     (*fullDisk).vacuum,
		} {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				againWith(t, seed)
				dir := mounted(t)
				r := rand.New(rand.NewPCG(seed, 0))
				d := &fullDisk{T: t, dir: dir, path: filepath.Join(dir, "db"), rand: r}
				d.opts = openOptions{PageSize: []int{1024, 4096, 16384}[r.IntN(3)], NoFreelistSync: r.IntN(2) == 0}
				d.model = newModel(history{seed: r.Uint64(), large: 8 << 10})
				run(d)
			})
		}
	}
}

// fullDisk is a small file system with a database that knows its content.
type fullDisk struct {
	*testing.T
	dir, path string
	rand      *rand.Rand
	opts      openOptions
	model     *model
	db        holdfastDB
}

func (d *fullDisk) open() {
	d.Helper()
	db, err := openHoldfast(d.path, d.opts)
	must(d.T, err)
	d.db = db
	// Close waits for readers and the writer; there are none here.
	d.Cleanup(func() { db.Close() })
}

func (d *fullDisk) commit() error {
	n := d.model.number + 1
	if err := d.db.update(func(tx transaction) error { return d.model.edit(tx.root, n) }); err != nil {
		return err
	}
	return d.model.forward(n)
}

// sound tells whether everything acknowledged is there and nothing else is.
func (d *fullDisk) sound(when string) {
	d.Helper()
	err := d.db.view(func(tx transaction) error {
		got, err := tx.lines()
		return errors.Join(err, compare(got, d.model.lines()), tx.check())
	})
	if err != nil {
		d.Fatalf("%s, page size %d: %v", when, d.opts.PageSize, err)
	}
}

// full tells whether err is what a full disk has to give.
func (d *fullDisk) full(when string, err error) {
	d.Helper()
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), d.path) {
		d.Fatalf("%s, page size %d: error %v, want ENOSPC with the file's name", when, d.opts.PageSize, err)
	}
	if errors.Is(err, holdfast.ErrStopped) {
		d.Fatalf("%s, page size %d: a full disk has stopped the writer: %v", when, d.opts.PageSize, err)
	}
}

// commitUntilFull commits until that fails, most commits at the most, and
// gives their number.
func (d *fullDisk) commitUntilFull(most int) int {
	d.Helper()
	for n := range most {
		if err := d.commit(); err != nil {
			d.full(fmt.Sprintf("commit %d", n), err)
			return n
		}
	}
	d.Fatalf("%d commits, and the disk is not full", most)
	return 0
}

// stillFull commits until that fails again, which need not be at once: the pages
// of the state before the last can be used when one more flush has ended, and
// that may be the one by which an idle database settles.
func (d *fullDisk) stillFull() {
	d.Helper()
	d.commitUntilFull(50)
	d.sound("still full")
}

// fillDisk takes what is left of the disk by a file, which free removes.
func (d *fullDisk) fillDisk() (free func()) {
	d.Helper()
	other := filepath.Join(d.dir, "other")
	f, err := os.Create(other)
	must(d.T, err)
	for piece := 1 << 20; piece > 0; piece /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
		if err := errors.Unwrap(err); err != unix.ENOSPC {
			d.Fatal(err)
		}
	}
	must(d.T, errors.Join(f.Sync(), f.Close()))
	return func() {
		d.Helper()
		must(d.T, os.Remove(other))
		must(d.T, unixSync(d.dir))
	}
}

// unixSync flushes a file system: some give freed blocks away only then.
func unixSync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// reopen closes and opens, and looks with both engines.
func (d *fullDisk) reopen(when string) {
	d.Helper()
	if err := d.db.Close(); err != nil {
		d.Fatalf("%s: close: %v", when, err)
	}
	copied := filepath.Join(d.TempDir(), "copy")
	must(d.T, copyFile(copied, d.path, 1<<20))
	stock, err := openStock(copied, openOptions{})
	if err != nil {
		d.Fatalf("%s: bbolt: %v", when, err)
	}
	err = errors.Join(stock.view(func(tx transaction) error {
		got, err := tx.lines()
		return errors.Join(err, compare(got, d.model.lines()), tx.check())
	}), stock.close())
	if err != nil {
		d.Fatalf("%s: bbolt: %v", when, err)
	}
	d.open()
	d.sound(when)
}

// byCommits fills the disk with the database itself.
func (d *fullDisk) byCommits() {
	d.open()
	reader, err := d.db.Begin(false)
	must(d.T, err)
	d.Cleanup(func() { reader.Rollback() }) // before Close, which waits for it
	d.model.fill = 40 << 10
	n := d.commitUntilFull(2000)
	var fs unix.Statfs_t
	must(d.T, unix.Statfs(d.dir, &fs))
	unit := uint64(fs.Bsize) // its type differs between architectures
	free, all := fs.Bfree*unit, fs.Blocks*unit
	d.Logf("page size %d: full after %d commits; the file has %d bytes, %d of %d are free", d.opts.PageSize, n, fileSize(d.path), free, all)
	if free > all/10 { // ext4 itself keeps 2%
		d.Errorf("%d of %d bytes are free, and commits fail", free, all)
	}
	d.sound("full")
	for range 3 { // again and again; nothing is used up by it
		d.stillFull()
	}
	must(d.T, reader.Rollback())
	// What a commit has freed belongs to the state before it, which bbolt would find
	// after a crash, until one more flush has ended.
	must(d.T, d.db.Sync())
	d.model.fill, d.model.purge = 0, d.model.number+1
	if err := d.commit(); err != nil {
		d.full("purge", err)
		d.Fatalf("what fills the disk cannot be deleted: %v", err)
	}
	d.sound("purged")
	must(d.T, d.db.Sync())
	d.model.fill = 40 << 10
	size := fileSize(d.path)
	for i := range n / 3 { // into the pages that were freed
		if err := d.commit(); err != nil {
			d.Fatalf("commit %d of %d after the purge: %v", i, n/3, err)
		}
	}
	if now := fileSize(d.path); now != size {
		d.Errorf("the file went from %d to %d bytes, although most of it was free", size, now)
	}
	d.sound("filled again")
	d.reopen("filled again")
	must(d.T, d.commit())
}

// byAnother has another file take the disk. What the database has reserved is
// its own; behind that commits fail until the other is gone.
func (d *fullDisk) byAnother() {
	d.open()
	d.model.fill = 4000
	for before, n := int64(0), 0; before < 1<<20 || fileSize(d.path) == before; n++ {
		before = fileSize(d.path)
		must(d.T, d.commit())
		if n == 5000 {
			d.Fatalf("%d commits, and the file has %d bytes", n, before)
		}
	}
	free := d.fillDisk()
	size := fileSize(d.path)
	n := d.commitUntilFull(5000)
	d.Logf("page size %d: %d commits into %d bytes that were reserved", d.opts.PageSize, n, size)
	if n < 5 || fileSize(d.path) != size {
		d.Errorf("%d commits into what was reserved, file of %d bytes, want 5 and %d", n, fileSize(d.path), size)
	}
	d.sound("full")
	d.reopen("full")
	d.commitUntilFull(5000)
	free()
	for i := range 10 {
		if err := d.commit(); err != nil {
			d.Fatalf("commit %d after the other file was removed: %v", i, err)
		}
	}
	d.sound("free again")
	d.reopen("free again")
}

// holeFile is the length of a file with a hole: more than the disk has.
const holeFile = 64 << 20

// withHole opens a file that has a hole at its end, on a disk that is full until
// free is called.
func (d *fullDisk) withHole() (free func()) {
	d.Helper()
	d.open()
	d.model.fill = 1000
	for range 20 {
		must(d.T, d.commit())
	}
	must(d.T, d.db.Close())
	must(d.T, os.Truncate(d.path, holeFile))
	free = d.fillDisk()
	d.open()
	d.sound("opened sparse")
	return free
}

// crowd has many commit into a hole side by side: those whose pages have no place
// any more fail, and with them those that stand on them.
func (d *fullDisk) crowd() {
	free := d.withHole()
	d.model.fill = 3000
	const room = 1 << 20
	other := filepath.Join(d.dir, "other")
	must(d.T, os.Truncate(other, fileSize(other)-room))
	must(d.T, unixSync(d.dir))
	acked, failed := d.model.number, []error(nil)
	for range 3 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for {
					var n uint64
					err := d.db.update(func(tx transaction) error {
						n = tx.number() + 1
						return d.model.edit(tx.root, n)
					})
					mu.Lock()
					if err != nil {
						failed = append(failed, err)
					} else {
						acked = max(acked, n)
					}
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		must(d.T, d.model.forward(acked))
		d.sound("full in the hole, in a crowd")
	}
	for _, err := range failed {
		d.full("commit in a crowd", err)
	}
	stats := d.db.Stats()
	d.Logf("page size %d: %d commits in %d groups, %d failed", d.opts.PageSize, stats.Commits, stats.CommitGroups, len(failed))
	if stats.Commits == stats.CommitGroups && strings.Contains(d.Name(), "Ext4") { // on a tmpfs a flush takes no time
		d.Errorf("%d commits in as many groups: these writers never waited", stats.Commits)
	}
	d.reopen("full in the hole, in a crowd")
	free()
	for range 10 {
		must(d.T, d.commit())
	}
	d.reopen("free again")
}

// sparse works in a file with a hole at its end, as bbolt makes them: there
// the disk is full when a page is written.
func (d *fullDisk) sparse() {
	free := d.withHole()
	d.model.fill = 20 << 10
	d.commitUntilFull(2000)
	d.sound("full in the hole")
	for range 3 {
		d.stillFull()
	}
	d.reopen("full in the hole")
	d.stillFull()
	free()
	for range 10 {
		must(d.T, d.commit())
	}
	if now := fileSize(d.path); now != holeFile {
		d.Errorf("the file went from %d to %d bytes", holeFile, now)
	}
	d.sound("free again")
	d.reopen("free again")
}

// creation has no room for a new database.
func (d *fullDisk) creation() {
	free := d.fillDisk()
	for range 2 {
		_, err := openHoldfast(d.path, d.opts)
		d.full("create", err)
	}
	free()
	d.open()
	must(d.T, d.commit())
	d.sound("created")
	d.reopen("created")
}

// compaction has no room for its copy.
func (d *fullDisk) compaction() {
	d.open()
	d.model.fill = 20 << 10
	for range 40 {
		must(d.T, d.commit())
	}
	free := d.fillDisk()
	copied := filepath.Join(d.dir, "copy")
	err := d.db.compactTo(copied)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), copied) {
		d.Errorf("compact: %v, want ENOSPC with the copy's name", err)
	}
	err = d.db.View(func(tx *holdfast.Tx) error { return tx.CopyFile(copied, 0o600) })
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), copied) {
		d.Errorf("copy: %v, want ENOSPC with the copy's name", err)
	}
	d.sound("full")
	must(d.T, os.Remove(copied))
	free()
	must(d.T, d.db.compactTo(copied))
	must(d.T, d.commit())
	d.reopen("free again")
}
