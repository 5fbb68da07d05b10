package command

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newPull) }

const pullHelp = `Pull an image of a registry as a base for build steps.

REF is a name as docker pull takes it: debian, debian:13, registry.example.com/group/app@sha256:...
NAME is what the base is called, without it REF. Layers that are there already are not
downloaded. What is downloaded is verified, and what would lead out of the tree refused. A
pull that fails leaves no snapshot; what it has downloaded stays for a day, and the next one goes on with it.

` + credentialsHelp

const credentialsHelp = `Credentials are those of docker login and podman login, of the user and environment of the daemon if
one runs the command, or in --authfile. Registries are reached by TLS, but for those on this machine.`

// downloadsName is the directory of downloads, in the directory of a store.
const downloadsName = "downloads"

// registryFlags say how registries are reached.
type registryFlags struct {
	plainHTTP bool
	authFile  string
	mirrors   []string
}

func (f *registryFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.plainHTTP, "plain-http", false, "reach registries without TLS that do not have it")
	flags.StringVar(&f.authFile, "authfile", "", "file with credentials, as docker login writes it; default: that of the user")
}

func (a *app) newPull() *cobra.Command {
	var f importFlags
	var r registryFlags
	cmd := &cobra.Command{
		Use: "pull REF [NAME]", Short: "Pull an image of a registry as a base", Long: pullHelp,
		Example: "  holdfastd pull debian:stable debian\n  holdfastd pull --mirror mirror.example.com:5000 docker.io/library/golang:1.25 go\n" +
			"  holdfastd pull --platform linux/arm64 registry.example.com/app:2",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(c *call) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return c.pullBase(c.args[0], o, &f, &r)
		}),
	}
	f.format = "auto"
	f.add(a, cmd.Flags())
	r.add(cmd.Flags())
	cmd.Flags().StringArrayVar(&r.mirrors, "mirror", nil, "host that is asked first, in place of the mirrors in the configuration; any number")
	return cmd
}

// pullBase pulls an image as a base.
func (c *call) pullBase(ref string, o image.Options, f *importFlags, r *registryFlags) error {
	o.Name = ref
	if len(c.args) > 1 {
		o.Name = c.args[1]
	}
	if err := image.CheckName(o.Name); err != nil {
		return &cli.UsageError{Err: err}
	}
	client, err := c.client(ref, r)
	if err != nil {
		return err
	}
	return c.importing(o, f, func(t *snapshot.Namespace, o image.Options) (*image.Result, error) {
		if err := client.open(t); err != nil {
			return nil, err
		}
		progress := &registry.Progress{}
		// What is transferred is extracted meanwhile: each is half of it, in thousandths.
		stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "pulling", Total: 1000, Step: cli.ProgressStep, Done: func() int64 {
			return thousandths(progress.Transferred())/2 + thousandths(o.Progress.Read())/2
		}}.Start()
		defer stop()
		got, err := client.Pull(c.ctx, t, ref, o, progress)
		return got, c.interruptedAfter(err, "what was downloaded stays for a day, and the next pull goes on with it")
	})
}

// thousandths is how many of a total are done.
func thousandths(done, total int64) int64 {
	if total == 0 {
		return 0
	}
	return min(done*1000/total, 1000)
}

// client is one of registries, of a command.
type client struct {
	registry.Client
	authFile string
}

// client makes one of flags. A reference that is none is the fault of the command line.
func (c *call) client(ref string, f *registryFlags) (*client, error) {
	r := &client{Client: registry.Client{PlainHTTP: f.plainHTTP}}
	host, err := r.Host(ref)
	if err != nil {
		return nil, &cli.UsageError{Err: err}
	}
	for _, m := range f.mirrors {
		if err := registry.CheckMirror(m); err != nil {
			return nil, &cli.UsageError{Err: err}
		}
	}
	if f.authFile != "" {
		r.authFile = c.path(f.authFile)
	}
	switch {
	case len(f.mirrors) > 0:
		r.Mirrors = map[string][]string{host: f.mirrors}
	case c.shared != nil:
		r.Mirrors = c.shared.mirrors
	default:
		got, err := loadConfig("")
		if err != nil {
			return nil, fmt.Errorf("mirrors of registries: %w", err)
		}
		r.Mirrors = got.mirrors()
	}
	return r, nil
}

// open gives it a place in a store, and its credentials.
func (r *client) open(t *snapshot.Namespace) (err error) {
	r.Downloads = filepath.Join(t.Store().Root(), downloadsName)
	if r.authFile == "" {
		return nil
	}
	if r.Keychain, err = registry.ReadKeychain(r.authFile); err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	return nil
}
