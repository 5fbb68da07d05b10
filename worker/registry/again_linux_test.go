package registry_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"holdfast/worker/registry"
)

// TestTemporaryWhileCleaned: Clean took a directory that had just been made for one that was left, and the daemon panicked when what
// used it was done.
func TestTemporaryWhileCleaned(t *testing.T) {
	c := &registry.Client{Downloads: t.TempDir()}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := c.Clean(ctx); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 3000 {
		dir, done, err := c.Temporary()
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		must(t, done())
	}
	close(stop)
	must(t, <-stopped)
	left, err := os.ReadDir(c.Downloads)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// passwords is a keychain whose password changes.
type passwords struct{ now atomic.Pointer[string] }

func (p *passwords) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: "user", Password: *p.now.Load()}, nil
}

// TestNewCredentials: a repository that is kept open went on with the credentials that it was opened with when these had expired, and
// was denied until the daemon was started again.
func TestNewCredentials(t *testing.T) {
	s, n := serve(t), store(t, nil)
	c, p := client(n), &passwords{}
	c.Keychain = p
	change := func(to string) { p.now.Store(&to) }
	change("first")
	repo, _ := pushArtifact(t, c, s, archive(t, "file", []byte("content")))
	want := "first"
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if _, got, _ := r.BasicAuth(); got != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	ask := func() error {
		_, err := repo.Artifact(ctx, "one")
		return err
	}
	must(t, ask())
	want = "second"
	if err := ask(); !errors.Is(err, registry.ErrDenied) {
		t.Errorf("with a wrong password: %v", err)
	}
	change("second")
	must(t, ask())
	change("third")
	must(t, ask()) // those that are still good are not asked for again
	want = "third"
	must(t, ask()) // without an attempt that fails in between
}
