package command_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/bbolt/cmd/bbolt/command"
)

func makeDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The error of a command is the one that this package names.
func TestErrorsAreTheCommands(t *testing.T) {
	path := makeDatabase(t)
	root := command.NewRootCommand()
	root.SetArgs([]string{"surgery", "freelist", "rebuild", path, "--output", path + ".out"})
	root.SetErr(io.Discard)
	if err := root.Execute(); err != command.ErrSurgeryFreelistAlreadyExist {
		t.Errorf("got %v", err)
	}
	if root.Name() != "bbolt" {
		t.Errorf("the command is %s", root.Name())
	}
}

func TestReadMetaPageAt(t *testing.T) {
	path := makeDatabase(t)
	for id := range uint32(2) {
		m, buf, err := command.ReadMetaPageAt(path, id, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if m.Magic() != 0xED0CDAED || m.Version() != 2 || m.PageSize() != 4096 || m.RootBucket().RootPage() != 3 ||
			m.RootBucket().InSequence() != 0 || m.Freelist() != 2 || !m.IsFreelistPersisted() || m.Pgid() != 4 ||
			m.Txid() != uint64(id) || m.Checksum() == 0 || m.Flags() != 0 || len(buf) != 1024 {
			t.Errorf("meta page %d: %+v, %d bytes", id, m, len(buf))
		}
	}
	if _, _, err := command.ReadMetaPageAt(path, 2, 4096); err == nil {
		t.Error("there is a third meta page")
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	if m, _, err := command.ReadMetaPageAt(path, 1, 4096); err == nil {
		t.Errorf("half a page is %+v", m)
	}
	if _, _, err := command.ReadMetaPageAt(path+".gone", 0, 0); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

func TestKVStringer(t *testing.T) {
	s := command.CmdKvStringer()
	if got := s.KeyToString([]byte("text")) + s.ValueToString([]byte{0, 255}); got != "text00ff" {
		t.Errorf("got %q", got)
	}
	if got := (&command.PageError{ID: 3, Err: io.EOF}).Error(); got != "page 3: EOF" {
		t.Errorf("got %q", got)
	}
}
