package bbolt_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/bbolt/errors"
	"holdfast"
)

func TestErrorsAreTheEngines(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(nil)
		return err
	})
	if err != errors.ErrBucketNameRequired || err != bbolt.ErrBucketNameRequired || err != holdfast.ErrBucketNameRequired {
		t.Errorf("got %v, want one and the same ErrBucketNameRequired", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.View(func(*bbolt.Tx) error { return nil }); err != errors.ErrDatabaseNotOpen {
		t.Errorf("view of a closed database: %v", err)
	}
}

// A program may set DefaultOptions to a value of its own.
func TestDefaultOptionsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	before := bbolt.DefaultOptions
	defer func() { bbolt.DefaultOptions = before }()
	bbolt.DefaultOptions = &bbolt.Options{ReadOnly: true}
	db, err = bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if !db.IsReadOnly() {
		t.Error("Open without options did not look at DefaultOptions")
	}
}
