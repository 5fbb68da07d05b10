package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast"
)

// TestVacuumHolder: the process that has the file open is named.
func TestVacuumHolder(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	r := runProcess(t, process(t, "vacuum", "sample.db", "--timeout", "10ms"))
	wantIn(t, r, 1, "", fmt.Sprintf("sample.db: locked by another process for longer than 10ms, held by process %d (", os.Getpid()))
}

// TestVacuumPermission: a file that may only be read can be looked at; one that may be
// written needs no permission on its directory.
func TestVacuumPermission(t *testing.T) {
	dir := publicDir(t)
	t.Chdir(dir)
	makeBloated(t, "readable.db", 2000)
	check(t, os.Chmod("readable.db", 0o444))
	check(t, os.Mkdir("fixed", 0o755))
	makeBloated(t, "fixed/own.db", 2000)
	if os.Getuid() == 0 { // root may write everything
		check(t, os.Chown("fixed/own.db", nobody, nobody))
	}
	check(t, os.Chmod("fixed", 0o555))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "fixed"), 0o755) })
	as := func(args string) result {
		cmd := process(t, strings.Fields(args)...)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return runProcess(t, cmd)
	}
	before := snapshot(t, dir)
	wantIn(t, as("vacuum readable.db"), 1, "", "holdfast: readable.db: no permission to open it (it belongs to ")
	wantIn(t, as("vacuum readable.db --dry-run"), 0, "readable.db: about ", "")
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	wantIn(t, as("vacuum fixed/own.db"), 0, "given back (", "")
	wantFiles(t, "fixed", "own.db")
	var stat unix.Stat_t
	check(t, unix.Stat("fixed/own.db", &stat))
	if os.Getuid() == 0 && (stat.Uid != nobody || stat.Gid != nobody) {
		t.Errorf("the file belongs to %d.%d", stat.Uid, stat.Gid)
	}
}

// TestVacuumFullDisk: free pages are room enough. Where there are none the disk has to
// have some, and what to do is said.
func TestVacuumFullDisk(t *testing.T) {
	dir := workdir(t)
	check(t, os.Mkdir("small", 0o755))
	if err := unix.Mount("tmpfs", "small", "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "small"), unix.MNT_DETACH) })
	fillDisk := func() {
		f, err := os.Create("small/rest")
		check(t, err)
		for err == nil {
			_, err = f.Write(make([]byte, 1<<16))
		}
		check(t, f.Close())
	}
	makeBloated(t, "small/bloated.db", 20_000)
	makeHalfFilled(t, "small/half.db", 60_000)
	want := content(t, "small/half.db")
	fillDisk()
	wantIn(t, run(t, "vacuum", "small/bloated.db"), 0, "given back (9", "")
	fillDisk()
	r := run(t, "vacuum", "small/half.db")
	if r.code == 0 {
		t.Logf("it needed no room: %s", r)
	} else {
		wantIn(t, r, 1, "", ": no space left on its disk; ")
		wantIn(t, r, 1, "", "; free some space on that disk, a few MiB, and run it again to go on\n")
	}
	wantIn(t, run(t, "check", "small/half.db"), 0, ": sound\n", "")
	check(t, os.Remove("small/rest"))
	must(t, "vacuum", "small/half.db")
	if content(t, "small/half.db") != want {
		t.Error("the content is another")
	}
}

// TestDoctorRoom: whether a copy fits on the disk is said.
func TestDoctorRoom(t *testing.T) {
	dir := workdir(t)
	makeBloated(t, "bloated.db", 20_000)
	wantIn(t, run(t, "doctor", "bloated.db"), 0, "which needs up to 6.7 MiB of room on the disk; ", "")
	check(t, os.Mkdir("small", 0o755))
	if err := unix.Mount("tmpfs", "small", "tmpfs", 0, "size=35m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "small"), unix.MNT_DETACH) })
	data, err := os.ReadFile("bloated.db")
	check(t, err)
	check(t, os.WriteFile("small/bloated.db", data, 0o600))
	wantIn(t, run(t, "doctor", "small/bloated.db"), 0, "which needs up to 6.7 MiB of room on the disk, and does not fit: only ", "")
	if d := diagnose(t, "small/bloated.db"); d.DiskFree == nil || *d.DiskFree > 35<<20-int64(len(data)) {
		t.Errorf("%+v", d)
	}
	must(t, "vacuum", "small/bloated.db")
}

// makeHalfFilled makes a database of half-filled pages, of which next to none is free.
func makeHalfFilled(t *testing.T, path string, keys int) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
	check(t, err)
	db.AllocSize = 4096
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		check(t, err)
		for i := range keys {
			check(t, b.Put(fmt.Appendf(nil, "%08d", i*7919%keys), make([]byte, 100))) // in no order
		}
		return nil
	}))
	check(t, db.Close())
}
