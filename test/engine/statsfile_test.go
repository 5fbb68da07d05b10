package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/internal/share"
)

// figuresOf are the figures that a database shows in dir, in its share or where the system has none in a file; ok is false if
// there are none.
func figuresOf(t *testing.T, dir, path string) (s holdfast.Snapshot, ok bool) {
	t.Helper()
	file, err := holdfast.StatsFile(dir, path)
	must(t, err)
	document := readFile(t, file)
	if runtime.GOOS == "linux" {
		if document != nil {
			t.Errorf("%s: figures are in a file, too", file)
		}
		list, err := share.List(dir)
		must(t, err)
		for _, info := range list {
			v, err := share.Attach(dir, info.Identity)
			must(t, err)
			document, err = v.Figures()
			must(t, errors.Join(err, v.Close()))
			must(t, json.Unmarshal(document, &s))
			if at, err := filepath.EvalSymlinks(path); err == nil && at == s.Path {
				return s, true
			}
		}
		return s, false
	}
	if document == nil {
		return s, false
	}
	must(t, json.Unmarshal(document, &s))
	return s, true
}

// TestStatsDir: a database that is open for writing shows its figures in Options.StatsDir, and goes on
// showing them; closed it shows none.
func TestStatsDir(t *testing.T) {
	path, dir := tempPath(t), filepath.Join(t.TempDir(), "deep", "er")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir, PageSize: 1024})
	must(t, err)
	defer db.Close()
	link := path
	if runtime.GOOS != "windows" { // where making one takes a privilege
		link = filepath.Join(t.TempDir(), "link")
		must(t, os.Symlink(path, link))
	}
	first, ok := figuresOf(t, dir, link)
	if !ok || first.PID != os.Getpid() || first.PageSize != 1024 || first.FileSize != fileSize(t, path) || first.Stats.Commits != 0 ||
		filepath.Base(first.Path) != filepath.Base(path) || !strings.Contains(first.Program, ".test") {
		t.Errorf("%+v", first)
	}
	fill(t, db, 100, 10)
	now := first
	for ; now.Stats.Commits == 0; now, _ = figuresOf(t, dir, path) { // ends when the timer has run out
		time.Sleep(holdfast.StatsInterval / 20)
	}
	if !now.Taken.After(first.Taken) || !now.Opened.Equal(first.Opened) || now.FileSize <= first.FileSize {
		t.Errorf("first %+v\nthen %+v", first, now)
	}
	must(t, db.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	reader, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir, ReadOnly: true})
	must(t, err)
	defer reader.Close()
	if _, ok := figuresOf(t, dir, path); ok {
		t.Error("one that reads shows figures")
	}
}

// A database with the longest name that there can be is shown too.
func TestStatsOfLongName(t *testing.T) {
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), strings.Repeat("n", 250)+".db")
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{StatsDir: dir})
	must(t, err)
	defer db.Close()
	if s, ok := figuresOf(t, dir, path); !ok || s.PID != os.Getpid() {
		t.Errorf("%+v", s)
	}
}

// A directory that is none, or is gone, does not matter, and is told once.
func TestStatsDirCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	log := &memoryLogger{}
	db, err := holdfast.Open(tempPath(t), 0o600, &holdfast.Options{StatsDir: file, Logger: log})
	must(t, err)
	fill(t, db, 10, 10)
	must(t, db.Close())
	told := "are not shown in " + file
	if runtime.GOOS == "linux" {
		told = "is not shared with other processes in " + file
	}
	if n := strings.Count(log.text(), told); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.text())
	}
}

// TestEnvironmentVariables: each has values that are taken, and refuses others with a
// message that names them.
func TestEnvironmentVariables(t *testing.T) {
	good := map[string]string{"DURATION": "20ms", "DIRECTORY": t.TempDir(), "PATH": t.TempDir()}
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
	if s, ok := figuresOf(t, dir, path); !ok || s.Path == "" {
		t.Errorf("%+v", s)
	}
}
