package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast"
)

func snapshotOf(t *testing.T, file string) (s holdfast.Snapshot) {
	t.Helper()
	must(t, json.Unmarshal(readFile(t, file), &s))
	return s
}

// TestStatsFile: a database that is open for writing shows its figures, and goes on
// showing them, under a name that is the same by any path; closed it shows none.
func TestStatsFile(t *testing.T) {
	path, dir := tempPath(t), filepath.Join(t.TempDir(), "deep", "er")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir, PageSize: 1024})
	must(t, err)
	defer db.Close()
	link := path
	if runtime.GOOS != "windows" { // where making one takes a privilege
		link = filepath.Join(t.TempDir(), "link")
		must(t, os.Symlink(path, link))
	}
	file, err := holdfast.StatsFile(dir, link)
	must(t, err)
	first := snapshotOf(t, file)
	if first.PID != os.Getpid() || first.PageSize != 1024 || first.FileSize != fileSize(t, path) || first.Stats.Commits != 0 ||
		filepath.Base(first.Path) != filepath.Base(path) || !strings.Contains(first.Program, ".test") {
		t.Errorf("%+v", first)
	}
	fill(t, db, 100, 10)
	for snapshotOf(t, file).Stats.Commits == 0 { // ends when the timer has run out
		time.Sleep(holdfast.StatsInterval / 20)
	}
	if s := snapshotOf(t, file); !s.Taken.After(first.Taken) || !s.Opened.Equal(first.Opened) || s.FileSize <= first.FileSize {
		t.Errorf("first %+v\nthen %+v", first, s)
	}
	must(t, db.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	reader, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir, ReadOnly: true})
	must(t, err)
	defer reader.Close()
	if _, err := os.Stat(file); err == nil {
		t.Error("one that reads shows figures")
	}
}

// A database with the longest name that there can be is shown too, and a link that was
// put where the figures are written is not followed.
func TestStatsFileNames(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("n", 250)+".db")
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	open := func() *holdfast.DB {
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir})
		must(t, err)
		return db
	}
	must(t, open().Close())
	file, err := holdfast.StatsFile(dir, path)
	must(t, err)
	must(t, os.Symlink(victim, file+".tmp"))
	db := open()
	defer db.Close()
	if s := snapshotOf(t, file); s.PID != os.Getpid() {
		t.Errorf("%+v", s)
	}
	if got := string(readFile(t, victim)); got != "precious" {
		t.Errorf("the file that a link leads to holds %q", got)
	}
}

// A directory that is none, or is gone, does not matter, and is told once.
func TestStatsFileCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	log := &memoryLogger{}
	db, err := holdfast.Open(tempPath(t), 0o600, &holdfast.Options{StatsDir: file, Logger: log})
	must(t, err)
	fill(t, db, 10, 10)
	must(t, db.Close())
	if n := strings.Count(log.text(), "are not shown in "+file); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.text())
	}
}

// TestEnvironmentVariables: each has values that are taken, and refuses others with a
// message that names them.
func TestEnvironmentVariables(t *testing.T) {
	good := map[string]string{"DURATION": "20ms", "DIRECTORY": t.TempDir()}
	last := ""
	for _, v := range holdfast.Environment() {
		if v.Name <= last || v.Meaning == "" || len(v.Values) == 0 {
			t.Errorf("%+v comes after %s", v, last)
		}
		last = v.Name
		for _, value := range append(v.Values, "") {
			if g := good[value]; g != "" {
				value = g
			}
			if err := v.Check(value); err != nil {
				t.Errorf("%s=%s: %v", v.Name, value, err)
			}
		}
		for _, value := range []string{"nonsense", "-1s"} {
			err := v.Check(value)
			if v.Name == "HOLDFAST_STATS" {
				continue // any word names a directory
			}
			if err == nil || !strings.Contains(err.Error(), v.Name+` is "`+value+`"; it can be `) {
				t.Errorf("%s=%s: %v", v.Name, value, err)
			}
		}
	}
	for name, value := range map[string]string{"HOLDFAST_PERIODIC_DELAY": "20ms", "HOLDFAST_SETTLE_DELAY": "off", "HOLDFAST_DURABILITY": "periodic"} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	t.Setenv("HOLDFAST_STATS", dir)
	log := &memoryLogger{}
	path := tempPath(t)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{Logger: log})
	must(t, err)
	defer db.Close()
	for _, want := range []string{"PeriodicDelay: 20ms", "SettleDelay: -1ns", "Durability: periodic", "StatsDir: " + dir} {
		if !strings.Contains(log.text(), want) {
			t.Errorf("no %s in %s", want, log.text())
		}
	}
	file, err := holdfast.StatsFile(dir, path)
	must(t, err)
	if s := snapshotOf(t, file); s.Path == "" {
		t.Errorf("%+v", s)
	}
}
