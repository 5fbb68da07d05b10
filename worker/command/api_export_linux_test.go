package command_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"holdfast/worker/api"
)

// TestAPIExport: a result leaves through the service as an archive of files and as an image, and what it has changed is told.
func TestAPIExport(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	client := overSocket(t)
	steps, snapshots, images := api.NewStepsClient(client, anywhere), api.NewSnapshotsClient(client, anywhere), api.NewImagesClient(client, anywhere)
	r := sh("read x; echo got $x; busybox mkdir /d; echo 1 >/d/1; echo 2 >\"$(printf '/d/\\377')\"; busybox rm /bin/yes; for i in $(busybox seq 3000); do echo $i >/d/f$i; done")
	r.Stdin = []byte("input\n")
	out, made, err := ran(t, steps, r)
	if err != nil || out != "got input\n" {
		t.Fatalf("%q, %v", out, err)
	}
	if _, again, err := ran(t, steps, r); err != nil || !again.Hit {
		t.Errorf("with the same input: %v, %v", again, err)
	}
	r.Stdin = []byte("other\n")
	if out, other, err := ran(t, steps, r); err != nil || other.Hit || out != "got other\n" {
		t.Errorf("with another input: %q, %v, %v", out, other, err)
	}
	bb := strings.Fields(served(t, "snapshot", "ls", "--json").out)
	base := ""
	for _, word := range bb {
		if strings.Contains(word, "sha256:") {
			base = strings.Trim(word, `",`)
		}
	}

	diff, err := snapshots.Diff(t.Context(), connect.NewRequest(&api.DiffSnapshotsRequest{Before: base, After: made.Snapshot}))
	check(t, err)
	found, messages := map[string]api.Change_Kind{}, 0
	for diff.Receive() {
		messages++
		for _, c := range diff.Msg().Changes {
			found[string(c.Path)] = c.Kind
		}
	}
	check(t, diff.Err())
	if found["/d"] != api.Change_KIND_ADDED || found["/d/\xff"] != api.Change_KIND_ADDED || found["/bin/yes"] != api.Change_KIND_DELETED || len(found) < 3004 || messages < 3 {
		t.Errorf("%d changes in %d messages; /d is %v", len(found), messages, found["/d"])
	}

	files, err := snapshots.Export(t.Context(), connect.NewRequest(&api.ExportSnapshotRequest{Snapshot: made.Snapshot, Path: "/d"}))
	check(t, err)
	var archive bytes.Buffer
	for files.Receive() {
		archive.Write(files.Msg().Data)
	}
	check(t, files.Err())
	n := 0
	for in := tar.NewReader(&archive); ; n++ {
		if _, err := in.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != 3003 {
		t.Errorf("%d files in the archive", n)
	}

	for i, compression := range []api.ExportImageRequest_Compression{api.ExportImageRequest_COMPRESSION_GZIP, api.ExportImageRequest_COMPRESSION_ZSTD} {
		image, err := images.Export(t.Context(), connect.NewRequest(&api.ExportImageRequest{Snapshot: made.Snapshot, Compression: compression}))
		check(t, err)
		archive.Reset()
		for image.Receive() {
			archive.Write(image.Msg().Data)
		}
		check(t, image.Err())
		check(t, os.WriteFile("image.tar", archive.Bytes(), 0o644))
		name := fmt.Sprint("again", i)
		if r := served(t, "import", "image.tar", name); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := served(t, "step", "-q", "--base", name, "--", "sh", "-c", "cat /d/1; test ! -e /bin/yes"); r.code != 0 || r.out != "1\n" {
			t.Errorf("%+v", r)
		}
	}

	for name, call := range map[string]func() error{
		"diff": func() error {
			return last(snapshots.Diff(t.Context(), connect.NewRequest(&api.DiffSnapshotsRequest{After: "none"})))
		},
		"files": func() error {
			return last(snapshots.Export(t.Context(), connect.NewRequest(&api.ExportSnapshotRequest{Snapshot: "none"})))
		},
		"image": func() error {
			return last(images.Export(t.Context(), connect.NewRequest(&api.ExportImageRequest{Snapshot: "none"})))
		},
		"no name": func() error { return last(images.Export(t.Context(), connect.NewRequest(&api.ExportImageRequest{}))) },
		"the path": func() error {
			return last(snapshots.Export(t.Context(), connect.NewRequest(&api.ExportSnapshotRequest{Snapshot: made.Snapshot, Path: "/../../etc/shadow"})))
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeNotFound && connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir("store/downloads"); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if out := served(t, "snapshot", "ls").out; strings.Contains(out, "!run") || strings.Contains(out, "active") {
		t.Errorf("left: %s", out)
	}
}

// last is the error with which a stream ends.
func last[T any](stream *connect.ServerStreamForClient[T], err error) error {
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
	}
	return stream.Err()
}
