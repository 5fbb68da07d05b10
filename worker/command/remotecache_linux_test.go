package command_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	rand2 "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/worker/api"
)

// fleet is a registry, and the keys of workers that share results by it.
type fleet struct {
	t    *testing.T
	dir  string
	host string
	made int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	stand(t, "overlay") // for its base
	dir, err := os.Getwd()
	check(t, err)
	f := &fleet{t: t, dir: dir, host: debianRegistry(t)}
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(dir, credentials(t, f.host)))
	t.Setenv("HOME", t.TempDir())
	f.keys("one")
	f.keys("other")
	return f
}

// keys writes a pair of keys.
func (f *fleet) keys(name string) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	check(f.t, err)
	b, err := x509.MarshalPKCS8PrivateKey(private)
	check(f.t, err)
	check(f.t, os.WriteFile(f.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600))
	b, err = x509.MarshalPKIXPublicKey(public)
	check(f.t, err)
	check(f.t, os.WriteFile(f.path(name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b}), 0o644))
}

func (f *fleet) path(name string) string { return filepath.Join(f.dir, name) }

// worker starts a daemon in a directory of its own, which becomes the working directory, on an empty store with the base.
func (f *fleet) worker(cache string) *aDaemon {
	f.t.Helper()
	f.made++
	dir := f.path(fmt.Sprint("worker", f.made))
	check(f.t, os.Mkdir(dir, 0o755))
	f.t.Chdir(dir)
	must(f.t, "import", f.path("busybox.tar"), "bb")
	check(f.t, os.WriteFile("config.toml", fmt.Appendf(nil, "[[cache]]\nrepository = %q\n%s\n", f.host+"/team/steps", cache), 0o644))
	return startDaemon(f.t, "--config", "config.toml")
}

// both imports and exports.
func (f *fleet) both() string {
	return fmt.Sprintf("import = true\nexport = true\nkey = %q\ntrusted = [%q]", f.path("one.key"), f.path("one.pub"))
}

// chain are commands, each on what the one before has left.
var chain = []string{
	"busybox --install -s /bin; mkdir -p d/e; echo 1 >d/e/1; echo 2 >d/2; ln d/2 d/hard; ln -s 2 d/soft; chmod 4711 d/2; chown 7:8 d/e/1; touch -d '2001-02-03 04:05:06' d/e; mkfifo d/fifo; echo said one",
	"rm -r d/e; mkdir d/e; echo new >d/e/new; rm d/soft; echo said two >&2",
	"rm bin/touch; mv d/hard d/moved; echo $(date +%N) >random; head -c 300000 /dev/urandom >noise; echo said three",
	"cat random; mkdir 'a b'; echo x >'a b/ü'; echo said four",
}

// run runs the chain, and returns what was said of each step, the output, and the last result.
func (f *fleet) run() (said []string, output, last string) {
	f.t.Helper()
	last = "bb"
	for _, c := range chain {
		r := served(f.t, "step", "--base", last, "--", "sh", "-c", c)
		if r.code != 0 {
			f.t.Fatalf("%+v", r)
		}
		last = resultName.FindString(r.errOut)
		lines := strings.Split(strings.TrimSpace(r.errOut), "\n")
		said = append(said, strings.Fields(lines[len(lines)-1])[0])
		output += r.out
	}
	return said, output, last
}

// tree is a text of all files of a snapshot: types, modes, owners, sizes, times, and contents.
func (f *fleet) tree(name string) string {
	f.t.Helper()
	r := served(f.t, "step", "-q", "--no-cache", "--base", name, "--", "sh", "-c",
		"cd /; find . -xdev ! -path './proc*' ! -path './sys*' ! -path './dev*' ! -path './tmp*' | sort | while read f; do stat -c '%n %A %u:%g %s %y' \"$f\"; test -d \"$f\" || stat -c '%n has %h links' \"$f\"; test ! -f \"$f\" || md5sum \"$f\"; done")
	if r.code != 0 || len(r.out) < 500 {
		f.t.Fatalf("%+v", r)
	}
	return r.out
}

// differences fails with the lines that only one of two texts has.
func differences(t *testing.T, a, b string) {
	t.Helper()
	for _, texts := range [][2]string{{a, b}, {b, a}} {
		other := "\n" + texts[1]
		for line := range strings.Lines(texts[0]) {
			if !strings.Contains(other, "\n"+line) {
				t.Errorf("only in one of them: %s", line)
			}
		}
	}
}

func all(said []string, word string) bool {
	return strings.Join(said, " ") == strings.TrimSpace(strings.Repeat(word+" ", len(chain)))
}

// TestRemoteCache: what one worker has run, another fetches, the same to each byte and time, also when the first is gone, and
// a third one after that.
func TestRemoteCache(t *testing.T) {
	f := newFleet(t)
	first := f.worker(f.both())
	said, output, last := f.run()
	if !all(said, "ran") {
		t.Errorf("the first worker: %q", said)
	}
	tree := f.tree(last)
	first.stop() // what it has made is exported before it ends
	check(t, os.RemoveAll(f.path("worker1")))
	for range 2 {
		w := f.worker(f.both())
		said, got, end := f.run()
		if !all(said, "fetched") || got != output || end != last {
			t.Errorf("another worker: %q, %q, %s: %s", said, got, end, w.log)
		}
		differences(t, tree, f.tree(end))
		if said, _, _ := f.run(); !all(said, "hit") {
			t.Errorf("again: %q", said)
		}
		w.stop()
		check(t, os.RemoveAll(f.path(fmt.Sprint("worker", f.made))))
	}
}

// TestRemoteCacheRefused: what is not signed by a key that is trusted is run, and the log says why.
func TestRemoteCacheRefused(t *testing.T) {
	f := newFleet(t)
	w := f.worker(fmt.Sprintf("export = true\nkey = %q", f.path("other.key")))
	f.run()
	w.stop()
	w = f.worker(f.both())
	if said, _, _ := f.run(); !all(said, "ran") {
		t.Errorf("%q", said)
	}
	w.stop() // and what it has exported is in place of that
	if n := strings.Count(w.log.String(), "the result is refused: none of the 1 trusted keys has signed it"); n != 1 {
		// Of the second step the base is another one: the third has a random number in it.
		t.Logf("%d refusals: %s", n, w.log)
	}
	if !strings.Contains(w.log.String(), "none of the 1 trusted keys has signed it") {
		t.Errorf("the log does not say so: %s", w.log)
	}
	w = f.worker("import = true\nunsigned = true")
	if said, _, _ := f.run(); !all(said, "fetched") {
		t.Errorf("%q: %s", said, w.log)
	}
}

// TestRemoteCacheGone: a registry that is not there, or that never answers, costs no more than some time, once a minute.
func TestRemoteCacheGone(t *testing.T) {
	f := newFleet(t)
	target, err := url.Parse("http://" + f.host)
	check(t, err)
	var silent atomic.Bool
	through := httputil.NewSingleHostReverseProxy(target)
	end := make(chan struct{})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			select {
			case <-r.Context().Done():
			case <-end:
			}
			return
		}
		through.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	defer close(end)
	f.host = strings.TrimPrefix(proxy.URL, "http://")
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(f.dir, "none.json"))
	check(t, os.WriteFile(f.path("none.json"), []byte(fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6c2VjcmV0"}}}`, f.host)), 0o600))
	silent.Store(true)
	w := f.worker(f.both())
	begun := time.Now()
	if said, _, _ := f.run(); !all(said, "ran") {
		t.Errorf("%q", said)
	}
	if took := time.Since(begun); took > time.Minute { // ten seconds, once
		t.Errorf("four steps took %v", took)
	}
	silent.Store(false)
	w.kill()
	restarted := startDaemon(t, "--config", "config.toml") // exports what has waited
	restarted.stop()
	if out, err := filepath.Glob(filepath.Join(f.dir, "worker1/*/downloads/*")); err != nil || len(out) > 0 {
		t.Errorf("left: %q, %v", out, err)
	}
	f.worker(f.both())
	if said, _, _ := f.run(); !all(said, "fetched") {
		t.Errorf("what was made while the registry was gone: %q", said)
	}
}

// TestRemoteCacheKilled: a daemon that is killed while it fetches, or exports, has nothing half done when it is started again.
func TestRemoteCacheKilled(t *testing.T) {
	f := newFleet(t)
	w := f.worker(f.both())
	first := w.cmd.Process // and never the next one
	go func() {            // exports are killed, too
		time.Sleep(time.Duration(20+rand2.IntN(400)) * time.Millisecond)
		_ = first.Kill()
	}()
	for _, c := range chain[:3] {
		served(t, "step", "--base", "bb", "--", "sh", "-c", c)
	}
	w.kill()
	w = startDaemon(t, "--config", "config.toml")
	_, output, last := f.run()
	tree := f.tree(last)
	w.stop()
	for range 6 {
		w := f.worker(f.both())
		running := make(chan struct{})
		steps := api.NewStepsClient(overSocket(t), anywhere) // a command without a daemon would run the step itself
		go func() {
			defer close(running)
			r := sh("")
			for _, c := range chain {
				r.Command[2] = c
				_, res, err := ran(t, steps, r)
				if err != nil {
					return
				}
				r.Base = res.Snapshot
			}
		}()
		time.Sleep(time.Duration(rand2.IntN(150)) * time.Millisecond)
		w.kill()
		<-running
		w = startDaemon(t, "--config", "config.toml")
		said, got, end := f.run()
		if strings.Contains(strings.Join(said, " "), "ran") || got != output {
			t.Errorf("%q, %q: %s", said, got, w.log)
		}
		differences(t, tree, f.tree(end))
		if out := served(t, "snapshot", "ls").out; strings.Contains(out, "!run") || strings.Contains(out, "active") {
			t.Errorf("left: %s", out)
		}
		w.stop()
	}
}
