package command_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// content is everything that a database holds, as text.
func content(t *testing.T, path string) string {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	var b strings.Builder
	var walk func(path string, in *holdfast.Bucket) error
	walk = func(path string, in *holdfast.Bucket) error {
		fmt.Fprintln(&b, path, in.Sequence())
		return in.ForEach(func(k, v []byte) error {
			if v == nil {
				return walk(fmt.Sprintf("%s/%x", path, k), in.Bucket(k))
			}
			fmt.Fprintf(&b, "%s/%x=%x\n", path, k, v)
			return nil
		})
	}
	check(t, db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return tx.ForEach(func(name []byte, in *holdfast.Bucket) error { return walk(fmt.Sprintf("%x", name), in) })
	}))
	return b.String()
}

func TestCompact(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := withSample(t)
	check(t, os.Chmod("sample.db", 0o640))
	want, before := content(t, "sample.db"), snapshot(t, "sample.db")
	for _, args := range []string{"", "--tx-max-size 100", "--tx-max-size 0", "--no-sync"} {
		out := must(t, append([]string{"compact", "-o", "copy.db", "sample.db"}, strings.Fields(args)...)...)
		if !strings.HasPrefix(out, "sample.db -> copy.db: 32 KiB (32,768 bytes) -> ") {
			t.Errorf("got %q", out)
		}
		if got := content(t, "copy.db"); got != want {
			t.Errorf("%s: the copy holds\n%s\nwant\n%s", args, got, want)
		}
		info, err := os.Stat("copy.db")
		check(t, err)
		wantMode(t, "copy.db", 0o640)
		if info.Size() >= 32768 || info.Size()%samplePage != 0 {
			t.Errorf("%s: the copy has %d bytes", args, info.Size())
		}
		check(t, os.Remove("copy.db"))
	}
	if after := snapshot(t, "sample.db"); after != before {
		t.Errorf("the source changed: before\n%s\nafter\n%s", before, after)
	}
	golden(t, here, "compact.json.golden", zero(must(t, "compact", "-o", "copy.db", "sample.db", "--json")))
	// The copy can be worked on.
	must(t, "put", "copy.db", "alpha", "k", "v")
	must(t, "check", "copy.db")
	wantFiles(t, dir, "copy.db sample.db")
}

func wantFiles(t *testing.T, dir, want string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != want {
		t.Errorf("there are %v, want %s", got, want)
	}
}

func TestCompactRefuses(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("other", []byte("precious"), 0o600))
	check(t, os.Link("sample.db", "link.db"))
	symlink(t, "other", "symlink")
	check(t, os.Mkdir("sub", 0o700))
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"compact sample.db", 2, "output"},
		{"compact -o sample.db sample.db", 2, "sample.db: the output cannot replace the database that it is made from"},
		{"compact -o link.db sample.db --force", 2, "link.db: the output cannot replace"},
		{"compact -o other sample.db", 1, "other: exists already; --force replaces it"},
		{"compact -o symlink sample.db", 1, "symlink: exists already; --force replaces it"},
		{"compact -o sub sample.db --force", 1, "sub: is not a regular file"},
		{"compact -o gone/copy.db sample.db", 1, "gone/copy.db: the directory gone does not exist"},
		{"compact -o copy.db gone.db", 1, "gone.db: no such file"},
	} {
		r := run(t, strings.Fields(c.args)...)
		wantIn(t, r, c.code, "", "holdfast: ")
		wantIn(t, r, c.code, "", c.want)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	must(t, "compact", "-o", "symlink", "sample.db", "--force")
	if got := content(t, "other"); got != content(t, "sample.db") {
		t.Errorf("the copy through a symbolic link holds\n%s", got)
	}
	if info, err := os.Lstat("symlink"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the symbolic link was replaced: %v %v", info.Mode(), err)
	}
}

// TestOutputIsNoDanglingLink: a symbolic link to a file that does not exist was itself replaced
// by what a command made, without --force, where one to a file stays and the file is replaced.
func TestOutputIsNoDanglingLink(t *testing.T) {
	for _, c := range making {
		t.Run(c.name, func(t *testing.T) {
			makeInputs(t)
			symlink(t, "gone.db", "new.db")
			r := run(t, strings.Fields(c.args)...)
			wantIn(t, r, command.ExitFailed, "", "new.db: is a symbolic link to gone.db, which does not exist; give that name, or remove the link")
			if target, err := os.Readlink("new.db"); err != nil || target != "gone.db" {
				t.Errorf("the link is to %q now: %v", target, err)
			}
		})
	}
}

// TestCompactLarger: a file whose pages are full becomes larger, and that is said, but not
// in bbolt's shape or in JSON.
func TestCompactLarger(t *testing.T) {
	workdir(t)
	db, err := holdfast.Open("full.db", 0o600, &holdfast.Options{PageSize: 4096, NoSync: true, NoFreelistSync: true})
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		b.FillPercent = 1
		for i := 0; i < 4000 && err == nil; i++ {
			err = b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 78)) // forty of them fill a page to its end
		}
		return err
	}))
	size := int64(0)
	check(t, db.View(func(tx *holdfast.Tx) error { size = tx.Size(); return nil }))
	check(t, db.Close())
	check(t, os.Truncate("full.db", size)) // it grew by more
	said := "\nThe copy is larger: full.db had little to gain, and the pages of a copy have room for a checksum.\n"
	wantIn(t, run(t, "compact", "-o", "copy.db", "full.db"), 0, said, "")
	for _, r := range []result{
		run(t, "compact", "-o", "copy.db", "full.db", "--force", "--json"),
		execute(command.NewBboltCommand(), "", "compact", "-o", "another.db", "full.db"),
		run(t, "compact", "-o", "same.db", "another.db"),
	} {
		if r.code != 0 || strings.Contains(r.out, "larger") {
			t.Errorf("got %s", r)
		}
	}
}

// TestCompactStock: bbolt fills a database that exists and has no buckets.
func TestCompactStock(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("copy.db", 0o600, nil)
	check(t, err)
	check(t, db.Close())
	stock := func(args ...string) result { return execute(command.NewBboltCommand(), "", args...) }
	wantIn(t, stock("compact", "-o", "copy.db", "sample.db"), 0, "32768 -> ", "")
	if content(t, "copy.db") != content(t, "sample.db") {
		t.Error("the copy differs")
	}
	wantIn(t, stock("compact", "-o", "copy.db", "sample.db"), 1, "", "copy.db: exists already")
}

// TestCompactInterrupted: a context that ends before the copy is complete leaves nothing
// behind.
func TestCompactInterrupted(t *testing.T) {
	dir := workdir(t)
	makeBig(t, "big.db", 100_000)
	wantFiles(t, dir, "big.db")
	for _, while := range []string{"", ".copy.db.*.tmp"} { // before it begins, and once that is there
		for try := 1; ; try++ {
			ctx, cancel := context.WithCancel(t.Context())
			if while == "" {
				cancel()
			}
			stop := make(chan struct{})
			go func() {
				defer cancel()
				for there := []string{}; len(there) == 0; there, _ = filepath.Glob(while) {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond):
					}
				}
			}()
			root := command.NewRootCommand()
			var errOut strings.Builder
			root.SetOut(io.Discard)
			root.SetErr(&errOut)
			root.SetArgs([]string{"compact", "-o", "copy.db", "big.db", "--tx-max-size", "1000"})
			code := command.Execute(ctx, root)
			close(stop)
			if code == 0 && while != "" && try < 50 { // the test did not look in time
				check(t, os.Remove("copy.db"))
				continue
			}
			if code != command.ExitInterrupted || !strings.Contains(errOut.String(), "holdfast: copy.db: interrupted, nothing was written\n") {
				t.Errorf("%q: exit code %d, %s", while, code, &errOut)
			}
			break
		}
		wantFiles(t, dir, "big.db")
	}
}
