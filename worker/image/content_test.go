package image_test

import (
	"os"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
)

// contentOf is what a snapshot says that it is.
func contentOf(t *testing.T, namespace *snapshot.Namespace, name string) string {
	t.Helper()
	info, err := namespace.Stat(ctx, name)
	must(t, err)
	return info.Labels[snapshot.LabelContent]
}

// TestContent: what a step began with was a number of the store, so its result was of no use to another. A
// layer says what it is: its chain id, unless something was left out of it or of one below.
func TestContent(t *testing.T) {
	namespace := store(t, "", nil)
	l := simple(t, gz(archive(t, file("a", "a"))), layer{v1.MediaTypeImageLayer, archive(t, file("b", "b"))})
	r, err := image.Import(ctx, namespace, l.dir, image.Options{Name: "whole"})
	must(t, err)
	for _, one := range r.Layers {
		if got := contentOf(t, namespace, one.Snapshot); got != one.Snapshot {
			t.Errorf("%s is %q", one.Snapshot, got)
		}
	}
	if contentOf(t, namespace, "whole") != "" {
		t.Error("a view is not what it is a view of")
	}
	// The same with a device, left out or made; and what is on it.
	withDevice := simple(t, gz(archive(t, file("a", "a"), device("null", '3', 1, 3))), gz(archive(t, file("c", "c"))))
	partial, err := image.Import(ctx, namespace, withDevice.dir, image.Options{Devices: image.DevicesSkip})
	must(t, err)
	seen := map[string]bool{}
	for _, one := range partial.Layers {
		got := contentOf(t, namespace, one.Snapshot)
		if got == one.Snapshot || got == "" || seen[got] {
			t.Errorf("%s is %q", one.Snapshot, got)
		}
		seen[got] = true
	}
	if os.Geteuid() == 0 {
		other := store(t, "", nil)
		made, err := image.Import(ctx, other, withDevice.dir, image.Options{Devices: image.DevicesMake})
		must(t, err)
		if got := contentOf(t, other, made.Snapshot); got != made.Snapshot || made.Snapshot != partial.Snapshot {
			t.Errorf("%s is %q", made.Snapshot, got)
		}
	}
	// On a layer that an older version has made nothing is known.
	must(t, namespace.Remove(ctx, "whole"))
	must(t, namespace.Remove(ctx, r.Snapshot))
	first, err := namespace.Stat(ctx, r.Layers[0].Snapshot)
	must(t, err)
	first.Labels = nil
	_, err = namespace.Update(ctx, first)
	must(t, err)
	r, err = image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	if r.Layers[1].Existed || contentOf(t, namespace, r.Snapshot) != "" {
		t.Errorf("%+v: %q", r.Layers, contentOf(t, namespace, r.Snapshot))
	}
}
