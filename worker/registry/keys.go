package registry

import (
	"fmt"
	"os"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// ReadKeychain reads credentials from a file as docker login and podman login write it. The helpers that it names are
// run when credentials are asked for.
func ReadKeychain(path string) (authn.Keychain, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	got, err := config.LoadFromReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: not a file of credentials, as docker login writes it: %w", path, err)
	}
	return keychain{got}, nil
}

type keychain struct{ file *configfile.ConfigFile }

// Resolve finds the credentials for a repository, or else for its registry.
func (k keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	for _, key := range []string{of.String(), of.RegistryStr()} {
		if key == name.DefaultRegistry {
			key = authn.DefaultAuthKey
		}
		got, err := k.file.GetAuthConfig(key)
		if err != nil {
			return nil, err
		}
		got.ServerAddress = "" // which is always there
		if got != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{
				Username: got.Username, Password: got.Password, Auth: got.Auth, IdentityToken: got.IdentityToken, RegistryToken: got.RegistryToken,
			}), nil
		}
	}
	return authn.Anonymous, nil
}
