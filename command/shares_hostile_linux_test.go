package command_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

// openFile is a file that is open until the test ends.
func openFile(t *testing.T, path string) *vfs.OSFile {
	t.Helper()
	f, err := vfs.OpenOS(path, os.O_RDWR, 0, nil)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f.(*vfs.OSFile)
}

// forged is the share of the database at path that a process makes which has anything but a database.
func forged(t *testing.T, path string) (*share.Owner, share.Identity) {
	t.Helper()
	f := openFile(t, path)
	var err error
	id := share.Identity{PageSize: 4096}
	id.Dev, id.Ino, err = f.Inode()
	check(t, err)
	o, err := share.Create("share", id, f, share.State{Tx: 1}, share.Options{})
	check(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return o, id
}

// commandsOnShares are run on shares that can be anything. What they print is text.
var commandsOnShares = []string{
	"top --dir share", "top --dir share --json", "top sample.db --dir share --count 1 --interval 10ms", "top sample.db --dir share --count 1 --interval 10ms --json",
	"top 1 --dir share --count 1 --interval 10ms", "readers sample.db --dir share", "readers sample.db --dir share --json", "readers sample.db --dir share --end 7",
}

func onlyText(t *testing.T, what string, r result) {
	t.Helper()
	if r.code > 2 || strings.ContainsAny(r.out+r.errOut, "\x1b\x07\x00") || strings.Contains(r.errOut, "panic") {
		t.Errorf("%s: %q", what, r)
	}
}

// TestForgedShare: figures and slots are what another process writes, which may be anything.
func TestForgedShare(t *testing.T) {
	withSample(t)
	o, id := forged(t, "sample.db")
	r, err := share.Open("share", id, openFile(t, "sample.db"))
	check(t, err)
	defer r.Close()
	_, err = r.Begin()
	check(t, err)
	file := filepath.Join("share", fmt.Sprintf("%x-%x", id.Dev, id.Ino))
	words, err := os.OpenFile(file, os.O_RDWR, 0)
	check(t, err)
	defer words.Close()
	const slot = 64 * 8 // layout.go
	for _, figures := range []string{"", "{", "null", `"x"`, `{"Path":1}`, "\x1b[31m", strings.Repeat("[", share.MaxFigures), `{"Path":"a\u001b[31m.db","Program":"/x/\u0007y","PID":1}`,
		`{"Path":"a","PID":-1,"PageSize":9223372036854775807,"FileSize":-1,"Taken":"9999-12-31T00:00:00Z","Stats":{"FreePageN":9223372036854775807,"OldestReader":{"Age":-9223372036854775808},"CommitLatency":{"Buckets":[-5]}}}`} {
		check(t, o.Figures([]byte(figures)))
		for _, value := range []uint64{7, 0, math.MaxUint64, math.MaxInt64 + 1} {
			for field := range 4 {
				_, err := words.WriteAt(binary.NativeEndian.AppendUint64(nil, value), slot+int64(field)*8)
				check(t, err)
			}
			for _, args := range commandsOnShares {
				onlyText(t, fmt.Sprintf("%s, figures %.40q, slot of %d", args, figures, value), run(t, strings.Fields(args)...))
			}
		}
	}
	check(t, o.Figures([]byte(`{"Path":"a\u001b[31m.db","Program":"/x/\u0007y","PID":1}`)))
	wantIn(t, run(t, "top", "--dir", "share"), 0, " \"a\\x1b[31m.db\"  (not heard of", "")
	wantIn(t, run(t, "top", "--dir", "share"), 0, "\"\\ay\" ", "")
	wantIn(t, run(t, "top", "sample.db", "--dir", "share", "--count", "1", "--interval", "10ms"), 0, "", "not heard of for 10s: its program is stopped, or hangs")
	check(t, o.Figures([]byte("no JSON")))
	wantIn(t, run(t, "top", "sample.db", "--dir", "share"), 1, "", "sample.db: its share cannot be used: it does not hold figures of a database")
	wantIn(t, run(t, "top", "--dir", "share"), 0, "no database is shared in share\n", "share: note: passed over: the share of process ")
}

// TestNoShare: files that are no shares, with the lock that an owner has and without.
func TestNoShare(t *testing.T) {
	withSample(t)
	o, id := forged(t, "sample.db")
	name := filepath.Join("share", fmt.Sprintf("%x-%x", id.Dev, id.Ino))
	whole, err := os.ReadFile(name)
	check(t, err)
	check(t, o.Close())
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, len(whole))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	other := bytes.Clone(whole)
	other[4*8] ^= 1 // of another boot
	for i, data := range [][]byte{nil, noise[:5], noise, whole[:len(whole)-1], other, bytes.Repeat([]byte{0xff}, len(whole))} {
		for _, file := range []string{name, "share/\x1b[31mred"} {
			check(t, os.WriteFile(file, data, 0o600))
		}
		for _, args := range commandsOnShares {
			onlyText(t, fmt.Sprintf("%d: %s", i, args), run(t, strings.Fields(args)...))
		}
		for _, file := range []string{name, "share/\x1b[31mred"} {
			if locked, err := openFile(t, file).TryLockByte(0); !locked {
				t.Fatal(err)
			}
		}
		for _, args := range commandsOnShares {
			onlyText(t, fmt.Sprintf("%d, locked: %s", i, args), run(t, strings.Fields(args)...))
		}
		wantIn(t, run(t, "readers", "sample.db", "--dir", "share"), 1, "", "sample.db: its share cannot be used: ")
		wantIn(t, run(t, "top", "--dir", "share"), 0, "no database is shared in share\n", "share: note: passed over: share/\\x1b[31mred")
		for _, file := range []string{name, "share/\x1b[31mred"} {
			check(t, os.Remove(file))
		}
	}
}
