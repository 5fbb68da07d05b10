package command

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/command/size"
	"holdfast/worker/prune"
	"holdfast/worker/registry"
)

func init() { register((*app).newConfig) }

// DefaultConfigPath is where serve looks for its configuration.
const DefaultConfigPath = "/etc/holdfast/holdfastd.toml"

// defaultConfig has every key with what it is if it is left out.
const defaultConfig = `# What "holdfastd serve" does. A key that is left out is what it is here.

# root is the directory of the store, and driver how a new one keeps snapshots; "": overlay. run is a directory for what is
# mounted, on a tmpfs; "": one in /run for each store.
root = "/var/lib/holdfast"
driver = ""
run = ""

# sync is when the files of a snapshot are flushed: "commit", before it is committed, or "deferred", soon after: faster, and
# what was committed in the last seconds before a crash of the machine is not trusted.
sync = "commit"

# digests is whether each snapshot gets a digest of its content, for holdfastd verify.
digests = false

# share is where other processes can read the databases of the store while it runs, as with "holdfast info" and "holdfast top": a
# directory, or "on", which is /run/holdfast/share; "off": nowhere.
share = "on"

[steps]
# concurrency is how many steps run at once, others wait; 0: as many as there are processors, four at least.
concurrency = 0
# max_output is how much of what a step writes is kept.
max_output = "1MiB"

[prune]
# interval is how often snapshots are pruned; "0": only when a step needs room, or holdfastd prune is called.
interval = "10m"
# policy is a file with policies, as "holdfastd prune --default-policy" shows them; "": these.
policy = ""

[disk]
# keep is how much of the disk is never reserved for steps.
keep = "0"

[http]
# listen is an address, such as "127.0.0.1:8723", at which the page, the service and figures for Prometheus are served; "": none.
# "holdfastd page" prints where, with the token that each request must have. One that other machines reach needs a certificate.
listen = ""
# token_file has the token; "": one that is made, in the directory of the store.
token_file = ""
# certificate and key are files in PEM; "": none.
certificate = ""
key = ""

# Each [[containerd]] is a socket on which a containerd, or a BuildKit, uses the store by proxy plugins. Its snapshots are
# in a namespace of their own, of which nothing is pruned. There is none unless it is written here.
# [[containerd]]
# socket = "/run/holdfast/containerd.sock"
# namespace = "containerd"
# content = true # serve content too, not snapshots alone

# Each [[registry]] has mirrors of a registry, which "holdfastd pull" asks before it. A mirror is a host, with a port if it
# needs one, and http:// before it if it has no TLS. Outside of this file there are none.
# [[registry]]
# host = "docker.io"
# mirrors = ["mirror.example.com:5000"]

# Each [[cache]] is a repository of a registry by which workers share results of steps: what one has run, others fetch. It has http://
# before it if its registry has no TLS. import fetches, export pushes. key is a file with a private key (Ed25519, PEM) that signs what
# is pushed; trusted are files with public keys, of which one must have signed what is fetched, unless unsigned is true: who can
# write to the repository decides then what steps give here.
# [[cache]]
# repository = "registry.example.com/team/steps"
# import = true
# export = true
# key = "/etc/holdfast/cache.key"
# trusted = ["/etc/holdfast/cache.pub"]
# unsigned = false
`

// config is what defaultConfig describes.
type config struct {
	file string // where it is from; "": nowhere

	Root   string `toml:"root"`
	Driver string `toml:"driver"`
	Run    string `toml:"run"`

	Sync    string `toml:"sync"`
	Digests bool   `toml:"digests"`
	Share   string `toml:"share"`

	Steps struct {
		Concurrency int        `toml:"concurrency"`
		MaxOutput   configSize `toml:"max_output"`
	} `toml:"steps"`
	Prune struct {
		Interval configDuration `toml:"interval"`
		Policy   string         `toml:"policy"`
	} `toml:"prune"`
	Disk struct {
		Keep configSize `toml:"keep"`
	} `toml:"disk"`
	HTTP       httpConfig       `toml:"http"`
	Containerd []clientConfig   `toml:"containerd"`
	Registry   []registryConfig `toml:"registry"`
	Cache      []cacheConfig    `toml:"cache"`
}

// registryConfig has the mirrors of a registry.
type registryConfig struct {
	Host    string   `toml:"host"`
	Mirrors []string `toml:"mirrors"`
}

// checkRegistries finds what is wrong with mirrors.
func checkRegistries(list []registryConfig) error {
	hosts := map[string]bool{}
	for _, r := range list {
		if err := registry.CheckHost(r.Host); err != nil {
			return err
		}
		if hosts[r.Host] {
			return fmt.Errorf("two [[registry]] have the host %s", r.Host)
		}
		hosts[r.Host] = true
		for _, m := range r.Mirrors {
			if err := registry.CheckMirror(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirrors are those of all registries.
func (c *config) mirrors() map[string][]string {
	all := map[string][]string{}
	for _, r := range c.Registry {
		all[r.Host] = r.Mirrors
	}
	return all
}

// clientConfig is a socket for proxy plugins.
type clientConfig struct {
	Socket    string `toml:"socket"`
	Namespace string `toml:"namespace"`
	Content   bool   `toml:"content"`
}

// httpConfig is an address for browsers and other machines.
type httpConfig struct {
	Listen      string `toml:"listen"`
	TokenFile   string `toml:"token_file"`
	Certificate string `toml:"certificate"`
	Key         string `toml:"key"`
}

// check finds what is wrong.
func (h *httpConfig) check() error {
	if (h.Certificate == "") != (h.Key == "") {
		return errors.New("http.certificate and http.key go together")
	}
	if h.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(h.Listen)
	if err != nil {
		return fmt.Errorf("http.listen is %q: %w", h.Listen, err)
	}
	if addr, err := netip.ParseAddr(host); h.Certificate == "" && host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return fmt.Errorf("http.listen is %q, which other machines can reach: give http.certificate and http.key, or an address such as 127.0.0.1:8723", h.Listen)
	}
	return nil
}

// clientName is what a client's namespace can be called: it is the name of a file, too.
var clientName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// checkClients finds what is wrong with sockets for proxy plugins.
func checkClients(list []clientConfig) error {
	sockets, names := map[string]bool{}, map[string]bool{}
	for _, c := range list {
		switch {
		case !filepath.IsAbs(c.Socket):
			return fmt.Errorf("containerd.socket is %q, not an absolute path", c.Socket)
		case !clientName.MatchString(c.Namespace):
			return fmt.Errorf("containerd.namespace is %q: a name has lower-case letters, digits, and .-_", c.Namespace)
		case c.Namespace == DefaultNamespace:
			return fmt.Errorf("containerd.namespace is %q, which is that of steps", c.Namespace)
		case sockets[filepath.Clean(c.Socket)] || names[c.Namespace]:
			return fmt.Errorf("two [[containerd]] have the socket %s, or the namespace %s", c.Socket, c.Namespace)
		}
		sockets[filepath.Clean(c.Socket)], names[c.Namespace] = true, true
	}
	return nil
}

// When the files of a snapshot are flushed.
const (
	syncCommit   = "commit"
	syncDeferred = "deferred"
)

// configSize is a number of bytes, with a unit or without.
type configSize int64

// UnmarshalText reads it.
func (s *configSize) UnmarshalText(b []byte) error {
	n, err := size.Parse(string(b))
	*s = configSize(n)
	return err
}

// configDuration is a time, with a unit or in seconds.
type configDuration time.Duration

// UnmarshalText reads it.
func (d *configDuration) UnmarshalText(b []byte) error {
	if got, err := time.ParseDuration(string(b)); err == nil && got == 0 { // which is none of the durations of policies
		*d = 0
		return nil
	}
	got, err := prune.ParseDuration(string(b))
	*d = configDuration(got)
	return err
}

// parseConfig reads a configuration. Keys that it does not know are an error.
func parseConfig(text string) (*config, error) {
	var c config
	if _, err := toml.Decode(defaultConfig, &c); err != nil {
		return nil, err
	}
	meta, err := toml.Decode(text, &c)
	if err != nil {
		return nil, err
	}
	switch unknown := meta.Undecoded(); {
	case len(unknown) > 0:
		return nil, fmt.Errorf("there is no key %s", unknown[0])
	case c.Root == "":
		return nil, errors.New("root is empty")
	case c.Steps.Concurrency < 0:
		return nil, fmt.Errorf("steps.concurrency is %d", c.Steps.Concurrency)
	case c.Steps.MaxOutput < 0 || c.Steps.MaxOutput > 1<<30:
		return nil, fmt.Errorf("steps.max_output is %d bytes; at most 1GiB", c.Steps.MaxOutput)
	case c.Disk.Keep < 0 || c.Prune.Interval < 0:
		return nil, errors.New("disk.keep or prune.interval is negative")
	case c.Prune.Interval > 0 && time.Duration(c.Prune.Interval) < time.Second:
		return nil, errors.New("prune.interval is shorter than a second")
	case c.Sync != syncCommit && c.Sync != syncDeferred:
		return nil, fmt.Errorf("sync is %q, not %q or %q", c.Sync, syncCommit, syncDeferred)
	case c.Share != "on" && c.Share != "off" && !filepath.IsAbs(c.Share):
		return nil, fmt.Errorf("share is %q, not \"on\", \"off\" or an absolute path", c.Share)
	}
	return &c, errors.Join(c.HTTP.check(), checkClients(c.Containerd), checkRegistries(c.Registry), checkCaches(c.Cache))
}

// loadConfig reads the configuration in a file. One that is not there is no error if none was asked for: path is "".
func loadConfig(path string) (*config, error) {
	asked := path != ""
	if !asked {
		path = DefaultConfigPath
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return parseConfig("")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &nextError{err, "holdfastd config default prints one"}
	}
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(string(b))
	if err != nil {
		return nil, &nextError{fmt.Errorf("%s: %w", path, err), "holdfastd config default shows all keys"}
	}
	c.file = path
	return c, nil
}

func (a *app) newConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show and check the configuration of serve", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Long: "Show and check the configuration of holdfastd serve, a file in TOML: " + DefaultConfigPath + ",\nor what serve --config names.",
	}
	here := map[string]string{runsHere: "yes"}
	cmd.AddCommand(&cobra.Command{
		Use: "default", Short: "Print every key with its default", Args: cobra.NoArgs, Annotations: here,
		RunE: a.action(func(c *call) error {
			if c.json {
				return cli.PrintJSON(c.out, map[string]string{"toml": defaultConfig})
			}
			_, err := c.out.WriteString(defaultConfig)
			return err
		}),
	}, &cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration", Args: cobra.MaximumNArgs(1), Annotations: here,
		Long: "Check a configuration: that of FILE, or " + DefaultConfigPath + ".",
		RunE: a.action(func(c *call) error {
			path := DefaultConfigPath
			if len(c.args) > 0 {
				path = c.args[0]
			}
			got, err := loadConfig(path)
			if err != nil {
				return err
			}
			if _, err := c.configuredPolicies(c.ctx, got); err != nil {
				return err
			}
			if _, err := got.caches(); err != nil {
				return err
			}
			if err := got.HTTP.checkFiles(); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if c.json {
				return cli.PrintJSON(c.out, map[string]string{"file": path})
			}
			_, err = fmt.Fprintf(c.out, "%s is right\n", printable(path))
			return err
		}),
	})
	return cmd
}
