package erofs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/drivertest"
)

func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts images")
	}
	drivertest.Run(t, func(*testing.T, string) snapshot.Driver { return erofs.New() })
}

// TestAfterCrash: images that were not finished are, when the store is opened again.
func TestAfterCrash(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: overlay layers have trusted attributes")
	}
	ctx, root := context.Background(), t.TempDir()
	open := func() (*snapshot.Store, *snapshot.Tenant) {
		s, err := snapshot.Open(root, snapshot.Options{Driver: erofs.New()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		tenant, err := s.Tenant("t")
		if err != nil {
			t.Fatal(err)
		}
		return s, tenant
	}
	s, tenant := open()
	mounts, err := tenant.Prepare(ctx, "a", "")
	if err == nil {
		err = os.WriteFile(filepath.Join(mounts[0].Source, "file"), make([]byte, 1<<20), 0o600)
	}
	if err == nil {
		err = errors.Join(tenant.Commit(ctx, "c", "a"), s.Finished(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := tenant.Stat(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "snapshots", info.ID.String())
	if u, err := tenant.Usage(ctx, "c"); err != nil || u.Size < 1<<20 || u.Inodes != 3 { // the directory, root/, the image
		t.Errorf("a finished snapshot takes %+v, %v", u, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// As a crash in the middle would leave it: the image half made, and what it is made of.
	if err := os.Mkdir(filepath.Join(dir, "fs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fs", "file"), []byte("again"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "layer.erofs"), filepath.Join(dir, "layer.erofs.new")); err != nil {
		t.Fatal(err)
	}
	s, tenant = open()
	if _, err := s.Reconciled(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Finished(ctx); err != nil {
		t.Fatal(err)
	}
	if !erofs.New().Finished(snapshot.Layer{ID: info.ID, Dir: dir}) {
		t.Error("it is not finished after opening")
	}
	mounts, err = tenant.View(ctx, "view", "c")
	if err != nil {
		t.Fatal(err)
	}
	at, unmount := drivertest.Mount(t, mounts)
	if b, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(b) != "again" {
		t.Errorf("it has %q, %v", b, err)
	}
	unmount()
	if problems, err := s.Check(ctx); err != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, err)
	}
}
