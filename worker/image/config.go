package image

import (
	"encoding/json"
	"fmt"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"holdfast/worker/snapshot"
)

// Labels that an import gives. Lists are JSON.
const (
	LabelBase       = "holdfast.base" // "image" or "archive": the snapshot is a base that was imported
	LabelImage      = "holdfast.base.image"
	LabelRef        = "holdfast.base.ref"
	LabelPlatform   = "holdfast.base.platform"
	LabelEnv        = "holdfast.base.env"
	LabelCmd        = "holdfast.base.cmd"
	LabelEntrypoint = "holdfast.base.entrypoint"
	LabelWorkdir    = "holdfast.base.workdir"
	LabelUser       = "holdfast.base.user"
)

// Config is what an image says of the programs that run in it.
type Config struct {
	Env        []string // NAME=VALUE
	Cmd        []string
	Entrypoint []string
	Workdir    string
	User       string
}

func configOf(c v1.ImageConfig) Config {
	return Config{Env: c.Env, Cmd: c.Cmd, Entrypoint: c.Entrypoint, Workdir: c.WorkingDir, User: c.User}
}

// Labels are those of which ConfigOf reads the configuration. Labels without a value mean nothing.
func (c Config) Labels() map[string]string {
	into := map[string]string{LabelWorkdir: c.Workdir, LabelUser: c.User}
	for name, list := range map[string][]string{LabelEnv: c.Env, LabelCmd: c.Cmd, LabelEntrypoint: c.Entrypoint} {
		if len(list) > 0 {
			b, _ := json.Marshal(list) // strings always can
			into[name] = string(b)
		}
	}
	return into
}

// ConfigOf is what the labels of a base say; nothing if there are none.
func ConfigOf(info snapshot.Info) (Config, error) {
	c := Config{Workdir: info.Labels[LabelWorkdir], User: info.Labels[LabelUser]}
	for name, list := range map[string]*[]string{LabelEnv: &c.Env, LabelCmd: &c.Cmd, LabelEntrypoint: &c.Entrypoint} {
		if s := info.Labels[name]; s != "" {
			if err := json.Unmarshal([]byte(s), list); err != nil {
				return Config{}, fmt.Errorf("label %s of snapshot %q: %w: %w", name, info.Name, ErrFormat, err)
			}
		}
	}
	return c, nil
}
