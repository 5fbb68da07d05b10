package exporter

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

// hostile shares something that is no database, with any figures, until the test ends.
func hostile(t *testing.T, dir, document string) *share.Owner {
	t.Helper()
	return shareFile(t, dir, newFile(t), document)
}

func newFile(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	return path
}

func shareFile(t *testing.T, dir, path, document string) *share.Owner {
	t.Helper()
	file, err := vfs.OpenOS(path, os.O_RDWR, 0, nil)
	must(t, err)
	f := file.(*vfs.OSFile)
	id := share.Identity{PageSize: 4096}
	id.Dev, id.Ino, err = f.Inode()
	must(t, err)
	o, err := share.Create(dir, id, f, share.State{Tx: 1}, share.Options{})
	must(t, err)
	t.Cleanup(func() {
		_ = o.Close()
		_ = f.Close()
	})
	must(t, o.Figures([]byte(document)))
	return o
}

// document is that of a database, changed.
func document(t testing.TB, change func(s *holdfast.Snapshot)) string {
	s := &holdfast.Snapshot{Path: "/a.db", Program: "/bin/program", PageSize: 4096}
	change(s)
	b, err := json.Marshal(s)
	must(t, err)
	return string(b)
}

// TestHostile: what a share can say that no database does is left out, counted, and said once; the others are shown.
func TestHostile(t *testing.T) {
	dir := t.TempDir()
	open(t, filepath.Join(t.TempDir(), "good.db"), dir)
	for i, text := range hostileDocuments(t) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			x := start(t, dir, usual)
			hostile(t, dir, text)
			for range 2 {
				s := x.until(t, "holdfast_up good.db", 1)
				if got := s.value(t, "holdfast_exporter_errors"); got != 1 {
					t.Errorf("%q: %v errors", text, got)
				}
				for key := range s {
					if key != "holdfast_exporter_errors" && !strings.HasSuffix(key, " good.db") {
						t.Errorf("%q: %s is shown", text, key)
					}
				}
			}
			must(t, x.end())
			if said := x.said.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "its figures are not those of a database") {
				t.Errorf("it says %q", said)
			}
		})
	}
}

func hostileDocuments(t testing.TB) []string {
	return []string{
		"", "\x00\xff\x80", "{", "[]", `"text"`, "null", "{}", strings.Repeat("[", share.MaxFigures), strings.Repeat("\xff", share.MaxFigures),
		`{"Path":"/a.db","Program":"p","Stats":{"Commits":99999999999999999999999}}`,
		`{"Path":"/a.db","Program":"p","Stats":{"Commits":1e300}}`,
		"{\"Path\":\"/a\xffb\",\"Program\":\"p\"}",
		document(t, func(s *holdfast.Snapshot) { s.Path = "/a\nb" }),
		document(t, func(s *holdfast.Snapshot) { s.Path = "/\x1b[2Ja" }),
		document(t, func(s *holdfast.Snapshot) { s.Path = "a.db" }),
		document(t, func(s *holdfast.Snapshot) { s.Path = "/" + strings.Repeat("a", maxLabel) }),
		document(t, func(s *holdfast.Snapshot) { s.Program = "" }),
		document(t, func(s *holdfast.Snapshot) { s.Program = "a\x00b" }),
		document(t, func(s *holdfast.Snapshot) { s.Stats.Commits = -1 }),
		document(t, func(s *holdfast.Snapshot) { s.Stats.CommitLatency.Buckets[3] = -1 }),
		document(t, func(s *holdfast.Snapshot) { s.Stats.CommitLatency.Buckets[3] = 1 << 62 }),
		document(t, func(s *holdfast.Snapshot) { s.Stats.OldestReader.Age = -1 }),
	}
}

// TestHostileFiles: files with the name of a share that are none, or have changed under their owner, are left out.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	open(t, filepath.Join(t.TempDir(), "good.db"), dir)
	x := start(t, dir, usual)
	must(t, os.WriteFile(filepath.Join(dir, "1-1"), []byte("junk"), 0o600)) // without an owner, as a killed one leaves
	must(t, os.WriteFile(filepath.Join(dir, "01-1"), []byte("junk"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "other.json"), []byte("junk"), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "1-2"), 0o700))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "1-3")))
	if s := x.until(t, "holdfast_up good.db", 1); s.value(t, "holdfast_exporter_errors") != 2 {
		t.Errorf("%v errors", s["holdfast_exporter_errors"])
	}
	known := map[string]bool{}
	for _, name := range names(t, dir) {
		known[name] = true
	}
	hostile(t, dir, document(t, func(*holdfast.Snapshot) {}))
	for _, name := range names(t, dir) {
		if !known[name] {
			must(t, os.Truncate(filepath.Join(dir, name), 100)) // its figures are gone under the reader
		}
	}
	if s := x.until(t, "holdfast_up good.db", 1); s.value(t, "holdfast_exporter_errors") != 3 {
		t.Errorf("%v errors", s["holdfast_exporter_errors"])
	}
}

// TestNeverWhole: shares that are being written for ever, or whose owners stand still in the middle of it, are left out, and
// take the time of one.
func TestNeverWhole(t *testing.T) {
	dir := t.TempDir()
	x := start(t, dir, usual)
	text := document(t, func(s *holdfast.Snapshot) { s.Path = "/never whole" })
	const many = 50
	for range many {
		hostile(t, dir, text)
	}
	for _, name := range names(t, dir) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		content, err := io.ReadAll(f)
		must(t, err)
		at := strings.Index(string(content), text) - 16 // the sequence, and the length
		if at < 0 {
			t.Fatal("the figures are elsewhere")
		}
		_, err = f.WriteAt([]byte{content[at] + 1}, int64(at)) // the lowest byte is the first, or the last: odd
		must(t, err)
		_, err = f.WriteAt([]byte{content[at+7] + 1}, int64(at+7))
		must(t, err)
	}
	open(t, filepath.Join(t.TempDir(), "good.db"), dir)
	began := time.Now()
	s := x.until(t, "holdfast_up good.db", 1)
	if got := s.value(t, "holdfast_exporter_errors"); got != many {
		t.Errorf("%v errors", got)
	}
	if took := time.Since(began); took > many*time.Second/2 {
		t.Errorf("it took %v", took)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	all, passed, err := shareNames(dir)
	must(t, err)
	if passed != 0 {
		t.Fatal(passed)
	}
	return all
}

// TestSamePath: of two shares that say the same path the one that said so first stays, whatever their names are.
func TestSamePath(t *testing.T) {
	for _, swapped := range []bool{false, true} { // one of them is in the order of the names
		dir := t.TempDir()
		c := newCollector(dir, log.New(io.Discard, "", 0))
		files := []string{newFile(t), newFile(t)}
		if swapped {
			slices.Reverse(files)
		}
		commits := func(n int) string { return document(t, func(s *holdfast.Snapshot) { s.Stats.Commits = n }) }
		shows := func(n, left int) {
			t.Helper()
			living, _, l := c.look()
			if len(living) != 1 || living[0].Stats.Commits != n || l != left {
				t.Errorf("shown is %+v, %d are left out", living, l)
			}
		}
		first := shareFile(t, dir, files[0], commits(1))
		shows(1, 0)
		shareFile(t, dir, files[1], commits(2))
		shows(1, 1)
		must(t, first.Close())
		shows(2, 0)
	}
}

// TestManyShares: a directory is read to a bound.
func TestManyShares(t *testing.T) {
	dir := t.TempDir()
	for i := range maxShares + 7 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("1-%x", i+1)), nil, 0o600))
	}
	all, passed, err := readAll(dir)
	if len(all) != maxShares || passed != 7 || err != nil {
		t.Error(len(all), passed, err)
	}
}

// FuzzFigures: any document is refused, or gives metrics that Prometheus takes.
func FuzzFigures(f *testing.F) {
	f.Add([]byte(document(f, func(*holdfast.Snapshot) {})))
	for _, text := range hostileDocuments(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var r reading
		if r.decode(document) != nil {
			return
		}
		registry := prometheus.NewRegistry()
		must(t, registry.Register(fixed{&r}))
		if _, err := registry.Gather(); err != nil {
			t.Error(err)
		}
	})
}

// fixed collects one reading.
type fixed struct{ *reading }

func (f fixed) Describe(to chan<- *prometheus.Desc) { newCollector("", nil).Describe(to) }

func (f fixed) Collect(to chan<- prometheus.Metric) {
	f.metrics(func(m prometheus.Metric, err error) {
		if err != nil {
			m = prometheus.NewInvalidMetric(descErrors, err)
		}
		to <- m
	})
}
