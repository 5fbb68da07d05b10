package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/image"
	"holdfast/worker/snapshot/driver/overlay"
)

// TestImpliedDirectories: directories that an archive does not name, but that lead to what it names, did not count as
// entries: one name made two thousand of them, and an archive within the limits billions.
func TestImpliedDirectories(t *testing.T) {
	for name, list := range map[string][]entry{
		"one":  {file(strings.Repeat("d/", 200)+"f", "")},
		"many": {file(strings.Repeat("a/", 40)+"f", ""), file(strings.Repeat("b/", 40)+"f", ""), file(strings.Repeat("c/", 40)+"f", "")},
	} {
		namespace := store(t, "", nil)
		_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, list...)), image.Options{Limits: limits})
		if !errors.Is(err, image.ErrLimit) {
			t.Errorf("%s: error %v", name, err)
		}
		clean(t, namespace)
	}
}

// TestLongNames: names took any memory: two million entries of four thousand bytes, in an archive of some megabytes.
func TestLongNames(t *testing.T) {
	namespace := store(t, "", nil)
	var list []entry
	for i := range 30 {
		list = append(list, dir(fmt.Sprint(strings.Repeat(long(200)+"/", 2), i)))
	}
	small := image.Limits{Names: 10_000}
	if _, err := image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, list...)), image.Options{Limits: small}); !errors.Is(err, image.ErrLimit) {
		t.Errorf("error %v", err)
	}
	clean(t, namespace)
	if _, err := image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, list[:20]...)), image.Options{Limits: small}); err != nil {
		t.Error(err)
	}
}

// TestLinkBelowCounts: a hard link to a file of a lower layer copies it into an overlay. Those bytes did not count, and
// its holes were written: a file of holes and a layer of one link filled the disk.
func TestLinkBelowCounts(t *testing.T) {
	namespace := store(t, t.TempDir(), overlay.New())
	l := simple(t, gz(archive(t, file("f", long(60_000)))), gz(archive(t, link("l", "f"))))
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{Limits: limits}); !errors.Is(err, image.ErrLimit) {
		t.Errorf("two of 60,000 bytes: error %v", err)
	}
	clean(t, namespace)
	l = simple(t, layer{v1.MediaTypeImageLayer, sparse(t, "f", "1073741824")}, gz(archive(t, link("l", "f"))))
	r, err := image.Import(ctx, namespace, l.dir, image.Options{})
	must(t, err)
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	got, err := os.Stat(filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs", "l"))
	if err != nil || got.Size() != 1<<30 || info.Usage.Size > 1<<20 {
		t.Errorf("a link to a file of holes: %v, %v; it takes %d bytes", got, err, info.Usage.Size)
	}
}

// TestManyValues: documents of some megabytes, of which each value took a hundred times its bytes in memory, and which
// were all kept; and an index that names the same one a thousand times.
func TestManyValues(t *testing.T) {
	namespace := store(t, "", nil)
	l := newLayout(t)
	many := `{"schemaVersion":2,"config":{},"layers":[{}` + strings.Repeat(",{}", 2_000_000) + `]}`
	l.add(l.blob(v1.MediaTypeImageManifest, []byte(many)), "")
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{}); !errors.Is(err, image.ErrLimit) {
		t.Errorf("a manifest of many layers: error %v", err)
	}
	l = newLayout(t)
	one := l.image(func(_ *v1.Manifest, i *v1.Image) { i.Author = long(1 << 20) }, onto(t))
	for range 200 {
		l.index.Manifests = append(l.index.Manifests, one)
	}
	l.write()
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{}); !errors.Is(err, image.ErrLimit) {
		t.Errorf("one of a MiB, 200 times: error %v", err)
	}
	deep := strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000)
	l = newLayout(t)
	l.add(l.blob(v1.MediaTypeImageManifest, []byte(`{"schemaVersion":2,"x":`+deep+`}`)), "")
	if _, err := image.Import(ctx, namespace, l.dir, image.Options{}); err == nil {
		t.Error("a manifest of a deep value: no error")
	}
	if b, err := json.Marshal(l.index); err != nil || len(b) > 10_000 {
		t.Errorf("index: %d bytes, %v", len(b), err)
	}
	clean(t, namespace)
}
