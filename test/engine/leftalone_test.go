package engine

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"holdfast"
)

// A command that said "nothing was changed" of a damaged file, which had been closed without
// a freelist page, had written one and a meta page when it closed the file. That took away the
// older state, to which surgery could have gone back.
func TestCloseLeavesAlone(t *testing.T) {
	path := tempPath(t)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoFreelistSync: true})
	must(t, err)
	for range 5 {
		must(t, db.Update(countUp))
	}
	must(t, db.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	same := func() bool {
		after, err := os.ReadFile(path)
		must(t, err)
		return bytes.Equal(before, after)
	}
	for name, use := range map[string]func(db *holdfast.DB){
		"nothing": func(*holdfast.DB) {},
		"a transaction that is rolled back": func(db *holdfast.DB) {
			if err := db.Update(func(tx *holdfast.Tx) error { return errors.New("no") }); err == nil {
				t.Error("no error")
			}
		},
		"a commit without changes": func(db *holdfast.DB) { must(t, db.Update(func(*holdfast.Tx) error { return nil })) },
	} {
		db, err := holdfast.Open(path, 0o600, nil)
		must(t, err)
		use(db)
		must(t, db.Close())
		if !same() {
			t.Fatalf("%s: the file has changed", name)
		}
	}
	db, err = holdfast.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(countUp))
	must(t, db.Close())
	if same() {
		t.Error("a commit has not changed the file")
	}
}
