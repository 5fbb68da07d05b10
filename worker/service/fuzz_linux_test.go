package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"holdfast"
	"holdfast/worker/api"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/step"
)

var procedures = []string{
	api.StepsRunProcedure, api.StepsListProcedure, api.StepsLogsProcedure, api.SnapshotsListProcedure, api.SnapshotsGetProcedure,
	api.SnapshotsRemoveProcedure, api.SnapshotsDiffProcedure, api.SnapshotsExportProcedure, api.ImagesImportProcedure, api.ImagesExportProcedure,
	api.StorageGetStatusProcedure, api.StorageWatchProcedure, api.StorageGetHistoryProcedure, api.StoragePruneProcedure,
	api.StorageListMountsProcedure, api.StorageListDatabasesProcedure, api.StorageGetPagesProcedure,
}

var contentTypes = []string{
	"application/proto", "application/json", "application/connect+proto", "application/connect+json", "application/grpc", "application/grpc+json",
	"application/grpc-web", "application/grpc-web+json", "text/plain", "",
}

// FuzzRequests sends any bytes to any call in any of the protocols: what is no request is refused, no call panics, and the
// store stays as it has to be.
func FuzzRequests(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("needs root: it mounts")
	}
	seeds := []proto.Message{
		&api.RunRequest{Base: "base", Command: []string{"/none"}}, &api.ListStepsRequest{}, &api.LogsRequest{Snapshot: "base"}, &api.ListSnapshotsRequest{Search: "b", PageToken: "1"},
		&api.GetSnapshotRequest{Name: "base"}, &api.RemoveSnapshotRequest{Name: "other"}, &api.DiffSnapshotsRequest{After: "base"}, &api.ExportSnapshotRequest{Snapshot: "base", Path: "/.."},
		&api.ImportRequest{Part: &api.ImportRequest_Options_{Options: &api.ImportRequest_Options{Name: "new"}}}, &api.ExportImageRequest{Snapshot: "base"},
		&api.GetStatusRequest{}, &api.WatchRequest{}, &api.GetHistoryRequest{}, &api.PruneRequest{DryRun: true}, &api.ListMountsRequest{},
		&api.ListDatabasesRequest{}, &api.GetPagesRequest{Database: "metadata.db"},
	}
	for i, m := range seeds {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		j, err := protojson.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for kind, name := range contentTypes {
			body := b
			if strings.Contains(name, "json") {
				body = j
			}
			if kind >= 2 { // an envelope: flags, and the length
				body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
			}
			f.Add(byte(i), byte(kind), "POST", body)
		}
		f.Add(byte(i), byte(0), "GET", []byte(nil))
	}
	s, log := fuzzed(f)
	handler := s.Handler(Access{})
	f.Fuzz(func(t *testing.T, procedure, kind byte, method string, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		path := procedures[int(procedure)%len(procedures)]
		r, err := http.NewRequestWithContext(ctx, method, "http://x"+path, bytes.NewReader(body))
		if err != nil { // not a method
			return
		}
		if r.Method == http.MethodGet {
			r.URL.RawQuery = "encoding=json&connect=v1&message=" + string(body)
		}
		r.Header.Set("Content-Type", contentTypes[int(kind)%len(contentTypes)])
		r.ProtoMajor = 2
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if text := log.String(); strings.Contains(text, "panic") {
			t.Fatalf("%s %s: %s", method, path, text)
		}
		_, _ = io.Copy(io.Discard, w.Result().Body)
		if problems, err := s.store.Check(t.Context()); err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, %v", path, problems, err)
		}
	})
}

// fuzzed is a Service with a small store, and what it logs.
func fuzzed(f *testing.F) (*Service, *bytes.Buffer) {
	f.Helper()
	check := func(err error) {
		if err != nil {
			f.Fatal(err)
		}
	}
	root := filepath.Join(f.TempDir(), "store")
	store, err := snapshot.Open(root, snapshot.Options{Driver: copydriver.New(), Durability: holdfast.None})
	check(err)
	names, err := store.Namespace("local")
	check(err)
	for _, name := range []string{"base", "other"} {
		_, err = names.Prepare(f.Context(), "making "+name, "")
		check(err)
		check(names.Commit(f.Context(), name, "making "+name))
	}
	mounts, err := mount.Open(f.Context(), mount.Options{Directory: filepath.Join(f.TempDir(), "run"), Keep: []string{root}})
	check(err)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	runner, err := step.New(f.Context(), step.Options{Namespace: names, Mounts: mounts, Logger: slog.New(slog.DiscardHandler), Durability: holdfast.None})
	check(err)
	s := New(Options{
		Version: "test", Namespace: names, Runner: runner, Mounts: mounts, Databases: []Database{{Name: "metadata.db", DB: store.Database()}},
		Policies: func() Policies { return Policies{} }, Reserve: func(context.Context, string, int64) (func(), error) { return func() {}, nil },
		Show: func(context.Context, snapshot.Info) (string, func() error, error) {
			return root, func() error { return nil }, nil
		},
		Client:      registry.Client{Downloads: filepath.Join(root, "downloads")},
		Concurrency: 1, Logger: logger,
	})
	f.Cleanup(func() {
		s.Close()
		check(runner.Close())
		check(mounts.Close(context.Background()))
		check(store.Close())
	})
	return s, &log
}
