package holdfast_test

import (
	"os"
	"strings"
	"testing"

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
