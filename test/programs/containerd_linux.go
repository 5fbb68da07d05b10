package programs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/test/cluster"
)

// imageName is what the image is called that is run.
const imageName = "example.org/holdfast/test:latest"

// Containerd imports an image, prepares snapshots of it and runs containers.
type Containerd struct {
	Bin        Bin    // containerd, its shim for runc, and ctr
	Image      string // an OCI archive
	Disk       *Disk
	Rounds     int
	Snapshots  int // prepared in each round, on young and on aged databases
	Containers int
	Many       int // more snapshots, prepared before the databases are aged
	MiB        int // that databases hold before they are emptied
	Log        io.Writer
}

func (x *Containerd) String() string { return "containerd" }

// containerd is a running daemon.
type containerd struct {
	daemon
	dir, ctr    string
	snapshotter string // ""; or the name of a proxy plugin
}

func (x *Containerd) begin(ctx context.Context, e cluster.Engine) (*containerd, error) {
	dir, err := os.MkdirTemp(x.Disk.Dir, "containerd")
	if err != nil {
		return nil, err
	}
	c := &containerd{dir: dir, ctr: filepath.Join(x.Bin[e], "ctr")}
	config := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(config, []byte(c.config(true)), 0o644); err != nil {
		return nil, err
	}
	c.prepare(ctx, x.Bin[e], config, filepath.Join(filepath.Dir(x.Disk.Dir), "containerd.log"))
	return c, c.start(ctx)
}

// prepare says how the daemon is started.
func (c *containerd) prepare(ctx context.Context, bin, config, log string) {
	c.Binary, c.Args = filepath.Join(bin, "containerd"), []string{"--config", config}
	c.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	c.Log = log
	c.ready = func() error { return c.run(ctx, "namespaces", "list") }
}

// config is a configuration of containerd: of a 2.x, or of Debian's 1.6.
func (c *containerd) config(two bool) string {
	if !two {
		return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.tracing"]
[grpc]
address = %[4]q
[plugins."io.containerd.internal.v1.opt"]
path = %[3]q
`, c.root(), filepath.Join(c.dir, "state"), filepath.Join(c.dir, "opt"), c.socket())
	}
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.server.v1.grpc"]
address = %[4]q
[plugins."io.containerd.server.v1.ttrpc"]
address = "%[4]s.ttrpc"
[grpc]
address = %[4]q
`, c.root(), filepath.Join(c.dir, "state"), filepath.Join(c.dir, "opt"), c.socket())
}

func (c *containerd) root() string   { return filepath.Join(c.dir, "root") }
func (c *containerd) socket() string { return filepath.Join(c.dir, "socket") }

// run runs ctr, and output returns what it prints.
func (c *containerd) run(ctx context.Context, args ...string) error {
	_, err := c.output(ctx, args...)
	return err
}

func (c *containerd) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.ctr, append([]string{"--address", c.socket()}, args...)...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, lastLine(failed.String()))
	}
	return string(out), nil
}

// lastLine is that of an error; before it there are warnings.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// with adds the snapshotter to a command of ctr.
func (c *containerd) with(args ...string) []string {
	if c.snapshotter == "" {
		return args
	}
	flag := []string{"--snapshotter", c.snapshotter}
	if args[0] == "images" { // the flag belongs to the second word
		return append(append(slices.Clone(args[:2]), flag...), args[2:]...)
	}
	return append(append(slices.Clone(args[:1]), flag...), args[1:]...)
}

// load imports an image.
func (c *containerd) load(ctx context.Context, image string) error {
	return c.run(ctx, c.with("images", "import", image)...)
}

// container runs one that writes a word, and looks at the word.
func (c *containerd) container(ctx context.Context, id string) error {
	out, err := c.output(ctx, append(c.with("run", "--rm"), imageName, id, "/bin/busybox", "echo", id)...)
	if err == nil && strings.TrimSpace(out) != id {
		err = fmt.Errorf("container %s printed %q", id, out)
	}
	return err
}

// layer is the snapshot of the image that has all its layers.
func (c *containerd) layer(ctx context.Context) (string, error) {
	out, err := c.output(ctx, c.with("snapshots", "list")...)
	if err != nil {
		return "", err
	}
	parents, keys := map[string]bool{}, []string{}
	for _, line := range strings.Split(out, "\n")[1:] {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "Committed" { // what was prepared of the image is none of its layers
			parents[fields[1]] = true
		}
		if len(fields) > 1 && fields[len(fields)-1] == "Committed" {
			keys = append(keys, fields[0])
		}
	}
	for _, key := range keys {
		if !parents[key] {
			return key, nil
		}
	}
	return "", fmt.Errorf("no snapshot is the image's: %s", out)
}

// close ends the daemon, what it has started, and removes what it has.
func (c *containerd) close() error {
	c.Stop()
	return errors.Join(c.endShims(), unmountBelow(c.dir), os.RemoveAll(c.dir))
}

// endShims ends the shims of containers in which the daemon was killed.
func (c *containerd) endShims() error {
	err := exec.Command("pkill", "-9", "-f", "containerd-shim-runc-v2.*"+c.socket()).Run()
	var none *exec.ExitError
	if errors.As(err, &none) && none.ExitCode() == 1 {
		return nil
	}
	return err
}

// mountsBelow is where something is mounted at a directory or below it, the youngest last.
func mountsBelow(dir string) (points []string, err error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1]+"/", dir+"/") {
			points = append(points, fields[1])
		}
	}
	return points, nil
}

// unmountBelow unmounts all that is mounted at a directory or below it, the youngest first.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	for _, point := range slices.Backward(points) {
		err = errors.Join(err, unix.Unmount(point, unix.MNT_DETACH))
	}
	return err
}

// Measure measures snapshots and containers, on databases that are young and then aged.
func (x *Containerd) Measure(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("containerd: %d snapshots, %d containers; aged: %d snapshots more, and each database held %d MiB and was emptied", x.Snapshots, x.Containers, x.Many, x.MiB)}
	return t, rounds(x.Log, x, x.Rounds, func(e cluster.Engine) error { return x.measure(ctx, e, t) })
}

func (x *Containerd) measure(ctx context.Context, e cluster.Engine, t *Table) (err error) {
	c, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := (meter{t, e, x.Disk, "young"}).once("import of an image", func() error { return c.load(ctx, x.Image) }); err != nil {
		return err
	}
	if err := x.work(ctx, c, e, t, "young"); err != nil {
		return err
	}
	if err := x.many(ctx, c); err != nil {
		return err
	}
	c.Stop()
	if err := age(x.Log, c.root(), x.MiB); err != nil {
		return err
	}
	began := time.Now()
	if err := c.start(ctx); err != nil {
		return err
	}
	t.Add(e, "aged: start", Seconds, time.Since(began).Seconds())
	if err := x.work(ctx, c, e, t, "aged"); err != nil {
		return err
	}
	return meter{t, e, x.Disk, "aged"}.once("image removed, and its content", func() error { return c.run(ctx, "images", "rm", "--sync", imageName) })
}

// many prepares snapshots that stay, several at once.
func (x *Containerd) many(ctx context.Context, c *containerd) error {
	if x.Many == 0 {
		return nil
	}
	layer, err := c.layer(ctx)
	if err != nil {
		return err
	}
	const atOnce = 4
	errs := make(chan error, atOnce)
	for first := range atOnce {
		go func() {
			var err error
			for i := first; i < x.Many && err == nil; i += atOnce {
				err = c.run(ctx, "snapshots", "prepare", fmt.Sprintf("stays-%d", i), layer)
			}
			errs <- err
		}()
	}
	for range atOnce {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (x *Containerd) work(ctx context.Context, c *containerd, e cluster.Engine, t *Table, name string) error {
	layer, err := c.layer(ctx)
	if err != nil {
		return err
	}
	m := meter{t, e, x.Disk, name}
	var keys []string
	err = m.each("a snapshot is prepared", x.Snapshots, func(i int) error {
		keys = append(keys, fmt.Sprintf("snapshot-%s-%d", name, i))
		return c.run(ctx, "snapshots", "prepare", keys[i], layer)
	})
	if err != nil {
		return err
	}
	err = m.each("a container runs", x.Containers, func(i int) error { return c.container(ctx, fmt.Sprintf("%s-%d", name, i)) })
	if err != nil {
		return err
	}
	return c.run(ctx, append([]string{"snapshots", "rm"}, keys...)...)
}

// Kill kills the daemon while it prepares snapshots and runs containers, again and again. What it acknowledged must be there afterwards, all
// content must be whole, and containers must run.
func (x *Containerd) Kill(ctx context.Context, e cluster.Engine, times int) (err error) {
	c, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.load(ctx, x.Image); err != nil {
		return err
	}
	layer, err := c.layer(ctx)
	if err != nil {
		return err
	}
	var prepared []string
	for i := range times {
		_, err := c.killWithin(ctx, time.Second, func() error {
			for n := 0; ; n++ {
				key := fmt.Sprintf("kill-%d-%d", i, n)
				if err := c.run(ctx, "snapshots", "prepare", key, layer); err != nil {
					return err
				}
				prepared = append(prepared, key)
				if err := c.container(ctx, "c-"+key); err != nil {
					return err
				}
			}
		})
		if err == nil {
			err = c.sound(ctx, prepared)
		}
		if err == nil {
			err = c.container(ctx, fmt.Sprintf("after-%d", i))
		}
		if err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	if err := c.run(ctx, append([]string{"snapshots", "rm"}, prepared...)...); err != nil {
		return err
	}
	return c.run(ctx, "images", "rm", "--sync", imageName)
}

// sound looks for snapshots and at the content.
func (c *containerd) sound(ctx context.Context, prepared []string) error {
	if err := c.has(ctx, prepared); err != nil {
		return err
	}
	blobs := filepath.Join(c.root(), "io.containerd.content.v1.content", "blobs", "sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("there is no content")
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(blobs, entry.Name()))
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != entry.Name() {
			return fmt.Errorf("content %s has another digest", entry.Name())
		}
	}
	return nil
}
