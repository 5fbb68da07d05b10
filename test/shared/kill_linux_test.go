package shared

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"holdfast"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
	"holdfast/test/process"
	"holdfast/test/soak"
)

// killFor is how long an ordinary run kills.
const killFor = 25 * time.Second

// fixture is a database with its processes.
type fixture struct {
	t       *testing.T
	file    string
	random  *rand.Rand
	owner   *process.Process
	readers []*process.Process
	counts  map[string]int
	started int
}

func newFixture(t *testing.T, seed uint64) *fixture {
	return &fixture{t: t, file: filepath.Join(t.TempDir(), "db"), random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
}

func (w *fixture) start(role string) *process.Process {
	w.t.Helper()
	return w.startIn(0, role)
}

// confined are the namespaces of a container, as far as they matter here: each of its processes has another number outside.
const confined = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS

// startIn starts a role in new namespaces.
func (w *fixture) startIn(namespaces uintptr, role string) *process.Process {
	w.t.Helper()
	w.started++
	p := &process.Process{
		Binary: os.Args[0], Env: []string{roleVariable + "=" + role, fileVariable + "=" + w.file},
		Log:     filepath.Join(w.t.TempDir(), fmt.Sprintf("%s-%d.log", role, w.started)),
		Prepare: func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = namespaces },
	}
	if err := p.Start(); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// one is a random one of some roles.
func (w *fixture) one(roles ...string) string { return roles[w.random.IntN(len(roles))] }

func (w *fixture) newOwner() {
	w.owner = w.startIn(w.somewhere(), w.one("owner", "periodic", "vacuuming", "vacuuming", "bbolt"))
}

func (w *fixture) newReader() *process.Process {
	return w.startIn(w.somewhere(), w.one("reader", "slow", "copier"))
}

// somewhere is in a container now and then, which only root can make.
func (w *fixture) somewhere() uintptr {
	if os.Geteuid() != 0 || w.random.IntN(3) > 0 {
		return 0
	}
	w.counts["(confined)"]++
	return confined
}

// stillRuns sees that a process has not ended by itself, which readers do that have read what is no state.
func (w *fixture) stillRuns(p *process.Process) {
	w.t.Helper()
	if !p.Running() {
		w.t.Fatalf("%s has ended: %s", p.Log, p.LastWords())
	}
}

// kill kills a process, after a look at what a reader has said.
func (w *fixture) kill(p *process.Process) {
	w.t.Helper()
	w.stillRuns(p)
	p.Kill()
	counts, err := lines(p.Log)
	if err != nil {
		w.t.Fatal(err)
	}
	for kind, n := range counts {
		w.counts[kind] += n
	}
	_ = os.Remove(p.Log)
}

// endOne ends a reader through the share, as a person does.
func (w *fixture) endOne() {
	file, err := vfs.OpenOS(w.file, os.O_RDONLY, 0, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	id := share.Identity{PageSize: 4096}
	if id.Dev, id.Ino, err = file.(*vfs.OSFile).Inode(); err != nil {
		w.t.Fatal(err)
	}
	v, err := share.Attach(shareDir(w.file), id)
	if err != nil {
		return // there is no owner
	}
	defer v.Close()
	if readers, err := v.Readers(); err == nil && len(readers) > 0 {
		if did, err := v.EndReader(readers[w.random.IntN(len(readers))]); err == nil && did {
			w.counts["(ended by hand)"]++
		}
	}
}

// step does something to the processes.
func (w *fixture) step() {
	w.t.Helper()
	i := w.random.IntN(len(w.readers))
	switch w.random.IntN(10) {
	case 0, 1, 2, 3:
		w.kill(w.owner)
		w.counts["(owners killed)"]++
		w.newOwner()
	case 4:
		w.kill(w.owner)
		w.kill(w.readers[i])
		w.newOwner()
		w.readers[i] = w.newReader()
	case 5, 6:
		w.kill(w.readers[i])
		w.counts["(readers killed)"]++
		w.readers[i] = w.newReader()
	case 7:
		w.readers[i].Pause(time.Duration(w.random.IntN(60)) * time.Millisecond)
	case 8:
		w.owner.Pause(time.Duration(w.random.IntN(60)) * time.Millisecond)
	case 9:
		w.endOne()
	}
	w.stillRuns(w.owner)
	for _, r := range w.readers {
		w.stillRuns(r)
	}
}

// TestKilled kills and stops owners and readers at random. What a reader says counts must be one state.
func TestKilled(t *testing.T) {
	seeds, _ := soak.Seeds(t, uint64(time.Now().UnixNano()), 1)
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newFixture(t, seed)
			w.newOwner()
			for range 3 {
				w.readers = append(w.readers, w.newReader())
			}
			length := killFor
			if d := soak.Duration(t); d > 0 {
				length = d
			}
			steps := 0
			for begun := time.Now(); time.Since(begun) < length && !t.Failed(); steps++ {
				time.Sleep(time.Duration(w.random.IntN(250)) * time.Millisecond)
				w.step()
			}
			w.kill(w.owner)
			w.counts["(owners killed)"]++
			for _, r := range w.readers {
				w.kill(r)
			}
			t.Logf("kills: %d steps, %v", steps, w.counts)
			for _, kind := range []string{"whole", "gone", "(owners killed)"} {
				if w.counts[kind] == 0 {
					t.Errorf("%s: none; the test has seen nothing of it", kind)
				}
			}
			w.sound()
		})
	}
}

// TestKilledCreation kills owners while they create the database. bbolt, started next, said "invalid database" of a file whose
// metas were not written yet, and TestKilled failed when its first owner was killed so early.
func TestKilledCreation(t *testing.T) {
	refused := 0
	for seed := range uint64(20) {
		w := newFixture(t, seed)
		w.owner = w.start("owner")
		for w.owner.Running() {
			if info, err := os.Stat(w.file); err == nil && info.Size() > 0 {
				break
			}
		}
		w.kill(w.owner)
		refused += goOnWithStock(t, w.file)
	}
	t.Logf("bbolt alone refused %d of 20 files", refused)

	// However fast the disk is, this is such a file.
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, make([]byte, 4*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	if goOnWithStock(t, file) == 0 {
		t.Error("bbolt opens a file of zeros: this test has nothing left to test")
	}
}

// goOnWithStock writes to a file with bbolt, and returns 1 if bbolt alone refused it.
func goOnWithStock(t *testing.T, file string) (refused int) {
	t.Helper()
	if err := lookAtCopy(file); errors.Is(err, bolterrors.ErrInvalid) {
		refused = 1
	}
	db, err := openStock(file)
	if err != nil {
		t.Fatalf("a file whose creation was cut short: %v", err)
	}
	err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucketIfNotExists(rowsName); return err })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return refused
}

// change commits a change.
func (w *fixture) change(db *holdfast.DB) error {
	return db.Update(func(tx *holdfast.Tx) error { return changeIn(tx, w.random) })
}

// sound sees that the database is what some transaction has left, for both engines.
func (w *fixture) sound() {
	w.t.Helper()
	db, err := holdfast.Open(w.file, 0o600, &holdfast.Options{Timeout: 10 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	faults, err := db.Verify(context.Background())
	err = errors.Join(err, db.View(func(tx *holdfast.Tx) error { return lookAt(tx, func() {}) }), db.Close())
	if err != nil || len(faults) > 0 {
		w.t.Fatalf("the database at the end: %v, %v", err, faults)
	}
	if err := lookAtCopy(w.file); err != nil {
		w.t.Fatalf("the database with bbolt: %v", err)
	}
}

// TestStoppedReader stops a reader in a transaction for a while: its pages stay, it is named, and when it is ended they are used
// again, though it stands still.
func TestStoppedReader(t *testing.T) {
	w := newFixture(t, 1)
	db, err := holdfast.Open(w.file, 0o600, &holdfast.Options{Share: shareDir(w.file), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	grow := func(n int) {
		t.Helper()
		for range n {
			if err := w.change(db); err != nil {
				t.Fatal(err)
			}
		}
	}
	grow(50)
	reader := w.start("slow")
	await(t, reader, func() bool { return db.Stats().OldestReader.Behind > 0 || growOne(grow) })
	if err := syscall.Kill(pidOf(t, w), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	grow(300)
	s := db.Stats()
	if s.OldestReader.Behind < 300 || s.PendingPageN == 0 {
		t.Errorf("a stopped reader holds nothing: %v", s)
	}
	readers := w.readersOf(t)
	if len(readers) != 1 || !readers[0].Holds {
		t.Fatalf("the readers are %+v", readers)
	}
	w.endOne()
	grow(2)
	if s := db.Stats(); s.OldestReader.Behind > 1 {
		t.Errorf("an ended reader holds: %v", s)
	}
	if err := syscall.Kill(int(readers[0].PID), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, reader, func() bool {
		counts, err := lines(reader.Log)
		return err == nil && counts["ended"] > 0
	})
	reader.Kill()
}

// TestDeadReader kills a reader in a transaction: what it held is free a moment later, though the owner commits nothing.
func TestDeadReader(t *testing.T) { deadReader(t, 0) }

// TestDeadReaderConfined is TestDeadReader with a reader that is process 1 of a container.
func TestDeadReaderConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a pid namespace")
	}
	deadReader(t, confined)
}

func deadReader(t *testing.T, namespaces uintptr) {
	w := newFixture(t, 2)
	db, err := holdfast.Open(w.file, 0o600, &holdfast.Options{Share: shareDir(w.file), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 200 { // so that it takes the reader a while
		if err := w.change(db); err != nil {
			t.Fatal(err)
		}
	}
	reader := w.startIn(namespaces, "slow")
	await(t, reader, func() bool {
		if err := w.change(db); err != nil {
			t.Fatal(err)
		}
		if db.Stats().OldestReader.Behind == 0 {
			return false
		}
		if inside := pidOf(t, w) == 1; inside != (namespaces != 0) {
			t.Errorf("the reader calls itself %d", pidOf(t, w))
		}
		reader.Kill()
		return true
	})
	for begun := time.Now(); db.Stats().OldestReader.Behind > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("a dead reader holds: %v", db.Stats())
		}
	}
}

func growOne(grow func(int)) bool {
	grow(1)
	return false
}

// readersOf are those of the share.
func (w *fixture) readersOf(t *testing.T) []share.ReaderInfo {
	t.Helper()
	list, err := share.List(shareDir(w.file))
	if err != nil || len(list) != 1 {
		t.Fatalf("the shares are %v (%v)", list, err)
	}
	v, err := share.Attach(shareDir(w.file), list[0].Identity)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	readers, err := v.Readers()
	if err != nil {
		t.Fatal(err)
	}
	return readers
}

// pidOf is the one reader that there is.
func pidOf(t *testing.T, w *fixture) int {
	t.Helper()
	readers := w.readersOf(t)
	if len(readers) != 1 {
		t.Fatalf("the readers are %+v", readers)
	}
	return int(readers[0].PID)
}

// await waits until is is true, while a process runs.
func await(t *testing.T, p *process.Process, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := p.Await(ctx, func() error {
		if is() {
			return nil
		}
		return errors.New("not yet")
	})
	if err != nil {
		t.Fatalf("%v (%s)", err, p.LastWords())
	}
}
