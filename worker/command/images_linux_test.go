package command_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/opencontainers/go-digest"
)

// layout makes an OCI image layout of one image with one layer, an archive.
func layout(t *testing.T, dir, archive string, config map[string]any) {
	t.Helper()
	check(t, os.RemoveAll(dir))
	check(t, os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755))
	blob := func(kind string, data []byte) map[string]any {
		d := digest.FromBytes(data)
		check(t, os.WriteFile(filepath.Join(dir, "blobs", "sha256", d.Encoded()), data, 0o644))
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": d, "size": len(data)}
	}
	document := func(v any) []byte {
		b, err := json.Marshal(v)
		check(t, err)
		return b
	}
	data, err := os.ReadFile(archive)
	check(t, err)
	layer := blob("layer.v1.tar", data)
	image := blob("config.v1+json", document(map[string]any{"os": runtime.GOOS, "architecture": runtime.GOARCH, "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []digest.Digest{digest.FromBytes(data)}}}))
	manifest := blob("manifest.v1+json", document(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": image, "layers": []any{layer}}))
	check(t, os.WriteFile(filepath.Join(dir, "index.json"), document(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}), 0o644))
	check(t, os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
}

// tools imports bases as examples have them, of busybox and programs that do as if.
func tools(t *testing.T) {
	t.Helper()
	in, err := os.Open("busybox.tar")
	check(t, err)
	defer in.Close()
	out, err := os.Create("tools.tar")
	check(t, err)
	w := tar.NewWriter(out)
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		check(t, err)
		check(t, w.WriteHeader(h))
		_, err = io.Copy(w, r)
		check(t, err)
	}
	for name, script := range map[string]string{
		"apt-get": `[ "$1" = update ] || [ "$1 $2" = "install -y" ]`,
		"make":    `[ "$1" = -n ] || { busybox mkdir bin && echo built >bin/program; }`,
		"npm":     `[ "$1" = ci ] && echo package >>/root/.npm/package`,
	} {
		script = "#!/bin/sh\n" + script + "\n"
		check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/" + name, Mode: 0o755, Size: int64(len(script))}))
		_, err := w.Write([]byte(script))
		check(t, err)
	}
	check(t, errors.Join(w.Close(), out.Close()))
	for _, base := range []string{"debian", "gcc", "node"} {
		must(t, "import", "tools.tar", base)
	}
}
