package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
)

func long(n int) string { return strings.Repeat("x", n) }

// noOwner means "as it is" to the kernel. (Of 64 bits, also where an int is not.)
var noOwner int64 = 1<<32 - 1

// bad are archives that are refused as a layer on top of below, and why.
var bad = map[string]struct {
	want error
	list []entry
}{
	"dot dot":                      {image.ErrUnsafe, []entry{file("../evil", "x")}},
	"dot dot inside":               {image.ErrUnsafe, []entry{dir("d"), file("d/../../evil", "x")}},
	"dot dot that stays inside":    {image.ErrUnsafe, []entry{dir("d"), file("d/../evil", "x")}},
	"absolute":                     {image.ErrUnsafe, []entry{file("/evil", "x")}},
	"file for the root":            {image.ErrUnsafe, []entry{file(".", "")}},
	"through a symlink":            {image.ErrUnsafe, []entry{symlink("l", "/tmp"), file("l/evil", "x")}},
	"through a relative symlink":   {image.ErrUnsafe, []entry{dir("d"), symlink("l", "d"), file("l/evil", "x")}},
	"through a symlink below":      {image.ErrUnsafe, []entry{file("below-link/evil", "x")}},
	"directory through one below":  {image.ErrUnsafe, []entry{dir("below-link/evil/more")}},
	"through a file":               {image.ErrUnsafe, []entry{file("f", "x"), file("f/evil", "x")}},
	"through a file below":         {image.ErrUnsafe, []entry{file("below-file/evil", "x")}},
	"directory then symlink":       {image.ErrUnsafe, []entry{dir("d"), symlink("d", ".."), file("d/evil", "x")}},
	"implied then symlink":         {image.ErrUnsafe, []entry{file("d/x", ""), symlink("d", "..")}},
	"one below then symlink":       {image.ErrUnsafe, []entry{symlink("below-dir", ".."), file("below-dir/evil", "x")}},
	"symlink to itself":            {image.ErrUnsafe, []entry{symlink("l", "l"), file("l/x", "")}},
	"hard link outside":            {image.ErrUnsafe, []entry{link("l", "../../evil")}},
	"hard link to absolute":        {image.ErrUnsafe, []entry{link("l", "/etc/passwd")}},
	"hard link to symlink":         {image.ErrUnsafe, []entry{symlink("s", "/etc/passwd"), link("l", "s")}},
	"hard link to symlink below":   {image.ErrUnsafe, []entry{link("l", "below-link")}},
	"hard link through symlink":    {image.ErrUnsafe, []entry{symlink("s", "/etc"), link("l", "s/passwd")}},
	"hard link through one below":  {image.ErrUnsafe, []entry{link("l", "below-link/x")}},
	"hard link to directory":       {image.ErrUnsafe, []entry{dir("d"), link("l", "d")}},
	"hard link to nothing":         {image.ErrUnsafe, []entry{link("l", "nothing")}},
	"hard link to itself":          {image.ErrUnsafe, []entry{file("l", "x"), link("l", "l")}},
	"hard link to whiteout":        {image.ErrUnsafe, []entry{link("l", ".wh.below-file")}},
	"symlink without target":       {image.ErrUnsafe, []entry{symlink("l", "").with(func(h *tar.Header) { h.Linkname = "" })}},
	"symlink for the root":         {image.ErrUnsafe, []entry{symlink(".", "/tmp")}},
	"device":                       {image.ErrUnsafe, []entry{device("null", tar.TypeChar, 1, 3)}},
	"block device":                 {image.ErrUnsafe, []entry{device("sda", tar.TypeBlock, 8, 0)}},
	"device 0/0":                   {image.ErrUnsafe, []entry{device("evil", tar.TypeChar, 0, 0)}},
	"whiteout of dot":              {image.ErrUnsafe, []entry{file(".wh..", "")}},
	"whiteout of dot dot":          {image.ErrUnsafe, []entry{file("d/.wh...", "")}},
	"whiteout of nothing":          {image.ErrUnsafe, []entry{file(".wh.", "")}},
	"whiteout with a slash":        {image.ErrUnsafe, []entry{file(".wh.d/evil", "")}},
	"whiteout with dot dot":        {image.ErrUnsafe, []entry{file(".wh.../evil", "")}},
	"whiteout that is a directory": {image.ErrUnsafe, []entry{dir(".wh.d")}},
	"whiteout with content":        {image.ErrUnsafe, []entry{file(".wh.d", "x")}},
	"whiteout through a symlink":   {image.ErrUnsafe, []entry{symlink("l", "/tmp"), file("l/.wh.x", "")}},
	"attribute of overlayfs":       {image.ErrUnsafe, []entry{dir("d").with(xattr("trusted.overlay.redirect", "/etc"))}},
	"attribute for users":          {image.ErrUnsafe, []entry{dir("d").with(xattr("user.overlay.opaque", "y"))}},
	"owner that means nobody":      {image.ErrUnsafe, []entry{file("f", "").with(func(h *tar.Header) { h.Uid = int(noOwner) })}},
	"owner that is too large":      {image.ErrUnsafe, []entry{file("f", "").with(func(h *tar.Header) { h.Gid = int(noOwner + 2) })}},
	"unknown type":                 {image.ErrUnsafe, []entry{file("f", "").with(func(h *tar.Header) { h.Typeflag = 'Q' })}},
	"long component":               {image.ErrLimit, []entry{file(long(256), "")}},
	"long name":                    {image.ErrLimit, []entry{file(strings.Repeat("d/", 2500)+"f", "")}},
	"long target":                  {image.ErrLimit, []entry{symlink("l", long(5000))}},
	"too many bytes":               {image.ErrLimit, []entry{file("a", long(60_000)), file("b", long(60_000))}},
	"too many entries":             {image.ErrLimit, many(101)},
}

func many(n int) (list []entry) {
	for i := range n {
		list = append(list, file(fmt.Sprint(i), ""))
	}
	return list
}

// limits are small, so that bad archives can be.
var limits = image.Limits{Bytes: 100_000, Entries: 100}

// onto is the lower layer.
func onto(t testing.TB) layer {
	t.Helper()
	return gz(archive(t, dir("below-dir"), file("below-dir/f", "old"), file("below-file", "old"), symlink("below-link", "below-dir")))
}

// TestBad: as the only layer and on another one, in whole trees and in an overlay.
func TestBad(t *testing.T) {
	drivers := map[string]func() snapshot.Driver{"copy": func() snapshot.Driver { return nil }, "overlay": func() snapshot.Driver { return overlay.New() }}
	for kind, d := range drivers {
		for name, b := range bad {
			t.Run(kind+"/"+name, func(t *testing.T) {
				outer := t.TempDir()
				root := filepath.Join(outer, "root")
				must(t, os.Mkdir(root, 0o700))
				canary := filepath.Join(outer, "evil")
				must(t, os.WriteFile(canary, []byte("canary"), 0o600))
				namespace := store(t, root, d())
				l := simple(t, onto(t), gz(archive(t, b.list...)))
				_, err := image.Import(ctx, namespace, l.dir, image.Options{Limits: limits, Name: "x"})
				if !errors.Is(err, b.want) {
					t.Errorf("error %v, and not %v", err, b.want)
				}
				clean(t, namespace)
				if !strings.Contains(name, "below") && name != "too many bytes" {
					_, err = image.ImportArchive(ctx, namespace, bytes.NewReader(archive(t, b.list...)), image.Options{Limits: limits})
					if !errors.Is(err, b.want) {
						t.Errorf("alone: error %v, and not %v", err, b.want)
					}
					clean(t, namespace)
				}
				if got, err := os.ReadFile(canary); err != nil || string(got) != "canary" {
					t.Errorf("beside the store: %q, %v", got, err)
				}
			})
		}
	}
}

// TestMalformed: archives that are cut off, or no archives.
func TestMalformed(t *testing.T) {
	namespace := store(t, "", nil)
	whole := archive(t, dir("d"), file("d/f", long(3000)), file("g", strings.Repeat("\x00", 2048)))
	corrupt := bytes.Clone(whole)
	corrupt[600] ^= 1
	zipped := gzipped(t, whole)
	broken := bytes.Clone(zipped)
	broken[len(broken)-6] ^= 1
	cases := map[string][]byte{
		"empty": nil, "text": []byte(strings.Repeat("hello\n", 500)), "without its end": whole[:len(whole)-1024],
		"header": whole[:300], "content": whole[:2100], "behind zeros": whole[:len(whole)-1024-1024], "checksum of a header": corrupt,
		"gzip": zipped[:len(zipped)/2], "gzip's end": zipped[:len(zipped)-4], "gzip's checksum": broken,
		"zstd": zstded(t, whole)[:40], "xz": []byte("\xfd7zXZ\x00 and so on"),
		"a NUL in a name":  archive(t, file("a", "")),
		"an image, zipped": gzipped(t, archive(t, file("oci-layout", "{}"))),
	}
	nul := cases["a NUL in a name"] // as the name of an extended header would have it
	copy(nul, "a\x00/../../b")
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{})
			if !errors.Is(err, image.ErrFormat) {
				t.Errorf("error %v", err)
			}
			clean(t, namespace)
		})
	}
}

// TestAfterGzip: of an archive with a few bytes after its compressed data it was said that it is cut off,
// and of one that is filled with zeros, which gzip reads, that its header is invalid.
func TestAfterGzip(t *testing.T) {
	whole := archive(t, file("f", "x"))
	half := len(whole) / 2
	zipped := gzipped(t, whole)
	for name, c := range map[string]struct {
		after []byte
		says  string // "": it is imported
	}{
		"text": {[]byte("garbage"), "something after the end of the compressed data"}, "one byte": {[]byte("\x1f"), "something after the end"},
		"long": {[]byte(long(5000)), "something after the end"}, "zeros": {make([]byte, 70_000), ""}, "many zeros": {make([]byte, 17<<20), "more than 16 MiB after"},
		"zeros and text": {append(make([]byte, 70_000), 'x'), "something after the end"}, "a member cut off": {zipped[:len(zipped)-3], "cut off"},
		"another archive": {zipped, ""},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := store(t, "", nil)
			_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(append(bytes.Clone(zipped), c.after...)), image.Options{})
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, image.ErrFormat) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error %v", err)
			}
		})
	}
	namespace := store(t, "", nil)
	r, err := image.ImportArchive(ctx, namespace, bytes.NewReader(append(gzipped(t, whole[:half]), gzipped(t, whole[half:])...)), image.Options{})
	if err != nil || r.Layers[0].DiffID != digest.FromBytes(whole) {
		t.Errorf("an archive in two members: %+v, %v", r, err)
	}
}

// TestAfterZstd: of an archive with something after its compressed data it was said that a
// "magic number" does not match. Unlike gzip, zstd takes no zeros there.
func TestAfterZstd(t *testing.T) {
	zipped := zstded(t, archive(t, file("f", "x")))
	for name, c := range map[string]struct{ after, says string }{
		"text": {"garbage", "something after the end"}, "zeros": {strings.Repeat("\x00", 70_000), "something after the end"},
		"a frame cut off": {string(zipped[:len(zipped)-3]), "cut off"}, "another archive": {string(zipped), ""},
		"a frame to skip": {"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := image.ImportArchive(ctx, store(t, "", nil), strings.NewReader(string(zipped)+c.after), image.Options{})
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, image.ErrFormat) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestNULInName: an extended header with a NUL in a name, which package tar does not write.
func TestNULInName(t *testing.T) {
	namespace := store(t, "", nil)
	b := archive(t, file("hölzern/abcdefgh", "x")) // whose name is in an extended header
	b = bytes.Replace(b, []byte("path=h\xc3\xb6lzern/abcdefgh"), []byte("path=h\xc3\xb6lzern/abc\x00efgh"), 1)
	_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{})
	if !errors.Is(err, image.ErrFormat) && !errors.Is(err, image.ErrUnsafe) {
		t.Errorf("error %v", err)
	}
	clean(t, namespace)
}

// TestBomb: a few bytes that become many.
func TestBomb(t *testing.T) {
	namespace := store(t, "", nil)
	for name, pack := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped, "zstd": zstded} {
		b := pack(t, archive(t, file("zeros", strings.Repeat("\x00", 8<<20))))
		_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{Limits: image.Limits{RatioFrom: 1 << 20}})
		if !errors.Is(err, image.ErrLimit) {
			t.Errorf("%s: error %v", name, err)
		}
		// Behind the end of the archive, where nothing is extracted.
		b = pack(t, append(archive(t, file("small", "x")), make([]byte, 8<<20)...))
		_, err = image.ImportArchive(ctx, namespace, bytes.NewReader(b), image.Options{Limits: image.Limits{RatioFrom: 1 << 20}})
		if !errors.Is(err, image.ErrLimit) {
			t.Errorf("%s, behind the end: error %v", name, err)
		}
	}
	clean(t, namespace)
}

// sparse is an archive in which a file of a size has no data: extended headers of GNU's version 1.0.
func sparse(t testing.TB, name string, size string) []byte {
	t.Helper()
	records := ""
	for _, kv := range [][2]string{{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.name", name}, {"GNU.sparse.realsize", size}} {
		line := " " + kv[0] + "=" + kv[1] + "\n"
		n := len(line) + 2
		if n >= 100 {
			n++
		}
		records += fmt.Sprintf("%d%s", n, line)
	}
	pax := rawHeader("pax", 'x', len(records))
	pax = append(pax, padded(records)...)
	content := padded("1\n" + size + "\n0\n")
	body := append(rawHeader("sparse", '0', len(content)), content...)
	return append(append(pax, body...), make([]byte, 1024)...)
}

func padded(s string) []byte { return append([]byte(s), make([]byte, (512-len(s)%512)%512)...) }

func rawHeader(name string, kind byte, size int) []byte {
	b := make([]byte, 512)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[108:], "0000000\x00")
	copy(b[116:], "0000000\x00")
	copy(b[124:], fmt.Sprintf("%011o\x00", size))
	copy(b[136:], "00000000000\x00")
	copy(b[148:], "        ")
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func TestSparseMonster(t *testing.T) {
	namespace := store(t, "", nil)
	for _, size := range []string{"9223372036854775807", "1099511627776"} {
		for _, name := range []string{"monster", ".wh.monster"} {
			_, err := image.ImportArchive(ctx, namespace, bytes.NewReader(sparse(t, name, size)), image.Options{})
			if !errors.Is(err, image.ErrLimit) && !errors.Is(err, image.ErrUnsafe) {
				t.Errorf("%s of %s bytes: %v", name, size, err)
			}
			clean(t, namespace)
		}
	}
	r, err := image.ImportArchive(ctx, namespace, bytes.NewReader(sparse(t, "small", "1073741824")), image.Options{})
	must(t, err)
	info, err := namespace.Stat(ctx, r.Snapshot)
	must(t, err)
	got, err := os.Stat(filepath.Join(namespace.Store().Root(), "snapshots", info.ID.String(), "fs", "small"))
	if err != nil || got.Size() != 1<<30 || info.Usage.Size > 1<<20 {
		t.Errorf("a file of holes: %v, %v; it takes %d bytes", got, err, info.Usage.Size)
	}
}

// endless is an archive that never ends, and cancels an import after some entries.
type endless struct {
	one    []byte
	at     int
	rounds int
	cancel func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.at == len(e.one) {
		e.at = 0
		if e.rounds++; e.rounds == 50 {
			e.cancel()
		}
	}
	n := copy(p, e.one[e.at:])
	e.at += n
	return n, nil
}

func TestCanceled(t *testing.T) {
	namespace := store(t, "", nil)
	one := archive(t, file("f", long(5000)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := image.ImportArchive(ctx, namespace, &endless{one: one[:len(one)-1024], cancel: cancel}, image.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	clean(t, namespace)
	if _, err := image.ImportArchive(ctx, namespace, bytes.NewReader(one), image.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before: %v", err)
	}
	clean(t, namespace)
}

// TestNoArchive: a megabyte of zeros was imported, as an archive without files, and so was the image of an
// ext4 file system, which begins with two blocks of zeros.
func TestNoArchive(t *testing.T) {
	ext4 := make([]byte, 1<<20)
	copy(ext4[1080:], "\x53\xef and more")
	namespace := store(t, t.TempDir(), copydriver.New())
	for what, data := range map[string][]byte{"zeros": make([]byte, 1<<20), "a file system": ext4, "one block": make([]byte, 512), "the end alone": make([]byte, 1024)} {
		_, err := image.ImportArchive(t.Context(), namespace, bytes.NewReader(data), image.Options{Name: "x"})
		if !errors.Is(err, image.ErrFormat) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := namespace.Stat(t.Context(), "x"); !errors.Is(err, snapshot.ErrNotFound) {
			t.Errorf("%s: there is a base: %v", what, err)
		}
	}
}
