package engine

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast"
)

// HOLDFAST_SEALS=off leaves seals out, whatever the options are, and a value that
// is not known is an error before anything happens.
func TestEnvironmentSeals(t *testing.T) {
	for value, want := range map[string]bool{"": true, "on": true, "off": false} {
		for _, options := range []*holdfast.Options{nil, {PageSize: 1024}, {NoSeals: true}} {
			t.Setenv("HOLDFAST_SEALS", value)
			sealed := want && (options == nil || !options.NoSeals)
			var before holdfast.Options
			if options != nil {
				before = *options
			}
			path := tempPath(t)
			db, err := holdfast.Open(path, 0o600, options)
			must(t, err)
			fill(t, db, 1000, 10)
			pageSize := db.Info().PageSize
			must(t, db.Close())
			runs, full := runsOf(t, readFile(t, path), pageSize)
			if (len(runs) > 0) != sealed || len(runs)+len(full) == 0 && sealed {
				t.Errorf("%q, %v: %d pages are sealed", value, options, len(runs))
			}
			if options != nil && options.NoSeals != before.NoSeals {
				t.Error("Open has changed the options that it was given")
			}
		}
	}
	t.Setenv("HOLDFAST_SEALS", "of")
	path := tempPath(t)
	if _, err := holdfast.Open(path, 0o600, nil); err == nil || !strings.Contains(err.Error(), `HOLDFAST_SEALS is "of"; it can be "off" or "on"`) {
		t.Errorf("an unknown value: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was made")
	}
}

// HOLDFAST_DURABILITY and HOLDFAST_STRICT_COMPAT say how commits are made, whatever
// the options are: in how many flushes, and whether bbolt would find them after a
// crash.
func TestEnvironmentCommits(t *testing.T) {
	for _, c := range []struct {
		durability, strict string
		options            holdfast.Options
		flushes            int
		behind             bool
	}{
		{"", "", holdfast.Options{}, 1, true},
		{"full", "off", holdfast.Options{}, 1, true},
		{"full", "", holdfast.Options{Durability: holdfast.None}, 1, true},
		{"periodic", "", holdfast.Options{}, 0, true},
		{"none", "", holdfast.Options{}, 0, false},
		{"", "on", holdfast.Options{}, 2, false},
		{"", "off", holdfast.Options{StrictCompat: true}, 2, false}, // off is no wish
		{"none", "on", holdfast.Options{Durability: holdfast.Periodic}, 0, false},
	} {
		t.Setenv("HOLDFAST_DURABILITY", c.durability)
		t.Setenv("HOLDFAST_STRICT_COMPAT", c.strict)
		c.options.SettleDelay, c.options.PeriodicDelay = -1, time.Hour
		path := tempPath(t)
		db := open(t, path, &c.options)
		before := db.Stats()
		fill(t, db, 0, 10)
		after := db.Stats()
		diff := after.Sub(&before)
		if _, found := newestOf(t, left(t, path)); diff.Flushes != c.flushes*diff.Commits || found.BboltBehind != c.behind {
			t.Errorf("%+v: %d commits in %d flushes, found %+v", c, diff.Commits, diff.Flushes, found)
		}
		must(t, db.Close())
	}
}

// HOLDFAST_AUTO_VACUUM=1 made opening fail, as true and yes did: every variable that can be on or off
// takes the usual words for it.
func TestEnvironmentBooleans(t *testing.T) {
	words := map[string]string{
		"on": "on", "1": "on", "true": "on", "yes": "on", "True": "on", "ON": "on",
		"off": "off", "0": "off", "false": "off", "no": "off", "FALSE": "off",
	}
	booleans := 0
	for _, v := range holdfast.Environment() {
		isBoolean := slices.Contains(v.Values, "on")
		for word, want := range words {
			err := v.Check(word)
			switch {
			case isBoolean && (err != nil || v.Canonical(word) != want):
				t.Errorf("%s=%s: %v, and as good as %s", v.Name, word, err, v.Canonical(word))
			case !isBoolean && v.Canonical(word) != word:
				t.Errorf("%s=%s is taken as %s", v.Name, word, v.Canonical(word))
			}
		}
		if isBoolean {
			booleans++
			for _, wrong := range []string{"2", "o", "onn", " on", "t", "y"} {
				if err := v.Check(wrong); err == nil || !strings.Contains(err.Error(), "1 and 0, true and false") {
					t.Errorf("%s=%s: %v", v.Name, wrong, err)
				}
			}
		}
	}
	if booleans < 3 {
		t.Errorf("%d variables can be on or off", booleans)
	}
	t.Setenv("HOLDFAST_SEALS", "0")
	path := tempPath(t)
	db := open(t, path, nil)
	fill(t, db, 100, 10)
	pageSize := db.Info().PageSize
	must(t, db.Close())
	if runs, _ := runsOf(t, readFile(t, path), pageSize); len(runs) > 0 {
		t.Errorf("HOLDFAST_SEALS=0: %d pages are sealed", len(runs))
	}
}

// HOLDFAST_PERIODIC_DELAY=2 made opening fail, where --timeout 2 is two seconds: durations are read in one way.
func TestEnvironmentDurations(t *testing.T) {
	variables := map[string]holdfast.Variable{}
	for _, v := range holdfast.Environment() {
		if slices.Contains(v.Values, "DURATION") {
			variables[v.Name] = v
		}
	}
	shown := map[string]string{"HOLDFAST_PERIODIC_DELAY": "PeriodicDelay: ", "HOLDFAST_SETTLE_DELAY": "SettleDelay: "}
	if len(variables) != len(shown) {
		t.Errorf("%d variables are durations", len(variables))
	}
	for name, v := range variables {
		for value, want := range map[string]time.Duration{
			"2": 2 * time.Second, "0.25": 250 * time.Millisecond, "2s": 2 * time.Second, "20ms": 20 * time.Millisecond, "1m30s": 90 * time.Second, "7d": 7 * 24 * time.Hour,
		} {
			t.Setenv(name, value)
			log := &memoryLogger{}
			db := open(t, tempPath(t), &holdfast.Options{Logger: log})
			must(t, db.Close())
			if !strings.Contains(log.text(), shown[name]+want.String()) {
				t.Errorf("%s=%s: not %v: %s", name, value, want, log.text())
			}
		}
		t.Setenv(name, "")
		for _, wrong := range []string{"0", "0s", "-1", "-1s", "2x", "d", "1e3", "5 s"} {
			if err := v.Check(wrong); err == nil || !strings.Contains(err.Error(), "a duration above zero: a number of seconds, or one with a unit such as ") {
				t.Errorf("%s=%s: %v", name, wrong, err)
			}
		}
	}
}

// TestEnvironmentByDatabase: a variable had one value for all databases of a program, of which each wants its own.
func TestEnvironmentByDatabase(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.Mkdir("build", 0o700))
	t.Setenv("HOLDFAST_DURABILITY", "full,mounts.db=periodic,"+dir+"/build/*=none")
	t.Setenv("HOLDFAST_PERIODIC_DELAY", "mounts.db=1h")
	for path, want := range map[string]string{
		"meta.db":         "options: {Logger}",
		"mounts.db":       "Durability: periodic, PeriodicDelay: 1h0m0s,",
		"build/mounts.db": "Durability: none, PeriodicDelay: 1h0m0s,",
	} {
		log := &memoryLogger{}
		db := open(t, path, &holdfast.Options{Logger: log})
		must(t, db.Close())
		if !strings.Contains(log.text(), want) {
			t.Errorf("%s: want %q: %s", path, want, log.text())
		}
	}
	for value, want := range map[string]string{
		"full,mounts.db=fast": `HOLDFAST_DURABILITY is "fast" for "mounts.db"; it can be "full", "none" or "periodic"`,
		"a/b.db=full":         `the environment variable HOLDFAST_DURABILITY: the pattern "a/b.db" has a slash, and is not an absolute path`,
		"[=full":              `"[" is not a pattern of file names`,
	} {
		t.Setenv("HOLDFAST_DURABILITY", value)
		if _, err := holdfast.Open("other.db", 0o600, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if _, err := os.Stat("other.db"); err == nil {
		t.Error("a file was made")
	}
}
