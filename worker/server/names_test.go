package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOddNames: whatever a snapshot or a ref is called, it leaves nothing outside its store, and is found by that name alone.
func TestOddNames(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	before, err := filepath.Glob(filepath.Dir(s.path) + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "/etc/x", "a/../../b", ".", "..", "\n", "x y", "\U0010ffff", strings.Repeat("n", 200), "test\x00", "\x00", "a\x00b", strings.Repeat("n", 100_000), ""} {
		_, err := s.snapshots.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Key: name})
		odd := name == "" || strings.Contains(name, "\x00") || len(name) > 10_000
		if odd != (status.Code(err) == codes.InvalidArgument) {
			t.Errorf("prepare %.20q: %v", name, err)
		}
		_, err = s.snapshots.Stat(ctx, &snapshotsapi.StatSnapshotRequest{Key: name})
		if c := status.Code(err); odd && c != codes.InvalidArgument && c != codes.NotFound || !odd && c != codes.OK {
			t.Errorf("stat %.20q: %v", name, err)
		}
		for what, err := range map[string]error{
			"commit": second(s.snapshots.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Key: "none", Name: name, Parent: name})),
			"view":   second(s.snapshots.View(ctx, &snapshotsapi.ViewSnapshotRequest{Key: "v", Parent: name + "none"})),
			"mounts": second(s.snapshots.Mounts(ctx, &snapshotsapi.MountsRequest{Key: name + "none"})),
			"remove": second(s.snapshots.Remove(ctx, &snapshotsapi.RemoveSnapshotRequest{Key: name + "none"})),
			"usage":  second(s.snapshots.Usage(ctx, &snapshotsapi.UsageRequest{Key: name + "none"})),
			"status": second(s.content.Status(ctx, &contentapi.StatusRequest{Ref: name})),
			"abort":  second(s.content.Abort(ctx, &contentapi.AbortRequest{Ref: name})),
			"info":   second(s.content.Info(ctx, &contentapi.InfoRequest{Digest: name})),
			"delete": second(s.content.Delete(ctx, &contentapi.DeleteContentRequest{Digest: name})),
		} {
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.NotFound {
				t.Errorf("%s %.20q: %v", what, name, err)
			}
		}
	}
	after, err := filepath.Glob(filepath.Dir(s.path) + "/*")
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%v, and before %v: %v", after, before, err)
	}
	if _, err := os.Lstat("/etc/x"); err == nil {
		t.Error("there is a file /etc/x")
	}
}

func second[T any](_ T, err error) error { return err }

// TestSnapshotsAtOnce: clients do all that there is with the same few snapshots. Errors are those of the protocol.
func TestSnapshotsAtOnce(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 60 {
				key, name := fmt.Sprint("k", (g+i)%3), fmt.Sprint("n", i%3)
				for _, err := range []error{
					second(s.snapshots.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Key: key})),
					second(s.snapshots.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Key: key, Name: name})),
					second(s.snapshots.View(ctx, &snapshotsapi.ViewSnapshotRequest{Key: "v" + key, Parent: name})),
					second(s.snapshots.Update(ctx, &snapshotsapi.UpdateSnapshotRequest{Info: &snapshotsapi.Info{Name: name}})),
					second(s.snapshots.Remove(ctx, &snapshotsapi.RemoveSnapshotRequest{Key: "v" + key})),
					second(s.snapshots.Remove(ctx, &snapshotsapi.RemoveSnapshotRequest{Key: name})),
					second(s.snapshots.Cleanup(ctx, &snapshotsapi.CleanupRequest{})),
				} {
					switch status.Code(err) {
					case codes.OK, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition:
					default:
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	all.Wait()
}
