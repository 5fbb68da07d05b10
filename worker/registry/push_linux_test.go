package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"holdfast/worker/image"
	"holdfast/worker/internal/fstree"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
)

// shown are the trees of snapshots. m is nil if no mounts are needed.
type shown struct {
	n *snapshot.Namespace
	m *mount.Manager
	i atomic.Int64
}

func (s *shown) show(ctx context.Context, info snapshot.Info) (string, func() error, error) {
	key := fmt.Sprint("view ", s.i.Add(1))
	list, err := s.n.View(ctx, key, info.Name)
	if err != nil {
		return "", nil, err
	}
	remove := func() error { return s.n.Remove(context.WithoutCancel(ctx), key) }
	if s.m == nil {
		return list[0].Source, remove, nil
	}
	spec, err := mount.FromMounts(list)
	if err != nil {
		return "", nil, err
	}
	h, err := s.m.Acquire(ctx, spec)
	if err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return h.Path(), func() error { h.Release(); return remove() }, nil
}

// digest is that of all that a snapshot shows.
func (s *shown) digest(t *testing.T, name string) string {
	t.Helper()
	info, err := image.Resolve(ctx, s.n, name)
	must(t, err)
	path, release, err := s.show(ctx, info)
	must(t, err)
	sum, err := fstree.Digest(ctx, path+"/.", fstree.DigestOptions{})
	must(t, err)
	must(t, release())
	return fmt.Sprintf("%x", sum)
}

// step makes a snapshot on a base, of what fn does with its tree.
func (s *shown) step(t *testing.T, name, base string, fn func(dir string)) {
	t.Helper()
	on, err := image.Resolve(ctx, s.n, base)
	must(t, err)
	list, err := s.n.Prepare(ctx, "active", on.Name)
	must(t, err)
	dir, done := list[0].Source, func() {}
	if s.m != nil {
		spec, err := mount.FromMounts(list)
		must(t, err)
		h, err := s.m.Acquire(ctx, spec)
		must(t, err)
		dir = h.Path()
		done = func() { h.Release(); must(t, h.Wait(ctx)) }
	}
	fn(dir)
	done()
	labels := map[string]string{image.LabelWorkdir: "/work", image.LabelCmd: `["/bin/app"]`, "command": "make " + name}
	must(t, s.n.Commit(ctx, name, "active", snapshot.WithLabels(labels)))
}

// changes changes a tree in every way.
func changes(t *testing.T, dir string) {
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(in("new"), []byte("new"), 0o600))
	must(t, os.Link(in("new"), in("linked")))
	must(t, os.Link(in("kept"), in("linked to kept")))
	must(t, os.Symlink("new", in("symlink")))
	must(t, os.RemoveAll(in("dir")))
	must(t, os.MkdirAll(in("dir/again"), 0o700))
	must(t, os.WriteFile(in("dir/again/file"), []byte("x"), 0o4755))
	must(t, os.Remove(in("gone")))
	must(t, os.Chmod(in("mode"), 0o4711))
	must(t, os.Remove(in("type")))
	must(t, os.Mkdir(in("type"), 0o755))
	must(t, unix.Mkfifo(in("fifo"), 0o640))
	info, err := os.Stat(in("same"))
	must(t, err)
	must(t, os.WriteFile(in("same"), []byte("other"), 0o644)) // as long, and then as old, as before
	must(t, os.Chtimes(in("same"), info.ModTime(), info.ModTime()))
	if err := unix.Setxattr(in("new"), "user.x", []byte("\x00v"), 0); err != nil {
		t.Log("no extended attributes: ", err)
	}
}

func base(t *testing.T, s *shown) {
	dir := t.TempDir()
	for _, name := range []string{"kept", "dir/below", "gone", "mode", "type", "same"} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("first"), 0o644))
		must(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
	}
	archive := filepath.Join(t.TempDir(), "base.tar")
	out, err := exec.Command("tar", "-C", dir, "-cf", archive, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = image.Import(ctx, s.n, archive, image.Options{Name: "base", Mounts: s.m})
	must(t, err)
}

// stands are stores of all drivers that there can be.
func stands(t *testing.T) map[string]func(t *testing.T) *shown {
	all := map[string]func(t *testing.T) *shown{
		"copy": func(t *testing.T) *shown { return &shown{n: store(t, copydriver.New())} },
	}
	if os.Geteuid() != 0 {
		return all
	}
	mounted := func(d snapshot.Driver) func(t *testing.T) *shown {
		return func(t *testing.T) *shown {
			n := store(t, d)
			m, err := mount.Open(ctx, mount.Options{Directory: t.TempDir(), Keep: []string{n.Store().Root()}})
			must(t, err)
			t.Cleanup(func() { must(t, m.Close(ctx)) })
			return &shown{n: n, m: m}
		}
	}
	all["overlay"] = mounted(overlay.New())
	if _, err := exec.LookPath("mkfs.erofs"); err == nil {
		all["erofs"] = mounted(erofs.New())
	}
	return all
}

// TestRoundTrip: what is pushed and pulled elsewhere is the same, whatever the driver there and here.
func TestRoundTrip(t *testing.T) {
	s := serve(t)
	for driver, stand := range stands(t) {
		for _, how := range []image.Compression{image.CompressGzip, image.CompressZstd} {
			t.Run(driver+" "+string(how), func(t *testing.T) {
				from := stand(t)
				base(t, from)
				from.step(t, "step1", "base", func(dir string) { changes(t, dir) })
				from.step(t, "step2", "step1", func(dir string) { must(t, os.Remove(filepath.Join(dir, "linked"))) })
				from.step(t, "nothing", "step2", func(string) {})
				ref := s.host + "/" + driver + ":" + string(how)
				options := image.ExportOptions{Show: from.show, Compression: how, Command: func(i snapshot.Info) string { return i.Labels["command"] }}
				var p registry.Progress
				got, err := client(from.n).Push(ctx, from.n, "nothing", ref, options, &p)
				must(t, err)
				if done, total := p.Transferred(); got.Layers != 4 || total != got.Bytes || done < total {
					t.Errorf("pushed %+v, %d of %d bytes", got, done, total)
				}
				if list := left(t, from.n); len(list) > 0 {
					t.Errorf("left: %q", list)
				}
				s.is(nil)
				again, err := client(from.n).Push(ctx, from.n, "nothing", ref, options, nil)
				must(t, err)
				if again.Digest != got.Digest || s.count("PATCH") > 0 {
					t.Errorf("pushed again: %+v, and before %+v; %q", again, got, s.asked)
				}
				history(t, ref)
				for driver, stand := range stands(t) {
					to := stand(t)
					r, err := client(to.n).Pull(ctx, to.n, ref, image.Options{Name: "pulled", Mounts: to.m, Replace: true}, nil)
					must(t, err)
					if r.Config.Workdir != "/work" || !slices.Equal(r.Config.Cmd, []string{"/bin/app"}) || r.Image.String() != got.Digest {
						t.Errorf("pulled %+v", r)
					}
					if a, b := from.digest(t, "nothing"), to.digest(t, "pulled"); a != b {
						t.Errorf("on %s it is %s, not %s", driver, b, a)
					}
					if _, err := to.n.Store().Check(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

func history(t *testing.T, ref string) {
	r, err := name.ParseReference(ref)
	must(t, err)
	img, err := remote.Image(r)
	must(t, err)
	config, err := img.ConfigFile()
	must(t, err)
	if len(config.History) != 4 || config.History[1].CreatedBy != "make step1" || config.History[3].CreatedBy != "make nothing" {
		t.Errorf("history: %+v", config.History)
	}
}

var refused atomic.Int64 // uploads of the last of these

// pushFailures are what can be in the way of a push.
var pushFailures = map[string]struct {
	bad  handler
	want error // nil: it succeeds
}{
	"denied": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	}, registry.ErrDenied},
	"says no later": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPatch {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	}, registry.ErrDenied},
	"says nothing": {func(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }, registry.ErrStalled},
	"stalls": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPatch {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		next.ServeHTTP(w, r)
	}, registry.ErrStalled},
	"endless redirects": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodHead {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		next.ServeHTTP(w, r)
	}, errors.New("redirects")},
	"another digest": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodHead && isManifest(r) {
			answer(w, r, next, func(h http.Header, b []byte) []byte {
				if h.Get("Docker-Content-Digest") != "" {
					h.Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
				}
				return b
			})
			return
		}
		next.ServeHTTP(w, r)
	}, image.ErrDigest},
	"fails for a while": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPatch && refused.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	}, nil},
}

// TestPushFails: what stands in the way of a push is told, nothing is left of it here, and there no image.
func TestPushFails(t *testing.T) {
	from := &shown{n: store(t, nil)}
	base(t, from)
	options := image.ExportOptions{Show: from.show}
	for what, test := range pushFailures {
		t.Run(what, func(t *testing.T) {
			c := client(from.n)
			if test.want == registry.ErrStalled {
				c.Stall = 300 * time.Millisecond
			}
			s := serve(t) // which has nothing
			s.is(test.bad)
			_, err := c.Push(ctx, from.n, "base", s.host+"/app:1", options, nil)
			switch {
			case test.want == nil:
				must(t, err)
			case !errors.Is(err, test.want) && !strings.Contains(fmt.Sprint(err), test.want.Error()):
				t.Errorf("got %v", err)
			}
			if list := left(t, from.n); len(list) > 0 {
				t.Errorf("left: %q", list)
			}
		})
	}
}

// TestPushRefused: what cannot be pushed, and what a push that was interrupted leaves.
func TestPushRefused(t *testing.T) {
	from := &shown{n: store(t, nil)}
	base(t, from)
	s := serve(t)
	ref := s.host + "/app:1"
	options := image.ExportOptions{Show: from.show}
	c := client(from.n)
	if _, err := c.Push(ctx, from.n, "base", s.host+"/app@sha256:"+strings.Repeat("0", 64), options, nil); !errors.Is(err, registry.ErrReference) {
		t.Errorf("a digest: %v", err)
	}
	if _, err := c.Push(ctx, from.n, "none", ref, options, nil); !errors.Is(err, snapshot.ErrNotFound) {
		t.Errorf("no such snapshot: %v", err)
	}
	_, err := from.n.Prepare(ctx, "active", "")
	must(t, err)
	if _, err := c.Push(ctx, from.n, "active", ref, options, nil); !errors.Is(err, image.ErrNotBase) {
		t.Errorf("an active snapshot: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Push(canceled, from.n, "base", ref, options, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	must(t, from.n.Walk(ctx, func(i snapshot.Info) error {
		held, err := from.n.Leases(ctx, i.Name)
		if len(held) > 0 || strings.HasPrefix(i.Name, "view") {
			t.Errorf("%s: %v, leases %v", i.Name, i.Kind, held)
		}
		return err
	}))
}
