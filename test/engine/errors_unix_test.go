//go:build unix

package engine

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"holdfast"
)

var shortenedCases = map[string]func(*errorRow){
	"shortened-read": func(r *errorRow) {
		metas := func(int64) int64 { return 2 * int64(os.Getpagesize()) }
		tryShortened(r, metas, func(db *holdfast.DB) error { return db.View(readAll) })
	},
	"shortened-commit": func(r *errorRow) { // by a byte that is not read
		tryShortened(r, func(size int64) int64 { return size - 1 }, func(db *holdfast.DB) error {
			return db.Update(func(tx *holdfast.Tx) error { _, err := tx.CreateBucket([]byte("new")); return err })
		})
	},
}

// tryShortened uses a database whose file was shortened to size bytes.
func tryShortened(r *errorRow, less func(size int64) int64, use func(*holdfast.DB) error) {
	db, _ := shortened(r, nil)
	defer db.Close() // may say that it left no freelist page
	info, err := os.Stat(db.Path())
	must(r, err)
	must(r, os.Truncate(db.Path(), less(info.Size())))
	for range 2 {
		r.tryPath("shortened", db.Path(), func(string) error { return use(db) })
	}
}

// nobody is a user other than root.
const nobody = 65534

// tryNoPermission opens a file whose permissions forbid it, as a user to whom
// permissions matter.
func tryNoPermission(r *errorRow) {
	dir, err := os.MkdirTemp("", "holdfast") // that of the test is closed to others
	must(r, err)
	r.Cleanup(func() { os.RemoveAll(dir) })
	must(r, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "db")
	must(r, os.WriteFile(path, newSample(r).data, 0o600))

	cmd := exec.Command(os.Args[0], path)
	if os.Getuid() == 0 {
		binary := filepath.Join(dir, "test")
		// Not written by this process: another test may fork meanwhile and so
		// keep the file open for writing, and it could not be run.
		must(r, exec.Command("cp", os.Args[0], binary).Run())
		must(r, os.Chmod(binary, 0o755))
		cmd = exec.Command(binary, path)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Env = append(os.Environ(), childEnv+"=open")
	r.tryPath("another user", path, func(string) error {
		if os.Getuid() != 0 {
			must(r, os.Chmod(path, 0)) // not earlier: tryPath reads the file before and after
			defer os.Chmod(path, 0o600)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("run the other process: %v: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, line := range lines {
			if !strings.HasPrefix(line, "true ") || !strings.Contains(line, path) {
				return fmt.Errorf("not refused: %s", out)
			}
		}
		if len(lines) != 2 {
			return fmt.Errorf("tried %d times, want 2: %s", len(lines), out)
		}
		return fmt.Errorf("%w: %s", fs.ErrPermission, out)
	})
}

// longValue is a value of more bytes than MaxValueSize, of memory that is not
// touched, so that none is used. It is to be called on the test's own goroutine:
// half the address space of a 32-bit program is sometimes not there in one piece,
// depending on where the system put the rest, and the row is then skipped. Called
// within a call that is watched, the skip was taken for a panic.
func longValue(r *errorRow, more int) []byte {
	n := holdfast.MaxValueSize + more
	value, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil && strconv.IntSize == 32 {
		r.Skipf("map %d bytes: %v", n, err)
	}
	must(r, err)
	r.Cleanup(func() { _ = syscall.Munmap(value) })
	return value
}
