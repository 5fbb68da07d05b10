package command_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"golang.org/x/sys/unix"
)

// plugin is a client of a proxy plugin's socket.
type plugin struct {
	snapshotsapi.SnapshotsClient
	contentapi.ContentClient
	conn *grpc.ClientConn
}

func dialPlugin(t *testing.T, socket string) plugin {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return plugin{snapshotsapi.NewSnapshotsClient(conn), contentapi.NewContentClient(conn), conn}
}

// write writes content in two messages and commits it.
func (p plugin) write(ctx context.Context, ref string, data []byte) (digest string, err error) {
	stream, err := p.ContentClient.Write(ctx)
	if err != nil {
		return "", err
	}
	half := len(data) / 2
	for _, r := range []*contentapi.WriteContentRequest{
		{Action: contentapi.WriteAction_STAT, Ref: ref},
		{Action: contentapi.WriteAction_WRITE, Data: data[:half]},
		{Action: contentapi.WriteAction_COMMIT, Data: data[half:], Offset: int64(half), Total: int64(len(data))},
	} {
		if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		answer, err := stream.Recv()
		if err != nil {
			return "", err
		}
		digest = answer.Digest
	}
	return digest, nil
}

// read reads content.
func (p plugin) read(ctx context.Context, digest string) (data []byte, err error) {
	stream, err := p.ContentClient.Read(ctx, &contentapi.ReadContentRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		data = append(data, r.Data...)
	}
}

// pluginConfig is a configuration with a socket for a client, whose path is returned too.
func pluginConfig(t *testing.T) (file, socket string) {
	t.Helper()
	dir, err := os.Getwd()
	check(t, err)
	socket = filepath.Join(dir, "plugin.sock")
	file = filepath.Join(dir, "holdfastd.toml")
	check(t, os.WriteFile(file, fmt.Appendf(nil, "[[containerd]]\nsocket = %q\nnamespace = \"containerd\"\ncontent = true\n", socket), 0o644))
	return file, socket
}

// Many clients write content and snapshots when the daemon is killed, again and again: what was acknowledged is there, whole.
func TestServePluginKilled(t *testing.T) {
	stand(t, "overlay")
	file, socket := pluginConfig(t)
	ctx := context.Background()
	var mu sync.Mutex
	acknowledged, keys := map[string]bool{}, map[string]bool{}
	for round := range 3 {
		d := startDaemon(t, "--config", file)
		p := dialPlugin(t, socket)
		for digest := range acknowledged {
			data, err := p.read(ctx, digest)
			if err != nil || fmt.Sprintf("sha256:%x", sha256.Sum256(data)) != digest {
				t.Fatalf("round %d: %s was acknowledged: %d bytes, %v", round, digest, len(data), err)
			}
		}
		for key := range keys {
			if _, err := p.SnapshotsClient.Stat(ctx, &snapshotsapi.StatSnapshotRequest{Key: key}); err != nil {
				t.Fatalf("round %d: snapshot %s was acknowledged: %v", round, key, err)
			}
		}
		var all sync.WaitGroup
		for c := range 8 {
			all.Go(func() {
				for i := 0; ; i++ {
					data := make([]byte, 1+rand.IntN(200_000))
					data[0], data[len(data)/2], data[len(data)-1] = byte(c), byte(i), byte(round)
					digest, err := p.write(ctx, fmt.Sprintf("%d-%d-%d", round, c, i), data)
					key := fmt.Sprintf("%d-%d-%d", round, c, i)
					if err == nil {
						mu.Lock()
						acknowledged[digest] = true
						mu.Unlock()
						_, err = p.SnapshotsClient.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Key: key})
					}
					if err == nil {
						_, err = p.SnapshotsClient.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Key: key, Name: "layer-" + key})
					}
					if code := status.Code(err); code == codes.AlreadyExists {
						continue
					}
					if err != nil {
						return // it was killed
					}
					mu.Lock()
					keys["layer-"+key] = true
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(200+rand.IntN(300)) * time.Millisecond)
		d.kill()
		all.Wait()
	}
	if len(acknowledged) < 10 || len(keys) < 10 {
		t.Errorf("only %d contents and %d snapshots were acknowledged", len(acknowledged), len(keys))
	}
	d := startDaemon(t, "--config", file)
	d.stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A client that stays connected, in the middle of a write, does not keep the daemon from ending; what it had written is there for the next one.
func TestServePluginStays(t *testing.T) {
	stand(t, "overlay")
	file, socket := pluginConfig(t)
	ctx := context.Background()
	d := startDaemon(t, "--config", file)
	p := dialPlugin(t, socket)
	stream, err := p.ContentClient.Write(ctx)
	check(t, err)
	check(t, stream.Send(&contentapi.WriteContentRequest{Action: contentapi.WriteAction_WRITE, Ref: "a", Data: []byte("half")}))
	_, err = stream.Recv()
	check(t, err)
	d.stop()
	d = startDaemon(t, "--config", file)
	p = dialPlugin(t, socket)
	st, err := p.ContentClient.Status(ctx, &contentapi.StatusRequest{Ref: "a"})
	if err != nil || st.Status.Offset != 4 {
		t.Errorf("what was written before: %v, %v", st, err)
	}
	// What happened: the namespace of a client that has removed all its snapshots was refused as unknown.
	if r := served(t, "snapshot", "ls", "--namespace", "containerd", "--json"); r.code != 0 || strings.TrimSpace(r.out) != "[]" {
		t.Errorf("no snapshots of a client: %+v", r)
	}
	// Names that lead somewhere are names.
	for _, key := range []string{"../../../etc/passwd", "a/../../b", strings.Repeat("x/", 400)} {
		_, err := p.SnapshotsClient.Prepare(ctx, &snapshotsapi.PrepareSnapshotRequest{Key: key})
		check(t, err)
	}
	d.stop()
}

// What happened: containerd 1.6 mounted a snapshot, unmounted it and mounted it again, for its container, and the kernel refused: the options
// had volatile, as those of steps have.
func TestServePluginMountsTwice(t *testing.T) {
	stand(t, "overlay")
	file, socket := pluginConfig(t)
	startDaemon(t, "--config", file)
	p := dialPlugin(t, socket)
	ctx := context.Background()
	for _, r := range []*snapshotsapi.PrepareSnapshotRequest{{Key: "first"}, {Key: "second", Parent: "base"}} {
		if r.Parent != "" {
			_, err := p.SnapshotsClient.Commit(ctx, &snapshotsapi.CommitSnapshotRequest{Key: "first", Name: "base"})
			check(t, err)
		}
		got, err := p.SnapshotsClient.Prepare(ctx, r)
		check(t, err)
		m := got.Mounts[0]
		if m.Type != "overlay" {
			continue // a bind of an only layer
		}
		dir := t.TempDir()
		for range 2 {
			check(t, unix.Mount(m.Source, dir, m.Type, 0, strings.Join(m.Options, ",")))
			check(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
			check(t, unix.Unmount(dir, 0))
		}
		return
	}
	t.Error("no snapshot was an overlay")
}

// What is at the path of the socket and is no socket, or another process's, stays.
func TestServePluginPath(t *testing.T) {
	stand(t, "overlay")
	file, socket := pluginConfig(t)
	check(t, os.WriteFile(socket, []byte("precious"), 0o600))
	if r := served(t, "serve", "--config", file); r.code != 1 || !strings.Contains(r.errOut, "no socket") {
		t.Errorf("a file at the path: %+v", r)
	}
	if b, err := os.ReadFile(socket); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestServePluginSocketOfOthers: a client's socket at the path of that for commands, or for the API, was replaced by it, and the daemon
// served without saying a word.
func TestServePluginSocketOfOthers(t *testing.T) {
	stand(t, "overlay")
	file, _ := pluginConfig(t)
	dir, err := os.Getwd()
	check(t, err)
	root := filepath.Join(dir, "other")
	for name, says := range map[string]string{"command.sock": "socket for commands", "api.sock": "socket for the API"} {
		text := fmt.Sprintf("root = %q\n[[containerd]]\nsocket = %q\nnamespace = \"containerd\"\n", root, root+"/./"+name)
		check(t, os.WriteFile(file, []byte(text), 0o644))
		if r := served(t, "--root", root, "serve", "--config", file); r.code != 1 || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
