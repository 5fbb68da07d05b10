package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/snapshot/drivertest"
)

// digestStore is a store whose snapshots have digests.
func digestStore(t *testing.T, root string, d snapshot.Driver) *snapshot.Namespace {
	t.Helper()
	t.Cleanup(func() { writable(root) })
	s, err := snapshot.Open(root, snapshot.Options{Driver: d, Digests: true})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	namespace, err := s.Namespace("local")
	must(t, err)
	return namespace
}

// breakLayer changes a file of a layer, and has it found.
func breakLayer(t *testing.T, namespace *snapshot.Namespace, name, path string) {
	t.Helper()
	must(t, namespace.Store().Digested(ctx))
	info, err := namespace.Stat(ctx, name)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), path), []byte("broken"), 0o600))
	if err := namespace.Verify(ctx, name); !errors.Is(err, snapshot.ErrDamaged) {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestRepair: an image that is imported again mends the layers that are damaged, under the name that it has and the
// layers that stand on them, and no others.
func TestRepair(t *testing.T) {
	drivers := map[string]func(root string) snapshot.Driver{"copy": func(string) snapshot.Driver { return copydriver.New() }}
	if os.Geteuid() == 0 {
		drivers["overlay"] = func(string) snapshot.Driver { return overlay.New() }
		drivers["btrfs"] = func(root string) snapshot.Driver {
			drivertest.Filesystem(t, "btrfs", root)
			return btrfs.New()
		}
	}
	for name, d := range drivers {
		root := t.TempDir()
		namespace := digestStore(t, root, d(root))
		l := simple(t, rich(t)...)
		r, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "debian"})
		must(t, err)
		want := see(t, namespace, r.Snapshot)
		breakLayer(t, namespace, r.Layers[0].Snapshot, "fs/bin/tool")
		breakLayer(t, namespace, r.Layers[1].Snapshot, "fs/single")
		if _, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "debian"}); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s: without leave: %v", name, err)
		}
		other := simple(t, gz(archive(t, file("other", "x"))))
		_, err = image.Import(ctx, namespace, other.dir, image.Options{Repair: true})
		must(t, err)
		if err := namespace.Verify(ctx, r.Layers[0].Snapshot); !errors.Is(err, snapshot.ErrDamaged) {
			t.Errorf("%s: another image: %v", name, err)
		}
		again, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "debian", Repair: true})
		must(t, err)
		for i, one := range again.Layers {
			if !one.Existed || one.Repaired != (i < 2) {
				t.Errorf("%s: layer %d: %+v", name, i, one)
			}
			if err := namespace.Verify(ctx, one.Snapshot); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		drivertest.Equal(t, name, see(t, namespace, r.Snapshot), want)
		must(t, namespace.Store().Cleanup(ctx))
		noOrphans(t, namespace.Store(), namespace, 0)
	}
}

// TestRepairRefused: with the driver erofs, and with a step on it or what it has mounted: nothing changes.
func TestRepairRefused(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	drivertest.Filesystem(t, "ext4", root)
	namespace := digestStore(t, root, erofs.New())
	m, err := mount.Open(ctx, mount.Options{Directory: t.TempDir(), Keep: []string{root}})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close(ctx)) })
	l := simple(t, rich(t)...)
	r, err := image.Import(ctx, namespace, l.dir, image.Options{Mounts: m})
	must(t, err)
	breakLayer(t, namespace, r.Layers[2].Snapshot, "layer.erofs")
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Mounts: m, Repair: true}); !errors.Is(err, snapshot.ErrUnsupported) {
		t.Errorf("erofs: %v", err)
	}

	namespace = digestStore(t, t.TempDir(), overlay.New())
	r, err = image.Import(ctx, namespace, l.dir, image.Options{Mounts: m, Name: "x"})
	must(t, err)
	mounts, err := namespace.Prepare(ctx, "step", r.Snapshot)
	must(t, err)
	spec, err := mount.FromMounts(mounts)
	must(t, err)
	held, err := m.Acquire(ctx, spec)
	must(t, err)
	breakLayer(t, namespace, r.Layers[1].Snapshot, "fs/single")
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Mounts: m, Repair: true}); !errors.Is(err, snapshot.ErrInUse) {
		t.Errorf("with a step: %v", err)
	}
	must(t, namespace.Remove(ctx, "step")) // but not what it has mounted
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Mounts: m, Repair: true}); !errors.Is(err, mount.ErrBusy) {
		t.Errorf("with what is mounted: %v", err)
	}
	held.Release()
	must(t, held.Wait(ctx))
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Mounts: m, Repair: true, Name: "x"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	must(t, namespace.Verify(ctx, r.Layers[1].Snapshot))
}
