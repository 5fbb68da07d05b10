package command_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	memory "github.com/google/go-containerregistry/pkg/registry"
)

// debianRegistry starts Debian's docker-registry on this machine, with the user me, and returns its host.
func debianRegistry(t *testing.T) (host string) {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil && os.Geteuid() != 0 {
		t.Skip("left out: a registry needs Debian's package docker-registry, which only root can install")
	}
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	host = l.Addr().String()
	check(t, l.Close())
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	check(t, os.WriteFile(filepath.Join(dir, "users"), []byte("me:$2b$04$fULfFXSNXGq7V/T9vokTQuc3Wq4eQ.o9XHiKfjTD1O.kxeR0OXiM.\n"), 0o600)) // secret
	check(t, os.WriteFile(config, []byte(fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/data}}\n"+
		"http: {addr: %s, secret: x}\nauth: {htpasswd: {realm: test, path: %s/users}}\n", dir, host, dir)), 0o600))
	cmd := exec.Command(program, "serve", config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the registry's log: %s", out.String())
		}
	})
	for {
		resp, err := http.Get("http://" + host + "/v2/")
		if err == nil {
			resp.Body.Close()
			return host
		}
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("the registry has ended: %s", out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// credentials makes a file of credentials as docker login does.
func credentials(t *testing.T, host string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": "bWU6c2VjcmV0"}}}) // me:secret
	check(t, err)
	check(t, os.WriteFile("auth.json", b, 0o600))
	return "auth.json"
}

// TestImageRegistry: the result of a step goes to a registry, Debian's, and from there to another store, where it is the same.
func TestImageRegistry(t *testing.T) {
	host := debianRegistry(t)
	stand(t, "overlay")
	auth := credentials(t, host)
	r := run(t, "", "step", "--base", "bb", "--", "sh", "-c", "echo made >/made; ls bin >/list")
	name := resultName.FindString(r.errOut)
	ref := host + "/group/app:1"
	r = run(t, "", "push", name, ref)
	if r.code != 1 || !strings.Contains(r.errOut, "denies") || !strings.Contains(r.errOut, "--authfile") {
		t.Errorf("push without credentials: %+v", r)
	}
	out := must(t, "push", "--authfile", auth, name, ref)
	if !strings.Contains(out, "Layers  2, ") || !strings.Contains(out, ref) {
		t.Errorf("push: %s", out)
	}
	var pushed struct{ Digest string }
	check(t, json.Unmarshal([]byte(must(t, "push", "--authfile", auth, "--json", name[:20], ref)), &pushed))
	must(t, "push", "--authfile", auth, "--compression", "zstd", name, host+"/group/app:zstd")
	for i, from := range []string{ref, host + "/group/app@" + pushed.Digest, "docker://" + ref, host + "/group/app:zstd"} {
		other := []string{"--root", fmt.Sprint("other", i), "--run", fmt.Sprint("run", i)}
		command := []string{"pull", "--authfile", auth, from, "app"}
		if strings.HasPrefix(from, "docker:") { // which has not the flags of pull
			t.Setenv("REGISTRY_AUTH_FILE", auth)
			t.Setenv("HOME", t.TempDir())
			command = []string{"import", from, "app"}
		}
		out := must(t, append(other, command...)...)
		if !strings.Contains(out, "Layers    2, 2 new") || i < 3 && !strings.Contains(out, pushed.Digest) {
			t.Errorf("pull %s: %s", from, out)
		}
		if got := run(t, "", append(other, "step", "-q", "--base", "app", "--", "cat", "/made", "/list")...); !strings.HasPrefix(got.out, "made\nbusybox\n") {
			t.Errorf("in %s: %+v", from, got)
		}
	}
	r = run(t, "", "pull", "--authfile", auth, host+"/group/none", "x")
	if r.code != 1 || !strings.Contains(r.errOut, "look at the name and the tag") {
		t.Errorf("pull of what is not there: %+v", r)
	}
}

// TestImageExport: what is exported can be imported, and is the same each time.
func TestImageExport(t *testing.T) {
	stand(t, "overlay")
	r := run(t, "", "step", "--base", "bb", "--", "sh", "-c", "echo made >/made")
	name := resultName.FindString(r.errOut)
	for format, layers := range map[string]string{"oci": "2, 2 new", "oci-archive": "2, 2 new", "tar": "1, 1 new"} {
		out := must(t, "export", name, "--format", format, "-o", "out-"+format)
		if !strings.Contains(out, "out-"+format) {
			t.Errorf("%s: %s", format, out)
		}
		root := []string{"--root", "other-" + format, "--run", "run-" + format}
		if out := must(t, append(root, "import", "out-"+format, "x")...); !strings.Contains(out, layers) {
			t.Errorf("%s: imported %s", format, out)
		}
		if got := run(t, "", append(root, "step", "-q", "--base", "x", "--", "cat", "/made")...); got.out != "made\n" {
			t.Errorf("%s: %+v", format, got)
		}
		r := run(t, "", "export", name, "--format", format, "-o", "out-"+format)
		if r.code != 1 || !strings.Contains(r.errOut, "give another path") {
			t.Errorf("%s, again: %+v", format, r)
		}
		if format == "oci" {
			continue
		}
		b, err := os.ReadFile("out-" + format)
		check(t, err)
		if r := run(t, "", "export", name, "--format", format, "-o", "-"); r.code != 0 || r.out != string(b) {
			t.Errorf("%s to standard output: %d bytes, %d, %s", format, len(r.out), r.code, r.errOut)
		}
	}
	for _, args := range [][]string{
		{"-o", "-"}, {}, {"--format", "zip", "-o", "x"}, {"--format", "tar", "-o", "-", "--json"}, {"--compression", "xz", "-o", "x"}, {"--platform", "linux", "-o", "x"},
	} {
		if r := run(t, "", append([]string{"export", name}, args...)...); r.code != 2 {
			t.Errorf("export %q: %+v", args, r)
		}
	}
	if r := run(t, "", "export", name, "-o", "none/x"); r.code != 1 {
		t.Errorf("into a directory that is not there: %+v", r)
	}
	if r := run(t, "", "export", "none", "-o", "x"); r.code != 1 || !strings.Contains(r.errOut, "snapshot ls") {
		t.Errorf("of nothing: %+v", r)
	}
	leftovers(t, ".", ".out", ".x")
	leftovers(t, "store/downloads", "")
	if list := must(t, "snapshot", "ls"); strings.Contains(list, "!mount") {
		t.Errorf("views are left: %s", list)
	}
}

// leftovers fails if there is a file whose name begins so.
func leftovers(t *testing.T, dir string, begin ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		check(t, err)
	}
	for _, e := range entries {
		for _, b := range begin {
			if strings.HasPrefix(e.Name(), b) {
				t.Errorf("left: %s", e.Name())
			}
		}
	}
}

// TestImagePullKilled: a pull that is killed leaves a download, with which the next one goes on.
func TestImagePullKilled(t *testing.T) {
	stand(t, "overlay")
	const size = largeSize
	var stall atomic.Bool
	var sent atomic.Int64
	next := memory.New(memory.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			w = &slow{ResponseWriter: w, r: r, stall: &stall, sent: &sent}
		}
		next.ServeHTTP(w, r)
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	ref := strings.TrimPrefix(s.URL, "http://") + "/app:1"
	large(t, size)
	must(t, "--root", "from", "--run", "from-run", "import", "large.tar", "large")
	must(t, "--root", "from", "--run", "from-run", "push", "large", ref)
	stall.Store(true)
	cmd := holdfastd(t, "pull", ref, "large")
	check(t, cmd.Start())
	for sent.Load() < size/2 {
		time.Sleep(time.Millisecond)
	}
	part := ""
	for part == "" {
		found, _ := filepath.Glob("store/downloads/*.part")
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.Size() >= size/2 {
				part = f
			}
		}
		time.Sleep(time.Millisecond)
	}
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	stall.Store(false)
	sent.Store(0)
	must(t, "pull", ref, "large")
	if n := sent.Load(); n > size*6/10 {
		t.Errorf("%d bytes were sent again", n)
	}
	leftovers(t, "store/downloads", "")
}

// large makes an archive of a file that cannot be compressed.
func large(t *testing.T, size int) {
	t.Helper()
	b := make([]byte, size)
	for i, n := 0, uint64(1); i < size; i++ {
		n = n*6364136223846793005 + 1442695040888963407
		b[i] = byte(n >> 56)
	}
	f, err := os.Create("large.tar")
	check(t, err)
	w := tar.NewWriter(f)
	check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "large", Size: int64(size), Mode: 0o644}))
	_, err = w.Write(b)
	check(t, err)
	check(t, w.Close())
	check(t, f.Close())
}

// slow counts what is sent, and sends no more than half of what is large while it is to stall.
type slow struct {
	http.ResponseWriter
	r     *http.Request
	stall *atomic.Bool
	sent  *atomic.Int64 // in all answers
	own   int           // in this one
}

const largeSize = 6 << 20

func (s *slow) Write(b []byte) (sent int, err error) {
	for sent < len(b) && err == nil {
		if s.own >= largeSize*5/8 && s.stall.Load() {
			_ = http.NewResponseController(s.ResponseWriter).Flush()
			<-s.r.Context().Done()
			return sent, io.ErrClosedPipe
		}
		var n int
		n, err = s.ResponseWriter.Write(b[sent:min(sent+32<<10, len(b))])
		sent, s.own = sent+n, s.own+n
		s.sent.Add(int64(n))
	}
	return sent, err
}

// TestServeMirrors: a daemon asks the mirrors of its configuration, and a command without one those of its flag.
func TestServeMirrors(t *testing.T) {
	stand(t, "overlay")
	s := httptest.NewServer(memory.New(memory.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	mirror := strings.TrimPrefix(s.URL, "http://")
	must(t, "push", "bb", mirror+"/app:1")
	must(t, "pull", "--mirror", mirror, "registry.invalid/app:1", "flag")
	check(t, os.WriteFile("holdfastd.toml", []byte("[[registry]]\nhost = 'registry.invalid'\nmirrors = ['"+mirror+"']\n"), 0o600))
	d := startDaemon(t, "--config", "holdfastd.toml")
	if r := served(t, "pull", "registry.invalid/app:1", "configured"); r.code != 0 || !strings.Contains(r.out, "configured") {
		t.Errorf("pull: %+v", r)
	}
	if r := served(t, "push", "configured", mirror+"/app:2"); r.code != 0 {
		t.Errorf("push: %+v", r)
	}
	if r := served(t, "export", "configured", "--format", "tar", "-o", "-"); r.code != 0 || !strings.Contains(r.out, "bin/busybox") {
		t.Errorf("export: %d, %s", r.code, r.errOut)
	}
	check(t, os.Mkdir("below", 0o755))
	cmd := holdfastd(t, "export", "configured", "-o", "layout")
	cmd.Dir = filepath.Join(cmd.Dir, "below") // paths are relative to the directory of who gives the command
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("export: %v: %s", err, out)
	}
	if _, err := os.Stat("below/layout/index.json"); err != nil {
		t.Error(err)
	}
	d.stop()
}

// TestPullUsage: what is wrong with the command line is said before a store is made.
func TestPullUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"pull", "UPPER"}, {"pull", "a b"}, {"pull", "app", "!x"}, {"pull", "app:1", "-x"}, {"pull"}, {"pull", "--mirror", "a/b", "app"},
		{"pull", "--platform", "linux", "app"}, {"import", "--format", "tar", "docker://app"}, {"import", "--ref", "x", "docker://app"}, {"import", "docker://"},
	} {
		if r := run(t, "", args...); r.code != 2 {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if _, err := os.Stat("store"); err == nil {
		t.Error("there is a store")
	}
}

// TestExportUser: an unprivileged user exports in a user namespace, where the files are root's, as steps see them.
func TestExportUser(t *testing.T) {
	path, dir, become := asUser(t)
	call := func(args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		cmd := program(path, dir, args...)
		become(cmd)
		cmd.Stdout, cmd.Stderr = &out, &errOut
		_ = cmd.Run()
		return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	}
	if r := call("import", "busybox.tar", "bb"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := call("export", "bb", "--format", "tar", "-o", "-")
	if strings.Contains(r.errOut, "a user namespace, which this system does not let") {
		t.Skip("left out: ", r.errOut)
	}
	if r.code != 0 {
		t.Fatalf("export: %d, %s", r.code, r.errOut)
	}
	for files := tar.NewReader(strings.NewReader(r.out)); ; {
		h, err := files.Next()
		if err == io.EOF {
			break
		}
		check(t, err)
		if h.Uid != 0 {
			t.Errorf("%s is of the user %d", h.Name, h.Uid)
		}
	}
}
