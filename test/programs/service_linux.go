package programs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Service is holdfastd serve with containerd and BuildKit as its clients: they keep snapshots, and containerd content, by proxy plugins.
type Service struct {
	Holdfastd  string // the program
	Containerd string // the directory of containerd, its shim for runc, and ctr; a 1.6 of Debian or a 2.x
	BuildKit   string // the directory of buildkitd and buildctl
	Driver     string
	Disk       *Disk
	Log        io.Writer
}

func (x *Service) String() string { return "holdfastd serve with the driver " + x.Driver }

// pluginName is what the clients call the snapshotter.
const pluginName = "holdfast"

// holdfastd is a running daemon.
type holdfastd struct {
	daemon
	dir string
}

// begin starts a daemon whose store is on the disk.
func (x *Service) begin(ctx context.Context) (*holdfastd, error) {
	dir, err := os.MkdirTemp(x.Disk.Dir, "holdfastd")
	if err != nil {
		return nil, err
	}
	h := &holdfastd{dir: dir}
	h.Binary, h.Log = x.Holdfastd, filepath.Join(filepath.Dir(x.Disk.Dir), "holdfastd.log")
	config := filepath.Join(dir, "holdfastd.toml")
	h.Args = []string{"serve", "--config", config}
	h.ready = func() error {
		_, err := os.Stat(filepath.Join(h.root(), "command.sock"))
		return errors.Join(err, h.run(ctx, "df"))
	}
	text := fmt.Sprintf("root = %q\ndriver = %q\nrun = %q\nsync = \"deferred\"\n[[containerd]]\nsocket = %q\nnamespace = %q\ncontent = true\n",
		h.root(), x.Driver, filepath.Join(dir, "run"), h.plugin(), "clients")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "run"), 0o700), os.WriteFile(config, []byte(text), 0o644)); err != nil {
		return nil, err
	}
	return h, h.start(ctx)
}

func (h *holdfastd) root() string   { return filepath.Join(h.dir, "store") }
func (h *holdfastd) plugin() string { return filepath.Join(h.dir, "plugin.sock") }

// run runs a command of it.
func (h *holdfastd) run(ctx context.Context, args ...string) error {
	_, err := h.output(ctx, args...)
	return err
}

func (h *holdfastd) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.Binary, append([]string{"--root", h.root()}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("holdfastd %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// none are no snapshots.
const none = "[]"

// snapshots lists those of its clients, as JSON.
func (h *holdfastd) snapshots(ctx context.Context) (string, error) {
	out, err := h.output(ctx, "snapshot", "ls", "--namespace", "clients", "--json")
	return strings.TrimSpace(out), err
}

// close stops the daemon and removes its directory. It is an error if the daemon has left a mount.
func (h *holdfastd) close() error {
	h.Stop()
	left, err := mountsBelow(h.dir)
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("holdfastd has left mounts: %v", left))
	}
	return errors.Join(err, unmountBelow(h.dir), os.RemoveAll(h.dir))
}

// plugged starts a containerd that has the daemon's snapshotter, and its content there, too, if that is wanted.
func (x *Service) plugged(ctx context.Context, h *holdfastd, content bool) (*containerd, error) {
	dir, err := os.MkdirTemp(x.Disk.Dir, "containerd")
	if err != nil {
		return nil, err
	}
	c := &containerd{dir: dir, ctr: filepath.Join(x.Containerd, "ctr"), snapshotter: pluginName}
	out, err := exec.CommandContext(ctx, filepath.Join(x.Containerd, "containerd"), "--version").Output()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.toml")
	two := !strings.Contains(string(out), " 1.")
	text := c.config(two)
	if two {
		for _, s := range []string{pluginName, ownSnapshotter} {
			text += fmt.Sprintf("[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\nplatform = \"linux/%s\"\nsnapshotter = %q\n", runtime.GOARCH, s)
		}
	}
	text += fmt.Sprintf("[proxy_plugins.%s]\ntype = \"snapshot\"\naddress = %q\n", pluginName, h.plugin())
	if content {
		text = strings.Replace(text, "disabled_plugins = [", `disabled_plugins = ["io.containerd.content.v1.content", `, 1)
		text += fmt.Sprintf("[proxy_plugins.%s-content]\ntype = \"content\"\naddress = %q\n", pluginName, h.plugin())
	}
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	c.prepare(ctx, x.Containerd, config, filepath.Join(filepath.Dir(x.Disk.Dir), "containerd.log"))
	return c, c.start(ctx)
}

// Run has a containerd import an image, run containers of it and give it up; whatever it had is then gone.
func (x *Service) Run(ctx context.Context, image string) (err error) {
	h, err := x.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	c, err := x.plugged(ctx, h, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.load(ctx, image); err != nil {
		return err
	}
	if err := c.whole(ctx); err != nil {
		return err
	}
	for i := range 5 {
		if err := c.container(ctx, fmt.Sprintf("c%d", i)); err != nil {
			return err
		}
	}
	if err := x.notIn(c); err != nil {
		return err
	}
	c.Stop() // and again: what it left is continued
	h.Stop()
	if err := errors.Join(h.start(ctx), c.start(ctx), c.container(ctx, "again")); err != nil {
		return err
	}
	return x.gone(ctx, h, c)
}

// notIn sees that containerd keeps nothing itself.
func (x *Service) notIn(c *containerd) error {
	for _, dir := range []string{"io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots"} {
		entries, err := os.ReadDir(filepath.Join(c.root(), dir))
		if err == nil && len(entries) > 0 {
			return fmt.Errorf("containerd has %d entries in its own %s", len(entries), dir)
		}
	}
	return nil
}

// gone has the image removed, and sees that snapshots and content are gone.
func (x *Service) gone(ctx context.Context, h *holdfastd, c *containerd) error {
	if err := c.run(ctx, "images", "rm", "--sync", imageName); err != nil {
		return err
	}
	return eventually(ctx, func() (bool, error) {
		snapshots, err := h.snapshots(ctx)
		if err != nil {
			return true, err
		}
		content, err := c.output(ctx, "content", "ls", "-q")
		if err != nil || snapshots == none && strings.TrimSpace(content) == "" {
			return true, err
		}
		return false, fmt.Errorf("the image was removed, and there are snapshots %.300s, content %.300q", snapshots, content)
	})
}

// eventually calls holds until it returns true, which can come with an error, and for half a minute at most; then it returns the last error.
func eventually(ctx context.Context, holds func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		done, err := holds()
		if done || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// whole reads all content and compares digests.
func (c *containerd) whole(ctx context.Context) error {
	out, err := c.output(ctx, "content", "ls", "-q")
	if err != nil {
		return err
	}
	digests := strings.Fields(out)
	if len(digests) == 0 {
		return errors.New("there is no content")
	}
	for _, d := range digests {
		data, err := c.output(ctx, "content", "get", d)
		if err != nil {
			if list, listErr := c.output(ctx, "content", "ls", "-q"); listErr == nil && !strings.Contains(list, d) {
				continue // it was garbage, such as the index of the archive
			}
			return err
		}
		if sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(data))); sum != d {
			return fmt.Errorf("content %s has the digest %s", d, sum)
		}
	}
	return nil
}

// Kill kills the daemon, or containerd, or both, while snapshots are prepared and containers run, again and again. What was acknowledged must
// be there afterwards, all content must be whole, and containers must run.
func (x *Service) Kill(ctx context.Context, image string, times int) (err error) {
	h, err := x.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	c, err := x.plugged(ctx, h, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.load(ctx, image); err != nil {
		return err
	}
	layer, err := c.layer(ctx)
	if err != nil {
		return err
	}
	var prepared []string
	for i := range times {
		got, err := x.killOnce(ctx, h, c, layer, i)
		prepared = append(prepared, got...)
		if err == nil {
			err = connected(ctx, func() error { return c.has(ctx, prepared) })
		}
		if err == nil { // content has a connection of its own
			err = connected(ctx, func() error { return c.whole(ctx) })
		}
		if err == nil {
			err = c.container(ctx, fmt.Sprintf("after-%d", i))
		}
		if err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	if err := c.run(ctx, c.with(append([]string{"snapshots", "rm"}, prepared...)...)...); err != nil {
		return err
	}
	if err := c.removeContainers(ctx); err != nil {
		return err
	}
	return x.gone(ctx, h, c)
}

// removeContainers removes the containers, and their snapshots, that ctr could not remove, since a daemon was killed.
func (c *containerd) removeContainers(ctx context.Context) error {
	out, err := c.output(ctx, "containers", "list", "-q")
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(out) {
		_ = c.run(ctx, "tasks", "rm", "-f", id) // most have none
		if err := c.run(ctx, "containers", "rm", id); err != nil {
			return err
		}
	}
	if out, err = c.output(ctx, c.with("snapshots", "list")...); err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[len(fields)-1] == "Active" {
			if err := c.run(ctx, c.with("snapshots", "rm", fields[0])...); err != nil {
				return err
			}
		}
	}
	return nil
}

// killOnce kills in the middle of work, and starts what it has killed. It returns the snapshots that were acknowledged.
func (x *Service) killOnce(ctx context.Context, h *holdfastd, c *containerd, layer string, round int) (prepared []string, err error) {
	var work sync.WaitGroup
	ended := make(chan struct{})
	work.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			default:
			}
			key := fmt.Sprintf("kill-%d-%d", round, n)
			if c.run(ctx, c.with("snapshots", "prepare", key, layer)...) == nil {
				prepared = append(prepared, key)
			}
			_ = c.container(ctx, "c-"+key)
		}
	})
	time.Sleep(rand.N(time.Second))
	if round%3 != 0 {
		c.Kill()
	}
	if round%3 != 1 {
		h.Kill()
		err = h.start(ctx)
	}
	if round%3 != 0 && err == nil {
		err = c.start(ctx)
	}
	close(ended)
	work.Wait()
	return prepared, err
}

// notConnected is what errors say of a daemon that was killed.
var notConnected = []string{"connection refused", "connection closed", "connection reset", "connection error", "no such file", "unavailable", "EOF"}

// connected does something until clients know that the daemon listens again: after a refused connection gRPC waits a second and more before
// it tries the next one, and calls fail meanwhile.
func connected(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := do()
		if err == nil || ctx.Err() != nil || !slices.ContainsFunc(notConnected, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// has looks for snapshots.
func (c *containerd) has(ctx context.Context, prepared []string) error {
	out, err := c.output(ctx, c.with("snapshots", "list")...)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 0 {
			there[fields[0]] = true
		}
	}
	for _, key := range prepared {
		if !there[key] {
			return fmt.Errorf("snapshot %s was acknowledged, and is lost", key)
		}
	}
	return nil
}

// Build has a BuildKit, which keeps its snapshots in the daemon, build ten steps, first and cached, and prune; then it kills one of both in
// the middle of builds.
func (x *Service) Build(ctx context.Context, kills int) (err error) {
	h, err := x.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	b, err := newBuildkitd(ctx, x.BuildKit, x.Disk, "--oci-worker-snapshotter="+pluginName, "--oci-worker-proxy-snapshotter-path="+h.plugin())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, input := range []string{"first", "first", "second"} {
		if err := b.buildRight(ctx, input); err != nil {
			return err
		}
	}
	if err := x.pruned(ctx, h, b); err != nil {
		return err
	}
	for i := range kills {
		victim, name := &b.daemon, "buildkitd"
		if i%2 == 0 {
			victim, name = &h.daemon, "holdfastd"
		}
		input := fmt.Sprintf("killed %d", i)
		if _, err := victim.killWithin(ctx, 2*time.Second, func() error { return b.build(ctx, input, "") }); err != nil {
			return fmt.Errorf("after kill %d, of %s: %w", i+1, name, err)
		}
		err := connected(ctx, func() error { return b.buildRight(ctx, input) })
		if err != nil && strings.Contains(err.Error(), "stat active key during commit") {
			// The daemon was killed after it had committed a snapshot and before its answer. BuildKit tries again, for ever, to commit
			// what is not active any more; with an empty cache it goes on.
			fmt.Fprintf(x.Log, "after kill %d, of %s, BuildKit is started again: %v\n", i+1, name, err)
			b.Stop()
			err = errors.Join(b.start(ctx), b.run(ctx, "prune", "--all"), b.buildRight(ctx, input))
		}
		if err != nil {
			return fmt.Errorf("after kill %d, of %s: %w", i+1, name, err)
		}
	}
	// BuildKit can keep what a build had made that failed since the daemon was killed: how much is left then is not looked at.
	return b.run(ctx, "prune", "--all")
}

// pruned has BuildKit prune all, and sees that no snapshot is left.
func (x *Service) pruned(ctx context.Context, h *holdfastd, b *buildkitd) error {
	if err := b.run(ctx, "prune", "--all"); err != nil {
		return err
	}
	return eventually(ctx, func() (bool, error) {
		left, err := h.snapshots(ctx)
		if err != nil || left == none {
			return true, err
		}
		return false, fmt.Errorf("all was pruned, and there are snapshots: %.300s", left)
	})
}
