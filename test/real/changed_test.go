package real

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// change is what somebody does to an open file.
type change struct {
	name string
	do   func(r *rand.Rand, path string) error
	// harmless: nothing may fail.
	harmless bool
	// blind: bytes of values may become others, which nobody can tell.
	blind bool
	// bites: something must fail, or the test tests nothing.
	bites bool
	// short: the file is shorter, so nothing more may be acknowledged.
	short bool
}

// changes are all in which the file keeps its name, and two in which the
// process goes on with a file that has lost it.
var changes = []change{
	{name: "cut to nothing", short: true, bites: true, do: func(_ *rand.Rand, path string) error { return os.Truncate(path, 0) }},
	{name: "cut within the first meta", short: true, bites: true, blind: true, do: func(_ *rand.Rand, path string) error { return os.Truncate(path, 40) }},
	{name: "cut behind the metas", short: true, bites: true, do: func(_ *rand.Rand, path string) error { return os.Truncate(path, 2*16384) }},
	{name: "cut in half", short: true, bites: true, do: func(_ *rand.Rand, path string) error { return cut(path, 0.5, 65536) }},
	{name: "cut at any page", short: true, do: func(r *rand.Rand, path string) error { return cut(path, r.Float64(), 65536) }},
	// A page that is cut within reads as zeros behind the cut.
	{name: "cut anywhere", short: true, blind: true, do: func(r *rand.Rand, path string) error { return cut(path, r.Float64(), 1) }},
	{name: "cut to nothing and grown", bites: true, blind: true, do: func(_ *rand.Rand, path string) error { return cutAndGrow(path, 0) }},
	{name: "cut and grown", blind: true, do: func(r *rand.Rand, path string) error { return cutAndGrow(path, r.Float64()) }},
	{name: "overwritten", bites: true, blind: true, do: func(r *rand.Rand, path string) error { return scribble(r, path, 0, 1) }},
	{name: "metas overwritten", blind: true, do: func(r *rand.Rand, path string) error { return scribble(r, path, 0, 0) }},
	{name: "partly overwritten", blind: true, do: func(r *rand.Rand, path string) error { return scribble(r, path, r.Float64(), r.Float64()) }},
	{name: "replaced by rename", harmless: true, do: func(r *rand.Rand, path string) error {
		if err := os.WriteFile(path+".new", randomBytes(r, 100_000), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}},
	{name: "removed", harmless: true, do: func(_ *rand.Rand, path string) error { return os.Remove(path) }},
}

// cut cuts the file off at that share of its length, at a multiple of align.
func cut(path string, share float64, align int64) error {
	return os.Truncate(path, int64(share*float64(fileSize(path)))/align*align)
}

func cutAndGrow(path string, share float64) error {
	size := fileSize(path)
	return errors.Join(cut(path, share, 1), os.Truncate(path, size))
}

// scribble writes random bytes from one share of the file to another, and over
// the metas if it begins with them.
func scribble(r *rand.Rand, path string, from, to float64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size := float64(fileSize(path))
	first, last := min(from, to)*size, max(from, to)*size
	_, err = f.WriteAt(randomBytes(r, max(int(last-first), 8192)), int64(first))
	return errors.Join(err, f.Close())
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestChangedUnderneath changes the file of a running process in all these
// ways, while it idles with transactions open and while it works. It must not
// die, nor hang, and what it reads must be right or an error.
func TestChangedUnderneath(t *testing.T) {
	counts := map[string]int{}
	for seed := range seeds(t, 1) {
		sample := newSample(t, t.TempDir(), seed)
		for _, c := range changes {
			for _, busy := range []bool{false, true} {
				name := fmt.Sprintf("%s/busy=%v/%d", strings.ReplaceAll(c.name, " ", "-"), busy, seed)
				t.Run(name, func(t *testing.T) {
					againWith(t, seed)
					o := sample
					o.Busy = busy
					o.Path = filepath.Join(t.TempDir(), "db")
					must(t, copyFile(o.Path, sample.Path, 1<<20))
					changeUnder(t, o, c, rand.New(rand.NewPCG(seed, 1)), counts)
				})
			}
		}
	}
	t.Log(counts)
}

// newSample makes the file that each victim has a copy of.
func newSample(t *testing.T, dir string, seed uint64) order {
	r := rand.New(rand.NewPCG(seed, 0))
	o := order{Role: "victim", Path: filepath.Join(dir, "sample"), History: r.Uint64(), Large: 60 << 10, Commits: 150}
	o.Options.PageSize = []int{1024, 4096, 16384}[r.IntN(3)]
	o.Options.NoFreelistSync = r.IntN(2) == 0
	db, err := openHoldfast(o.Path, o.Options)
	must(t, err)
	db.NoSync = true
	m := newModel(history{seed: o.History, large: o.Large})
	for n := uint64(1); n <= o.Commits; n++ {
		must(t, db.update(func(tx transaction) error { return m.edit(tx.root, n) }))
	}
	must(t, db.Close())
	return o
}

// result is what a victim said of an operation.
type result struct{ what, gave, text string }

// commits are the operations that acknowledge something.
var commits = []string{"commit", "update", "batch", "delete"}

func changeUnder(t *testing.T, o order, c change, r *rand.Rand, counts map[string]int) {
	results, err := runVictimUnder(o, func() error { return c.do(r, o.Path) })
	for _, r := range results {
		counts[r.gave]++
	}
	if err != nil {
		t.Fatalf("page size %d: %v\n%d results, last: %q", o.Options.PageSize, err, len(results), results[max(0, len(results)-3):])
	}
	verifyResults(t, o, c, results)
	if c.harmless {
		return
	}
	o.Role = "look"
	if _, err := runVictimUnder(o, nil); err != nil {
		t.Errorf("page size %d, opening what was left: %v", o.Options.PageSize, err)
	}
}

// verifyResults wants each operation to have a result, and the right kind.
func verifyResults(t *testing.T, o order, c change, results []result) {
	failed := 0
	for _, r := range results {
		bad := false
		switch r.gave {
		case gaveError:
			failed++
			bad = c.harmless
		case gaveOther:
			failed++
			bad = c.harmless || !c.blind
		case gaveWrong:
			bad = !c.blind
		case gaveRight:
			// (A busy process may have been in the middle of a commit, and what it
			// wrote made the file long again.)
			bad = c.short && !o.Busy && slices.Contains(commits, r.what)
			if c.blind && r.what == "delete" { // of zeros it may read that there is nothing to delete
				bad = false
			}
		}
		if bad {
			t.Errorf("page size %d: %s gave %s: %s", o.Options.PageSize, r.what, r.gave, r.text)
		}
	}
	if c.bites && failed == 0 {
		t.Errorf("page size %d: nothing failed", o.Options.PageSize)
	}
	for _, op := range operations {
		if !slices.ContainsFunc(results, func(r result) bool { return r.what == op.name }) {
			t.Errorf("no result of %q", op.name)
		}
	}
}

// runVictimUnder starts a process, calls change when the process is ready and
// has been working for a while, and waits for its end.
func runVictimUnder(o order, change func() error) ([]result, error) {
	c, err := start(o)
	if err != nil {
		return nil, err
	}
	hung := time.AfterFunc(2*time.Minute, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
	defer hung.Stop()
	results, err := listen(c, o.Busy, change)
	err = errors.Join(err, c.wait())
	if state := c.cmd.ProcessState; err == nil && !state.Success() {
		err = fmt.Errorf("the process died: %s", state)
	}
	return results, err
}

// busyFor is how often a busy process says that it has done something before
// its file is changed, and again before it is stopped.
const busyFor = 20

func listen(c *child, busy bool, change func() error) (results []result, err error) {
	alive, ready, changed := 0, false, change == nil
	for in := bufio.NewScanner(c.out); in.Scan(); {
		var r result
		switch line := in.Text(); {
		case strings.HasPrefix(line, saysReady):
			ready = true
		case strings.HasPrefix(line, saysAlive):
			alive++
		case strings.HasPrefix(line, "fault"):
			err = errors.Join(err, errors.New(line))
		default:
			if _, scanned := fmt.Sscanf(line, "%q %s %q", &r.what, &r.gave, &r.text); scanned != nil {
				err = errors.Join(err, fmt.Errorf("line %q: %w", line, scanned))
			}
			results = append(results, r)
		}
		if ready && !changed && (!busy || alive >= busyFor) {
			changed, alive = true, 0
			err = errors.Join(err, change())
		}
		if ready && changed && (!busy || alive >= busyFor) {
			ready = false
			_, told := fmt.Fprintln(c.in, "changed")
			err = errors.Join(err, told)
		}
	}
	return results, err
}
