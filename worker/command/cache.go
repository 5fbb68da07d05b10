package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"holdfast/worker/registry"
	"holdfast/worker/remotecache"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// cacheConfig is a repository by which results of steps are shared.
type cacheConfig struct {
	Repository string   `toml:"repository"`
	Import     bool     `toml:"import"`
	Export     bool     `toml:"export"`
	Key        string   `toml:"key"`
	Trusted    []string `toml:"trusted"`
	Unsigned   bool     `toml:"unsigned"`
}

// checkCaches finds what is wrong with repositories of results.
func checkCaches(list []cacheConfig) error {
	names := map[string]bool{}
	for _, c := range list {
		if err := registry.CheckRepository(c.Repository); err != nil {
			return fmt.Errorf("cache.repository: %w", err)
		}
		if names[c.Repository] {
			return fmt.Errorf("two [[cache]] have the repository %s", c.Repository)
		}
		names[c.Repository] = true
		wrong := ""
		switch {
		case !c.Import && !c.Export:
			wrong = "import, export or both have to be true"
		case c.Import && len(c.Trusted) == 0 && !c.Unsigned:
			wrong = "with import, trusted needs a file with a public key; or unsigned is true, and who can write to the repository decides what steps give here"
		case len(c.Trusted) > 0 && c.Unsigned:
			wrong = "with unsigned, trusted has no meaning: leave one of them out"
		case !c.Import && (len(c.Trusted) > 0 || c.Unsigned):
			wrong = "trusted and unsigned are for import"
		case !c.Export && c.Key != "":
			wrong = "key is for export"
		}
		if wrong != "" {
			return fmt.Errorf("the [[cache]] %s: %s", c.Repository, wrong)
		}
	}
	return nil
}

// caches are the repositories, with their keys.
func (c *config) caches() (list []remotecache.Repository, err error) {
	for _, of := range c.Cache {
		r := remotecache.Repository{Name: of.Repository, Import: of.Import, Export: of.Export, Unsigned: of.Unsigned}
		if of.Key != "" {
			if r.Key, err = remotecache.ReadKey(of.Key); err != nil {
				return nil, c.keyError(of.Repository, err)
			}
		}
		for _, file := range of.Trusted {
			keys, err := remotecache.ReadPublicKeys(file)
			if err != nil {
				return nil, c.keyError(of.Repository, err)
			}
			r.Trusted = append(r.Trusted, keys...)
		}
		list = append(list, r)
	}
	return list, nil
}

func (c *config) keyError(repository string, err error) error {
	err = fmt.Errorf("%s: the [[cache]] %s: %w", c.file, repository, err)
	if !errors.Is(err, remotecache.ErrKey) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &nextError{err, "openssl genpkey -algorithm ed25519 -out cache.key makes one, and openssl pkey -in cache.key -pubout -out cache.pub its public key"}
}

// openCache opens the remote cache of a store that is open, unless the configuration has none.
func (s *shared) openCache(c *call, got *config, names *snapshot.Namespace) error {
	repositories, err := got.caches()
	if err != nil || len(repositories) == 0 {
		return err
	}
	for _, r := range repositories {
		if r.Export && r.Key == nil {
			c.logger().Warn("results are pushed without a signature: only workers with unsigned = true fetch them", "repository", r.Name)
		}
	}
	s.cache, err = remotecache.New(remotecache.Options{
		Namespace: names, Mounts: s.mounts, Repositories: repositories, Logger: c.logger(),
		Client: registry.Client{Downloads: filepath.Join(s.store.Root(), downloadsName), Stall: remotecache.DefaultFindTime},
		Show: func(ctx context.Context, info snapshot.Info) (string, func() error, error) {
			return showTree(ctx, names, s.mounts, info)
		},
	})
	return err
}

// remote is the remote cache for steps; nil: there is none.
func (s *shared) remote() step.RemoteCache {
	if s.cache == nil {
		return nil
	}
	return s.cache
}
