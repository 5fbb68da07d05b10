package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"holdfast/worker/api"
)

// overSocket is a client of the daemon of the working directory.
func overSocket(t *testing.T) *http.Client {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/store/api.sock")
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

const anywhere = "http://holdfastd"

// ran is what a step gives through the service.
func ran(t *testing.T, steps api.StepsClient, r *api.RunRequest) (out string, res *api.StepResult, err error) {
	t.Helper()
	stream, err := steps.Run(t.Context(), connect.NewRequest(r))
	if err != nil {
		return "", nil, err
	}
	defer stream.Close()
	for stream.Receive() {
		out += string(stream.Msg().GetOutput())
		if got := stream.Msg().GetResult(); got != nil {
			res = got
		}
	}
	return out, res, stream.Err()
}

func sh(script string) *api.RunRequest {
	return &api.RunRequest{Base: "bb", Command: []string{"sh", "-c", script}}
}

// TestAPISteps runs steps through the service, with each protocol.
func TestAPISteps(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
		t.Run(name, func(t *testing.T) {
			steps := api.NewStepsClient(overSocket(t), anywhere, options...)
			r := sh("echo $WHO; echo made >/made")
			r.Env = []string{"WHO=" + name}
			out, first, err := ran(t, steps, r)
			if err != nil || out != name+"\n" || first.GetHit() || !resultName.MatchString(first.GetSnapshot()) {
				t.Fatalf("%q, %v, %v", out, first, err)
			}
			out, again, err := ran(t, steps, r)
			if err != nil || out != name+"\n" || !again.GetHit() || again.GetSnapshot() != first.Snapshot {
				t.Errorf("again: %q, %v, %v", out, again, err)
			}
			r = sh("cat /made")
			r.Base = first.Snapshot
			if out, _, err := ran(t, steps, r); err != nil || out != "made\n" {
				t.Errorf("on the result: %q, %v", out, err)
			}
			if out, res, err := ran(t, steps, sh("echo no; exit 7")); err != nil || out != "no\n" || res.GetExitCode() != 7 || res.GetSnapshot() != "" || res.GetReason() == "" {
				t.Errorf("one that fails: %q, %v, %v", out, res, err)
			}
		})
	}
	steps := api.NewStepsClient(overSocket(t), anywhere)
	r := sh("cat /run/secrets/key | wc -c; cat /cache/x; echo cached >/cache/x")
	r.Secrets = []*api.Secret{{Id: "key", Data: []byte("a secret of the service")}}
	r.Caches = []*api.Cache{{Id: "c", Target: "/cache", Sharing: api.Sharing_SHARING_LOCKED}}
	r.NoCache = true
	for i, want := range []string{"23\ncat: can't open '/cache/x': No such file or directory\n", "23\ncached\n"} {
		if out, res, err := ran(t, steps, r); err != nil || out != want {
			t.Errorf("%d: a secret and a cache: %q, %v, %v", i, out, res, err)
		}
	}
	for what, c := range map[string]struct {
		r    *api.RunRequest
		code connect.Code
	}{
		"no base":     {&api.RunRequest{Base: "none", Command: []string{"true"}}, connect.CodeNotFound},
		"no command":  {&api.RunRequest{Base: "bb"}, connect.CodeInvalidArgument},
		"a NUL":       {&api.RunRequest{Base: "bb", Command: []string{"a\x00b"}}, connect.CodeInvalidArgument},
		"environment": {&api.RunRequest{Base: "bb", Command: []string{"true"}, Env: []string{"=x"}}, connect.CodeInvalidArgument},
		"user":        {&api.RunRequest{Base: "bb", Command: []string{"true"}, User: "a:b:c"}, connect.CodeInvalidArgument},
		"runtime":     {&api.RunRequest{Base: "bb", Command: []string{"true"}, Runtime: "docker"}, connect.CodeInvalidArgument},
		"network":     {&api.RunRequest{Base: "bb", Command: []string{"true"}, Network: 9}, connect.CodeInvalidArgument},
		"directory":   {&api.RunRequest{Base: "bb", Command: []string{"true"}, Workdir: "relative"}, connect.CodeInvalidArgument},
		"time":        {&api.RunRequest{Base: "bb", Command: []string{"true"}, Limits: &api.Limits{Time: durationpb.New(-1)}}, connect.CodeInvalidArgument},
		"tmpfs":       {&api.RunRequest{Base: "bb", Command: []string{"true"}, Tmpfs: []string{"relative"}}, connect.CodeInvalidArgument},
		"secret":      {&api.RunRequest{Base: "bb", Command: []string{"true"}, Secrets: []*api.Secret{{Id: "../x"}}}, connect.CodeInvalidArgument},
		"mode":        {&api.RunRequest{Base: "bb", Command: []string{"true"}, Secrets: []*api.Secret{{Id: "x", Mode: 0o4777}}}, connect.CodeInvalidArgument},
		"sharing":     {&api.RunRequest{Base: "bb", Command: []string{"true"}, Caches: []*api.Cache{{Id: "x", Target: "/x", Sharing: 7}}}, connect.CodeInvalidArgument},
		"cache":       {&api.RunRequest{Base: "bb", Command: []string{"true"}, Caches: []*api.Cache{{Id: "../../x", Target: "/x"}, nil}}, connect.CodeInvalidArgument},
		"too large":   {&api.RunRequest{Base: "bb", Command: []string{"true"}, ReserveBytes: 1 << 60}, connect.CodeResourceExhausted},
	} {
		if out, res, err := ran(t, steps, c.r); connect.CodeOf(err) != c.code || err == nil {
			t.Errorf("%s: %q, %v, %v; want %v", what, out, res, err, c.code)
		}
	}
	list, err := steps.List(t.Context(), connect.NewRequest(&api.ListStepsRequest{}))
	check(t, err)
	failed := 0
	for _, s := range list.Msg.Steps {
		if s.State != api.Step_STATE_DONE || s.Serial == 0 || s.Ended == nil {
			t.Errorf("%v", s)
		}
		if strings.Contains(s.Error, "exit code 7") || strings.Contains(s.Error, "failed") {
			failed++
			if got := logsOf(t, steps, &api.LogsRequest{Serial: s.Serial}); got != "no\n" {
				t.Errorf("the log of one that failed: %q", got)
			}
		}
	}
	if failed != 4 {
		t.Errorf("%d steps in the list have failed: %v", failed, list.Msg.Steps)
	}
}

func logsOf(t *testing.T, steps api.StepsClient, r *api.LogsRequest) (out string) {
	t.Helper()
	stream, err := steps.Logs(t.Context(), connect.NewRequest(r))
	check(t, err)
	defer stream.Close()
	for stream.Receive() {
		out += string(stream.Msg().Output)
	}
	check(t, stream.Err())
	return out
}

// TestAPILive: a step of a command is followed by others while it runs, and none of them ends it by going.
func TestAPILive(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	steps, store := api.NewStepsClient(overSocket(t), anywhere), api.NewStorageClient(overSocket(t), anywhere)
	done := make(chan result, 1)
	check(t, os.Mkdir("gate", 0o755))
	go func() {
		done <- served(t, "step", "--mount", "gate:/gate", "--base", "bb", "--", "sh", "-c", "echo begun; while [ ! -e /gate/open ]; do sleep 0.02; done; echo ended")
	}()
	var running *api.Step
	eventually(t, "the step runs", func() bool {
		list, err := steps.List(t.Context(), connect.NewRequest(&api.ListStepsRequest{}))
		check(t, err)
		for _, s := range list.Msg.Steps {
			if s.State == api.Step_STATE_RUNNING && s.OutputBytes > 0 {
				running = s
			}
		}
		return running != nil
	})
	if running.Base != "" && !strings.Contains(running.Command, "echo begun") || running.Waiters != 1 {
		t.Errorf("%v", running)
	}
	ctx, gone := context.WithCancel(t.Context())
	stream, err := steps.Logs(ctx, connect.NewRequest(&api.LogsRequest{Serial: running.Serial}))
	check(t, err)
	if !stream.Receive() || string(stream.Msg().Output) != "begun\n" {
		t.Errorf("the output so far: %v, %v", stream.Msg(), stream.Err())
	}
	gone()
	watch, err := store.Watch(t.Context(), connect.NewRequest(&api.WatchRequest{Interval: durationpb.New(1)}))
	check(t, err)
	for range 3 {
		if !watch.Receive() || watch.Msg().Status.StepsRunning != 1 || watch.Msg().Steps[0].Serial != running.Serial || watch.Msg().Status.MountsHeld == 0 {
			t.Errorf("%v, %v", watch.Msg(), watch.Err())
		}
	}
	check(t, watch.Close())
	var all sync.WaitGroup
	logs := make([]string, 10)
	for i := range logs {
		all.Go(func() { logs[i] = logsOf(t, steps, &api.LogsRequest{Serial: running.Serial}) })
	}
	check(t, os.WriteFile("gate/open", nil, 0o644))
	if r := <-done; r.code != 0 || r.out != "begun\nended\n" {
		t.Errorf("%+v", r)
	}
	all.Wait()
	for _, got := range logs {
		if got != "begun\nended\n" {
			t.Errorf("followed: %q", got)
		}
	}
	if err := logsError(t, steps, &api.LogsRequest{Serial: 1 << 40}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a step that never was: %v", err)
	}
}

// logsError is the error of Logs.
func logsError(t *testing.T, steps api.StepsClient, r *api.LogsRequest) error {
	t.Helper()
	stream, err := steps.Logs(t.Context(), connect.NewRequest(r))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
	}
	return stream.Err()
}

// TestAPIGone: the step of a client that goes is ended, and leaves nothing.
func TestAPIGone(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	steps, store := api.NewStepsClient(overSocket(t), anywhere), api.NewStorageClient(overSocket(t), anywhere)
	ctx, gone := context.WithCancel(t.Context())
	stream, err := steps.Run(ctx, connect.NewRequest(sh("echo begun; sleep 1000")))
	check(t, err)
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	gone()
	eventually(t, "the step has ended", func() bool {
		st, err := store.GetStatus(t.Context(), connect.NewRequest(&api.GetStatusRequest{}))
		check(t, err)
		return st.Msg.StepsRunning == 0 && st.Msg.MountsHeld == 0 && st.Msg.Snapshots == 2 && st.Msg.StepsFailed == 1
	})
}

// TestAPISnapshots lists, shows, removes and prunes.
func TestAPISnapshots(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	steps := api.NewStepsClient(overSocket(t), anywhere)
	snapshots, store := api.NewSnapshotsClient(overSocket(t), anywhere), api.NewStorageClient(overSocket(t), anywhere)
	var names []string
	for i := range 5 {
		r := sh(fmt.Sprintf("head -c %d /dev/zero >/zero", (i+1)<<20))
		r.Hold = durationpb.New(0)
		_, res, err := ran(t, steps, r)
		check(t, err)
		names = append(names, res.Snapshot)
	}
	list := func(r *api.ListSnapshotsRequest) *api.ListSnapshotsResponse {
		t.Helper()
		got, err := snapshots.List(t.Context(), connect.NewRequest(r))
		check(t, err)
		return got.Msg
	}
	eventually(t, "the list has them", func() bool { return list(&api.ListSnapshotsRequest{}).Total == 7 })
	got := list(&api.ListSnapshotsRequest{Search: "HEAD -c", Order: api.ListSnapshotsRequest_ORDER_SIZE, PageSize: 3})
	if got.Total != 5 || len(got.Snapshots) != 3 || got.Snapshots[0].Name != names[4] || got.Snapshots[2].Name != names[2] || got.NextPageToken == "" {
		t.Errorf("%v", got)
	}
	got = list(&api.ListSnapshotsRequest{Search: "HEAD -c", Order: api.ListSnapshotsRequest_ORDER_SIZE, PageSize: 3, PageToken: got.NextPageToken})
	if len(got.Snapshots) != 2 || got.Snapshots[1].Name != names[0] || got.NextPageToken != "" {
		t.Errorf("the second page: %v", got)
	}
	roots := list(&api.ListSnapshotsRequest{Children: true})
	if len(roots.Snapshots) != 1 || roots.Snapshots[0].Children != 6 { // the results, and the base
		t.Errorf("without a parent: %v", roots)
	}
	if got := list(&api.ListSnapshotsRequest{Children: true, Parent: roots.Snapshots[0].Name, Order: api.ListSnapshotsRequest_ORDER_CREATED}); got.Total != 6 || got.Snapshots[0].Name != names[4] {
		t.Errorf("of a parent: %v", got)
	}
	for _, token := range []string{"-1", "x", "99999999999999999999"} {
		if _, err := snapshots.List(t.Context(), connect.NewRequest(&api.ListSnapshotsRequest{PageToken: token})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("page token %q: %v", token, err)
		}
	}
	if got := list(&api.ListSnapshotsRequest{PageToken: "1000", PageSize: -5}); len(got.Snapshots) != 0 {
		t.Errorf("beyond the end: %v", got)
	}
	one, err := snapshots.Get(t.Context(), connect.NewRequest(&api.GetSnapshotRequest{Name: names[0]}))
	if err != nil || one.Msg.Snapshot.Bytes < 1<<20 || one.Msg.Prune != "" || len(one.Msg.Kept) == 0 || len(one.Msg.Children) != 0 {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := snapshots.Remove(t.Context(), connect.NewRequest(&api.RemoveSnapshotRequest{Name: "bb"})); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := snapshots.Remove(t.Context(), connect.NewRequest(&api.RemoveSnapshotRequest{Name: roots.Snapshots[0].Name})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("remove what has children: %v", err)
	}
	if _, err := snapshots.Get(t.Context(), connect.NewRequest(&api.GetSnapshotRequest{Name: "bb"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was removed: %v", err)
	}
	for _, dry := range []bool{true, false} {
		stream, err := store.Prune(t.Context(), connect.NewRequest(&api.PruneRequest{DryRun: dry}))
		check(t, err)
		var end *api.PruneResult
		for stream.Receive() {
			end = stream.Msg().GetResult()
		}
		if stream.Err() != nil || end == nil || end.Snapshots != 0 { // all are young
			t.Errorf("%v, %v", end, stream.Err())
		}
	}
}

// TestAPIImport imports an archive in parts, and refuses those that are not right.
func TestAPIImport(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	images := api.NewImagesClient(overSocket(t), anywhere)
	archive, err := os.ReadFile("busybox.tar")
	check(t, err)
	send := func(parts ...*api.ImportRequest) (*connect.Response[api.ImportResponse], error) {
		stream := images.Import(t.Context())
		for _, p := range parts {
			if err := stream.Send(p); err != nil && !errors.Is(err, io.EOF) { // it has ended the call: CloseAndReceive says why
				t.Fatal(err)
			}
		}
		return stream.CloseAndReceive()
	}
	options := func(name string) *api.ImportRequest {
		return &api.ImportRequest{Part: &api.ImportRequest_Options_{Options: &api.ImportRequest_Options{Name: name}}}
	}
	data := func(b []byte) *api.ImportRequest { return &api.ImportRequest{Part: &api.ImportRequest_Data{Data: b}} }
	parts := []*api.ImportRequest{options("again")}
	for rest := archive; len(rest) > 0; {
		n := min(len(rest), 1<<20)
		parts = append(parts, data(rest[:n]))
		rest = rest[n:]
	}
	if got, err := send(parts...); err != nil || got.Msg.Layers != 1 || got.Msg.NewLayers != 0 { // it is there as bb
		t.Errorf("%v, %v", got, err)
	}
	for what, parts := range map[string][]*api.ImportRequest{
		"nothing": {}, "no options": {data(archive)}, "options twice": {options("x"), options("y")}, "a bad name": {options("../x"), data(archive[:512])},
		"cut off": {options("x"), data(archive[:len(archive)/2])}, "no archive": {options("x"), data(bytes.Repeat([]byte("x"), 4096))}, "no part": {options("x"), {}},
	} {
		if got, err := send(parts...); err == nil || connect.CodeOf(err) == connect.CodeInternal {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	if r := served(t, "snapshot", "ls"); strings.Contains(r.out, " x ") || !strings.Contains(r.out, "again") {
		t.Errorf("%+v", r)
	}
}

// TestAPIPage: the page is at an address that only who knows the token can use.
func TestAPIPage(t *testing.T) {
	stand(t, "overlay")
	if r := served(t, "page"); r.code != 1 || !strings.Contains(r.errOut, "/store serve --http 127.0.0.1:8723") {
		t.Errorf("without a daemon: %+v", r)
	}
	startDaemon(t, "--http", "127.0.0.1:0")
	r := served(t, "page")
	address, token, ok := strings.Cut(strings.TrimSpace(r.out), "#token=")
	if r.code != 0 || !ok || len(token) < 20 {
		t.Fatalf("%+v", r)
	}
	if info, err := os.Stat("store/http.token"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	get := func(method, path, token, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
		check(t, err)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if method == "POST" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(req)
		check(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		check(t, err)
		return resp, string(b)
	}
	const status = "holdfast.worker.v1.Storage/GetStatus"
	for _, c := range []struct {
		method, path, token, body string
		code                      int
	}{
		{"GET", "", "", "", 200}, {"GET", "healthz", "", "", 200}, {"GET", "page/app.js", "", "", 200},
		{"GET", "page/../../../etc/passwd", "", "", 401}, {"GET", "page/none", "", "", 404},
		{"POST", status, "", "{}", 401}, {"POST", status, token + "x", "{}", 401}, {"POST", status, token[:10], "{}", 401}, {"POST", status, token, "{}", 200},
		{"GET", "metrics", "", "", 401}, {"GET", "metrics", token, "", 200}, {"GET", "debug/pprof/", "", "", 401}, {"GET", "debug/pprof/goroutine?debug=1", token, "", 200},
		{"GET", "debug/pprof/cmdline", token, "", 404},
		{"POST", status, token, "{", 400}, {"POST", status, token, `{"x":1}`, 200}, {"POST", "holdfast.worker.v1.Storage/Nothing", token, "{}", 404},
		{"POST", status, token, strings.Repeat(" ", 5<<20), 413},
	} {
		if resp, body := get(c.method, c.path, c.token, c.body); resp.StatusCode != c.code {
			t.Errorf("%s %s with %q: %d, %.200s", c.method, c.path, c.token, resp.StatusCode, body)
		}
	}
	resp, body := get("POST", status, token, "{}")
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || got["driver"] != "overlay" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%s, %v", body, err)
	}
	_, metrics := get("GET", "metrics", token, "")
	for _, name := range []string{"holdfast_snapshots 2", `holdfast_database_commits_total{database="metadata.db"}`, "holdfast_store_up 1", "go_goroutines"} {
		if !strings.Contains(metrics, name) {
			t.Errorf("there is no %s in the metrics", name)
		}
	}
	for what, text := range map[string]string{"token": token, "address": "#token="} {
		if _, log := get("GET", "metrics", token, ""); strings.Contains(log, text) {
			t.Errorf("the %s is in the metrics", what)
		}
	}
}

// TestServeActivation: with sockets of systemd clients wait for a daemon that is started again, also after kill -9, and a store
// that is not there yet is made beside the sockets.
func TestServeActivation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a daemon mounts")
	}
	t.Chdir(t.TempDir())
	busybox(t)
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.Mkdir("store", 0o700))
	var files []*os.File
	for _, name := range []string{"command.sock", "api.sock", "other.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "store", name), Net: "unix"})
		check(t, err)
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		check(t, err)
		check(t, l.Close())
		t.Cleanup(func() { _ = f.Close() })
		files = append(files, f)
	}
	var log bytes.Buffer
	start := func() *exec.Cmd {
		cmd := holdfastd(t, "serve")
		cmd.Args = append([]string{"sh", "-c", `LISTEN_FDS=3 LISTEN_PID=$$ exec "$0" "$@"`, "/proc/self/exe"}, cmd.Args[1:]...)
		self, err := os.Executable()
		check(t, err)
		cmd.Args[3], cmd.Path = self, "/bin/sh"
		cmd.ExtraFiles, cmd.Stderr = files, &log
		check(t, cmd.Start())
		return cmd
	}
	store := api.NewStorageClient(overSocket(t), anywhere)
	done := make(chan error, 1)
	get := func() {
		_, err := store.GetStatus(t.Context(), connect.NewRequest(&api.GetStatusRequest{}))
		done <- err
	}
	go get() // before there is a daemon
	first := start()
	if err := <-done; err != nil {
		t.Fatalf("%v; %s", err, &log)
	}
	if r := served(t, "import", "busybox.tar", "bb"); r.code != 0 {
		t.Errorf("%+v; %s", r, &log)
	}
	check(t, first.Process.Kill())
	_ = first.Wait()
	again := make(chan result, 1)
	go func() { again <- served(t, "step", "--base", "bb", "--", "sh", "-c", "echo again") }()
	second := start()
	if r := <-again; r.code != 0 || r.out != "again\n" {
		t.Errorf("after kill -9: %+v; %s", r, &log)
	}
	check(t, second.Process.Signal(syscall.SIGTERM))
	if err := second.Wait(); err != nil {
		t.Errorf("%v; %s", err, &log)
	}
	// Clients of a socket with a wrong path waited, and nothing said why.
	if !strings.Contains(log.String(), "none of the daemon's") || !strings.Contains(log.String(), "other.sock") {
		t.Errorf("the socket with another path: %s", &log)
	}
	for _, name := range []string{"command.sock", "api.sock"} {
		if _, err := os.Lstat("store/" + name); err != nil {
			t.Errorf("the socket is systemd's: %v", err)
		}
	}
}

// TestAPIDrains: a daemon that is to end lets steps of clients end, and not those who watch keep it.
func TestAPIDrains(t *testing.T) {
	stand(t, "overlay")
	d := startDaemon(t)
	steps, store := api.NewStepsClient(overSocket(t), anywhere), api.NewStorageClient(overSocket(t), anywhere)
	stream, err := steps.Run(t.Context(), connect.NewRequest(sh("echo begun; sleep 0.5; echo ended")))
	check(t, err)
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	watch, err := store.Watch(t.Context(), connect.NewRequest(&api.WatchRequest{}))
	check(t, err)
	if !watch.Receive() {
		t.Fatal(watch.Err())
	}
	check(t, d.cmd.Process.Signal(syscall.SIGTERM))
	for watch.Receive() {
	}
	if connect.CodeOf(watch.Err()) != connect.CodeUnavailable {
		t.Errorf("watching: %v", watch.Err())
	}
	out, name := "", ""
	for stream.Receive() {
		out += string(stream.Msg().GetOutput())
		name = stream.Msg().GetResult().GetSnapshot()
	}
	if stream.Err() != nil || out != "ended\n" || name == "" {
		t.Errorf("the step: %q, %q, %v", out, name, stream.Err())
	}
	d.stop()
}
