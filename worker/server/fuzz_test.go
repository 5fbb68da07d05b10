package server_test

import (
	"context"
	"testing"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// raw sends and receives messages as bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

// methods are those of containerd's services, and some that there are not.
var methods = []string{
	"snapshots.v1.Snapshots/Prepare", "snapshots.v1.Snapshots/View", "snapshots.v1.Snapshots/Mounts", "snapshots.v1.Snapshots/Commit",
	"snapshots.v1.Snapshots/Remove", "snapshots.v1.Snapshots/Stat", "snapshots.v1.Snapshots/Update", "snapshots.v1.Snapshots/List",
	"snapshots.v1.Snapshots/Usage", "snapshots.v1.Snapshots/Cleanup", "content.v1.Content/Info", "content.v1.Content/Update",
	"content.v1.Content/List", "content.v1.Content/Delete", "content.v1.Content/Read", "content.v1.Content/Status",
	"content.v1.Content/ListStatuses", "content.v1.Content/Write", "content.v1.Content/Abort", "content.v1.Content/None",
}

// FuzzCalls sends any messages to any call of containerd's services, two one after the other: none ends the server, and the
// store of snapshots stays as it has to be.
func FuzzCalls(f *testing.F) {
	for i, m := range []proto.Message{
		&snapshotsapi.PrepareSnapshotRequest{Key: "k", Labels: map[string]string{"a": "b"}}, &snapshotsapi.ViewSnapshotRequest{Key: "v", Parent: "k"},
		&snapshotsapi.MountsRequest{Key: "k"}, &snapshotsapi.CommitSnapshotRequest{Name: "n", Key: "k"}, &snapshotsapi.RemoveSnapshotRequest{Key: "k"},
		&snapshotsapi.StatSnapshotRequest{Key: "k"}, &snapshotsapi.UpdateSnapshotRequest{Info: &snapshotsapi.Info{Name: "n"}},
		&snapshotsapi.ListSnapshotsRequest{Filters: []string{"name==k"}}, &snapshotsapi.UsageRequest{Key: "k"}, &snapshotsapi.CleanupRequest{},
		&contentapi.InfoRequest{Digest: "sha256:x"}, &contentapi.UpdateRequest{Info: &contentapi.Info{Digest: "x"}}, &contentapi.ListContentRequest{Filters: []string{"x"}},
		&contentapi.DeleteContentRequest{Digest: "x"}, &contentapi.ReadContentRequest{Digest: "x", Offset: -1}, &contentapi.StatusRequest{Ref: "r"},
		&contentapi.ListStatusesRequest{}, &contentapi.WriteContentRequest{Action: contentapi.WriteAction_WRITE, Ref: "r", Total: 3, Data: []byte("abc")},
		&contentapi.AbortRequest{Ref: "r"}, &contentapi.AbortRequest{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b, b)
		f.Add(byte(i), b, []byte(nil))
		f.Add(byte(i), []byte{0xff}, b)
	}
	s := serve(f)
	f.Fuzz(func(t *testing.T, method byte, first, second []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		name := "/containerd.services." + methods[int(method)%len(methods)]
		stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name, grpc.ForceCodec(raw{}))
		for _, m := range [][]byte{first, second} {
			if err == nil {
				err = stream.SendMsg(&m)
			}
		}
		if err == nil {
			err = stream.CloseSend()
		}
		for err == nil {
			var answer []byte
			err = stream.RecvMsg(&answer)
		}
		if _, err := s.content.Info(t.Context(), &contentapi.InfoRequest{}); err == nil {
			t.Fatal("there is content without a digest")
		}
		if problems, err := s.names.Store().Check(t.Context()); err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", name, problems, err)
		}
	})
}
