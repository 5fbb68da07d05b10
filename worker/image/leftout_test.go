package image_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
)

// TestLeftOutBefore: a layer whose device nodes an import had left out was there for all further ones: of
// one that was to make them it said that nothing was new, and one that was to refuse them succeeded. Nor
// did an import that found it say that something is left out.
func TestLeftOutBefore(t *testing.T) {
	b := archive(t, file("a", "a"), device("null", '3', 1, 3), device("zero", '3', 1, 5))
	path := filepath.Join(t.TempDir(), "files.tar")
	must(t, os.WriteFile(path, b, 0o600))
	layout := simple(t, gz(b), layer{v1.MediaTypeImageLayer, archive(t, file("b", "b"))})
	for name, do := range map[string]func(*snapshot.Namespace, image.Options) (*image.Result, error){
		"standard input": func(to *snapshot.Namespace, o image.Options) (*image.Result, error) {
			return image.ImportArchive(ctx, to, bytes.NewReader(b), o)
		},
		"file": func(to *snapshot.Namespace, o image.Options) (*image.Result, error) {
			return image.Import(ctx, to, path, o)
		},
		"image": func(to *snapshot.Namespace, o image.Options) (*image.Result, error) {
			return image.Import(ctx, to, layout.dir, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := store(t, "", nil)
			first, err := do(namespace, image.Options{Devices: image.DevicesSkip})
			must(t, err)
			again, err := do(namespace, image.Options{Devices: image.DevicesSkip})
			if err != nil || !again.Existed || again.LeftOut != first.LeftOut || first.LeftOut.Devices != 2 {
				t.Errorf("again: %+v, %v; before %+v", again, err, first)
			}
			layer := first.Layers[0].Snapshot
			for devices, want := range map[image.Devices]error{image.DevicesRefuse: image.ErrUnsafe, image.DevicesMake: image.ErrLeftOut} {
				if os.Geteuid() != 0 && devices == image.DevicesMake && name == "standard input" {
					continue // it makes them before it knows that they are there
				}
				if r, err := do(namespace, image.Options{Devices: devices, Name: "base"}); !errors.Is(err, want) {
					t.Errorf("devices %d: %+v, %v", devices, r, err)
				}
			}
			if _, err := namespace.Stat(ctx, "base"); !errors.Is(err, snapshot.ErrNotFound) {
				t.Errorf("a base that was refused: %v", err)
			}
			if name == "standard input" {
				return
			}
			// An earlier version has not recorded how many.
			info, err := namespace.Stat(ctx, layer)
			must(t, err)
			info.Labels = map[string]string{snapshot.LabelContent: info.Labels[snapshot.LabelContent]}
			_, err = namespace.Update(ctx, info)
			must(t, err)
			if _, err := do(namespace, image.Options{Devices: image.DevicesMake}); !errors.Is(err, image.ErrLeftOut) {
				t.Errorf("not known: %v", err)
			}
		})
	}
	// What is whole is there, whatever is to become of device nodes.
	namespace := store(t, "", nil)
	plain := simple(t, gz(archive(t, file("a", "a"))), layer{v1.MediaTypeImageLayer, archive(t, file("b", "b"))})
	for _, devices := range []image.Devices{image.DevicesSkip, image.DevicesMake, image.DevicesRefuse} {
		if _, err := image.Import(ctx, namespace, plain.dir, image.Options{Devices: devices}); err != nil {
			t.Errorf("without a device, %d: %v", devices, err)
		}
	}
}

// TestMadeBefore: a layer whose device nodes an import had made was there for all further ones: one that was to leave
// them out, or to refuse them, found everything and had a base with device nodes.
func TestMadeBefore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes device nodes")
	}
	b := archive(t, file("a", "a"), device("null", '3', 1, 3), device("zero", '3', 1, 5))
	layout := simple(t, gz(b), layer{v1.MediaTypeImageLayer, archive(t, file("b", "b"))})
	for name, do := range map[string]func(*snapshot.Namespace, image.Options) (*image.Result, error){
		"standard input": func(to *snapshot.Namespace, o image.Options) (*image.Result, error) {
			return image.ImportArchive(ctx, to, bytes.NewReader(b), o)
		},
		"image": func(to *snapshot.Namespace, o image.Options) (*image.Result, error) {
			return image.Import(ctx, to, layout.dir, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := store(t, "", nil)
			_, err := do(namespace, image.Options{Devices: image.DevicesMake})
			must(t, err)
			again, err := do(namespace, image.Options{Devices: image.DevicesMake})
			if err != nil || !again.Existed {
				t.Errorf("again: %+v, %v", again, err)
			}
			for _, devices := range []image.Devices{image.DevicesRefuse, image.DevicesSkip} {
				want := image.ErrDevices
				if name == "standard input" && devices == image.DevicesRefuse {
					want = image.ErrUnsafe // it refuses them before it knows that they are there
				}
				if r, err := do(namespace, image.Options{Devices: devices, Name: "base"}); !errors.Is(err, want) {
					t.Errorf("devices %d: %+v, %v", devices, r, err)
				}
			}
			if _, err := namespace.Stat(ctx, "base"); !errors.Is(err, snapshot.ErrNotFound) {
				t.Errorf("a base that was refused: %v", err)
			}
			// Of a layer of an earlier version it is not known.
			info, err := namespace.Stat(ctx, again.Layers[0].Snapshot)
			must(t, err)
			info.Labels = map[string]string{snapshot.LabelContent: info.Labels[snapshot.LabelContent]}
			_, err = namespace.Update(ctx, info)
			must(t, err)
			if _, err := do(namespace, image.Options{Devices: image.DevicesSkip}); err != nil {
				t.Errorf("not known: %v", err)
			}
		})
	}
}
