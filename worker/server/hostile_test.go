package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"holdfast/worker/content"
	"holdfast/worker/server"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// A served is a server with a client.
type served struct {
	server    *server.Server
	store     *content.Store
	names     *snapshot.Namespace
	path      string
	conn      *grpc.ClientConn
	content   contentapi.ContentClient
	snapshots snapshotsapi.SnapshotsClient
}

// dial is another connection.
func (s *served) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func serve(t testing.TB) *served {
	t.Helper()
	dir := t.TempDir()
	store, err := content.Open(filepath.Join(dir, "content.db"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := snapshot.Open(filepath.Join(dir, "snapshots"), snapshot.Options{Driver: copy.New()})
	if err != nil {
		t.Fatal(err)
	}
	names, err := snapshots.ClientNamespace("test")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{store: store, names: names, path: filepath.Join(dir, "s")}
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.server = server.New(server.Services{Snapshots: names, Content: store}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.server.Stop(ctx)
		if err := errors.Join(<-done, store.Close(), snapshots.Close()); err != nil {
			t.Error(err)
		}
	})
	s.conn = s.dial(t)
	s.content, s.snapshots = contentapi.NewContentClient(s.conn), snapshotsapi.NewSnapshotsClient(s.conn)
	return s
}

// put commits content.
func (s *served) put(ctx context.Context, t *testing.T, data []byte, labels map[string]string) digest.Digest {
	t.Helper()
	w, err := s.store.Writer(ctx, "put", content.Expected{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	info, err := w.Commit(ctx, 0, "", labels)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return info.Digest
}

// TestListOfLongLabels: a message of a list had a hundred rows, however long their labels, and more bytes than a message can have:
// nothing could be listed any more.
func TestListOfLongLabels(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	const n = 70
	for i := range n {
		s.put(ctx, t, fmt.Appendf(nil, "content %d", i), map[string]string{"l": strings.Repeat("x", 250<<10)})
	}
	list, err := s.content.List(ctx, &contentapi.ListContentRequest{})
	got := 0
	for err == nil {
		var r *contentapi.ListContentResponse
		if r, err = list.Recv(); err == nil {
			got += len(r.Info)
		}
	}
	if !errors.Is(err, io.EOF) || got != n {
		t.Errorf("content: %d are listed, %v", got, err)
	}
	for i := range 20 {
		if _, err := s.names.Prepare(ctx, fmt.Sprint("s", i), "", snapshot.WithLabels(map[string]string{"l": strings.Repeat("x", 1_000_000)})); err != nil {
			t.Fatal(err)
		}
	}
	shots, err := s.snapshots.List(ctx, &snapshotsapi.ListSnapshotsRequest{})
	got = 0
	for err == nil {
		var r *snapshotsapi.ListSnapshotsResponse
		if r, err = shots.Recv(); err == nil {
			got += len(r.Info)
		}
	}
	if !errors.Is(err, io.EOF) || got != 20 {
		t.Errorf("snapshots: %d are listed, %v", got, err)
	}
}

// TestLongFilter: a filter had its expression compiled for each row, however long it was: one of 1.6 MB took 0.4 s of each row.
func TestLongFilter(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	for i := range 30 {
		s.put(ctx, t, fmt.Appendf(nil, "content %d", i), nil)
	}
	begun := time.Now()
	list, err := s.content.List(ctx, &contentapi.ListContentRequest{Filters: []string{`digest~="` + strings.Repeat("(a|b){9}", 200_000) + `"`}})
	if err == nil {
		_, err = list.Recv()
	}
	if took := time.Since(begun); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a long filter: %v after %v", err, took)
	}
}

// TestOddRequests: what no client of containerd sends is an error, and nothing else.
func TestOddRequests(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	d := s.put(ctx, t, []byte("content"), nil).String()
	empty := s.put(ctx, t, nil, nil).String()
	_, nilInfo := s.content.Update(ctx, &contentapi.UpdateRequest{})
	_, nilSnapshot := s.snapshots.Update(ctx, &snapshotsapi.UpdateSnapshotRequest{})
	_, field := s.content.Update(ctx, &contentapi.UpdateRequest{Info: &contentapi.Info{Digest: d}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}}})
	for name, err := range map[string]error{"nil": nilInfo, "nil snapshot": nilSnapshot, "field": field} {
		if c := status.Code(err); c != codes.InvalidArgument && c != codes.NotFound {
			t.Errorf("update, %s: %v", name, err)
		}
	}
	for _, c := range []struct {
		digest       string
		offset, size int64
		want         string
		code         codes.Code
	}{
		{d, 0, 0, "content", codes.OK}, {d, -1, -1, "content", codes.OK}, {d, math.MinInt64, math.MinInt64, "content", codes.OK},
		{d, 3, math.MaxInt64, "tent", codes.OK}, {d, 7, math.MaxInt64, "", codes.OK}, {d, 8, 0, "", codes.OutOfRange},
		{d, math.MaxInt64, math.MaxInt64, "", codes.OutOfRange}, {empty, 0, 1, "", codes.OK}, {"x", 0, 0, "", codes.InvalidArgument},
	} {
		got := ""
		r, err := s.content.Read(ctx, &contentapi.ReadContentRequest{Digest: c.digest, Offset: c.offset, Size: c.size})
		for err == nil {
			var m *contentapi.ReadContentResponse
			if m, err = r.Recv(); err == nil {
				got += string(m.Data)
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != c.code || got != c.want {
			t.Errorf("read of %d bytes at %d: %q, %v", c.size, c.offset, got, err)
		}
	}
	for name, r := range map[string]*contentapi.WriteContentRequest{
		"nothing": {}, "action": {Ref: "a", Action: 77}, "negative": {Ref: "a", Action: -1}, "total": {Ref: "a", Total: -5},
		"offset": {Ref: "a", Action: contentapi.WriteAction_WRITE, Offset: math.MaxInt64, Data: []byte("x")},
		"before": {Ref: "a", Action: contentapi.WriteAction_WRITE, Offset: -1, Data: []byte("x")},
		"digest": {Ref: "a", Action: contentapi.WriteAction_COMMIT, Expected: "sha256:../../etc"},
	} {
		w, err := s.content.Write(ctx)
		if err == nil {
			if err = w.Send(r); err == nil {
				_, err = w.Recv()
			}
		}
		if c := status.Code(err); c != codes.InvalidArgument && c != codes.OutOfRange {
			t.Errorf("write, %s: %v", name, err)
		}
	}
	list, err := s.content.ListStatuses(ctx, &contentapi.ListStatusesRequest{Filters: []string{`ref~="("`}})
	t.Log(list, err)
}

// TestClientsGoAway: clients that stop reading, or vanish, with writes and reads under way leave no goroutine and no ref behind.
func TestClientsGoAway(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	big := s.put(ctx, t, make([]byte, 40<<20), nil).String()
	before := runtime.NumGoroutine()
	conn := s.dial(t)
	client := contentapi.NewContentClient(conn)
	for i := range 200 {
		w, err := client.Write(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() { // sends, and never receives
			for at := int64(0); ; at += 64 << 10 {
				if w.Send(&contentapi.WriteContentRequest{Ref: fmt.Sprint("w", i), Action: contentapi.WriteAction_WRITE, Offset: at, Data: make([]byte, 64<<10)}) != nil {
					return
				}
			}
		}()
		if _, err := client.Read(ctx, &contentapi.ReadContentRequest{Digest: big}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Second)
	if open := s.store.DB().Stats().OpenTxN; open > 1 {
		t.Errorf("%d transactions are open", open)
	}
	if _, err := s.content.Info(ctx, &contentapi.InfoRequest{Digest: big}); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+10; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	for i := range 200 {
		w, err := s.store.Writer(ctx, fmt.Sprint("w", i), content.Expected{})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Status().Offset; got%(64<<10) != 0 {
			t.Errorf("w%d goes on at %d", i, got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestManyStreams: a client that opens more writers than there may be is refused some, and others are served still.
func TestManyStreams(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	var streams []contentapi.Content_WriteClient
	for range 5 {
		client := contentapi.NewContentClient(s.dial(t))
		for range 1000 {
			w, err := client.Write(ctx)
			if err == nil {
				err = w.Send(&contentapi.WriteContentRequest{Ref: fmt.Sprint("w", len(streams)), Action: contentapi.WriteAction_STAT})
			}
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, w)
		}
	}
	refused := 0
	for _, w := range streams {
		if _, err := w.Recv(); status.Code(err) == codes.Unavailable {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused != 5000-4096 {
		t.Errorf("%d are refused", refused)
	}
	if got, err := s.content.ListStatuses(ctx, &contentapi.ListStatusesRequest{}); err != nil || len(got.Statuses) != 4096 {
		t.Errorf("%d ingests, %v", len(got.GetStatuses()), err)
	}
}

// TestStopBesideStuckClients: clients that neither read nor end do not keep a server from stopping, and the store from closing, and what
// was written is there afterwards.
func TestStopBesideStuckClients(t *testing.T) {
	ctx := t.Context()
	s := serve(t)
	big := s.put(ctx, t, make([]byte, 40<<20), nil).String()
	const n = 50
	for i := range n {
		w, err := s.content.Write(ctx)
		if err == nil {
			err = w.Send(&contentapi.WriteContentRequest{Ref: fmt.Sprint("w", i), Action: contentapi.WriteAction_WRITE, Data: make([]byte, 1000)})
		}
		if err == nil {
			_, err = w.Recv()
		}
		if err == nil {
			_, err = s.content.Read(ctx, &contentapi.ReadContentRequest{Digest: big})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	stopped := make(chan struct{})
	go func() { s.server.Stop(short); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not stop")
	}
	list, err := s.store.Statuses(ctx)
	if err != nil || len(list) != n {
		t.Fatalf("%d ingests, %v", len(list), err)
	}
	for _, l := range list {
		if w, err := s.store.Writer(ctx, l.Ref, content.Expected{}); err != nil || l.Offset != 1000 {
			t.Errorf("%+v, %v", l, err)
		} else if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
