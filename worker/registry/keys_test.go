package registry_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"holdfast/worker/registry"
)

func TestKeychain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	must(t, os.WriteFile(path, []byte(`{"auths": {
		"example.com": {"auth": "bWU6c2VjcmV0"}, "example.com/group/app": {"auth": "bWU6b3RoZXI="}, "https://index.docker.io/v1/": {"identitytoken": "t"}}}`), 0o600))
	k, err := registry.ReadKeychain(path)
	must(t, err)
	for repo, want := range map[string]authn.AuthConfig{
		"example.com/x": {Username: "me", Password: "secret"}, "example.com/group/app": {Username: "me", Password: "other"},
		"debian": {IdentityToken: "t"}, "elsewhere.com/x": {},
	} {
		r, err := name.NewRepository(repo)
		must(t, err)
		a, err := k.Resolve(r)
		must(t, err)
		got, err := a.Authorization()
		must(t, err)
		if got.Username != want.Username || got.Password != want.Password || got.IdentityToken != want.IdentityToken {
			t.Errorf("%s: %+v", repo, got)
		}
	}
	must(t, os.WriteFile(path, []byte("nonsense"), 0o600))
	if _, err := registry.ReadKeychain(path); err == nil {
		t.Error("nonsense was read")
	}
	if _, err := registry.ReadKeychain(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
