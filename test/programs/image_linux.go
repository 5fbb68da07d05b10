package programs

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// archive is an OCI archive while it is written.
type archive struct {
	tar *tar.Writer
	err error
}

// file adds a file.
func (a *archive) file(name string, data []byte) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
	}
	if a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

// blob adds a blob and describes it.
func (a *archive) blob(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	a.file("blobs/sha256/"+d.Encoded(), data)
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// json adds a value.
func (a *archive) json(mediaType string, value any) ocispec.Descriptor {
	data, err := json.Marshal(value)
	a.err = errors.Join(a.err, err)
	return a.blob(mediaType, data)
}

// WriteImage writes an OCI archive of an image with busybox in its first layer, and some files in each of them.
func WriteImage(path string, layers, files int) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w (Debian: busybox-static)", err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	a := archive{tar: tar.NewWriter(f)}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	config := ocispec.Image{Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
	for i := range layers {
		layer, err := layerTar(i, files, program)
		if err != nil {
			return errors.Join(err, f.Close())
		}
		d := a.blob(ocispec.MediaTypeImageLayer, layer)
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d.Digest)
	}
	manifest.Config = a.json(ocispec.MediaTypeImageConfig, config)
	d := a.json(ocispec.MediaTypeImageManifest, manifest)
	d.Annotations = map[string]string{"io.containerd.image.name": imageName, ocispec.AnnotationRefName: "latest"}
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{d}})
	a.file("index.json", index)
	a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return errors.Join(err, a.err, a.tar.Close(), f.Close())
}

// layerTar is a layer.
func layerTar(number, files int, program []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) error {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(data))
		}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := io.Copy(w, bytes.NewReader(data))
		return err
	}
	if number == 0 {
		for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "tmp"} {
			if err := add(tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir}, nil); err != nil {
				return nil, err
			}
		}
		if err := add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, program); err != nil {
			return nil, err
		}
	}
	dir := fmt.Sprintf("layer%d/", number)
	if err := add(tar.Header{Name: dir, Mode: 0o755, Typeflag: tar.TypeDir}, nil); err != nil {
		return nil, err
	}
	for i := range files {
		data := bytes.Repeat(fmt.Appendf(nil, "layer %d, file %d\n", number, i), 100)
		if err := add(tar.Header{Name: fmt.Sprintf("%sfile%d", dir, i), Mode: 0o644, Typeflag: tar.TypeReg}, data); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}
