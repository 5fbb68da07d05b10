package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/test/cluster"
)

// BuildKit runs builds: a file is copied into an image from nothing, and ten steps run on it.
type BuildKit struct {
	Bin    Bin // buildkitd and buildctl
	Disk   *Disk
	Rounds int
	Builds int // in each round
	MiB    int // that databases hold before they are emptied
	Log    io.Writer
}

func (x *BuildKit) String() string { return "BuildKit" }

// buildSteps is the number of steps of a build.
const buildSteps = 10

// buildkitd is a running daemon and what builds with it.
type buildkitd struct {
	daemon
	dir, ctl string
}

// begin starts a daemon whose root is on the disk.
func (x *BuildKit) begin(ctx context.Context, e cluster.Engine) (*buildkitd, error) {
	return newBuildkitd(ctx, x.Bin[e], x.Disk)
}

// newBuildkitd starts a daemon whose root is on a disk, with further flags.
func newBuildkitd(ctx context.Context, bin string, disk *Disk, flags ...string) (*buildkitd, error) {
	dir, err := os.MkdirTemp(disk.Dir, "buildkit")
	if err != nil {
		return nil, err
	}
	b := &buildkitd{dir: dir, ctl: filepath.Join(bin, "buildctl")}
	b.Binary, b.Log = filepath.Join(bin, "buildkitd"), filepath.Join(filepath.Dir(disk.Dir), "buildkitd.log")
	b.Args = append([]string{
		"--root", b.root(), "--addr", b.address(), "--otel-socket-path", filepath.Join(dir, "otel"), "--config", filepath.Join(dir, "none"),
		"--containerd-worker=false", "--oci-worker=true", "--oci-worker-net=host", "--oci-worker-binary=runc", "--oci-worker-gc=false",
	}, flags...)
	b.ready = func() error { return b.run(ctx, "debug", "workers") }
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b, b.start(ctx)
}

func (b *buildkitd) root() string    { return filepath.Join(b.dir, "root") }
func (b *buildkitd) address() string { return "unix://" + filepath.Join(b.dir, "socket") }
func (b *buildkitd) context() string { return filepath.Join(b.dir, "context") }

// prepare makes what is built, and an empty configuration: this machine's own counts for nothing.
func (b *buildkitd) prepare() error {
	if err := os.Mkdir(b.context(), 0o755); err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("%w (Debian: busybox-static)", err)
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var file strings.Builder
	file.WriteString("FROM scratch\nCOPY busybox /bin/busybox\nCOPY input /input\n")
	for i := range buildSteps {
		fmt.Fprintf(&file, "RUN [\"/bin/busybox\", \"sh\", \"-c\", \"/bin/busybox cat /input > /output%d\"]\n", i)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(b.dir, "none"), nil, 0o644),
		os.WriteFile(filepath.Join(b.context(), "busybox"), data, 0o755),
		os.WriteFile(filepath.Join(b.context(), "Dockerfile"), []byte(file.String()), 0o644))
}

// run runs buildctl.
func (b *buildkitd) run(ctx context.Context, args ...string) error {
	return run(ctx, b.ctl, append([]string{"--addr", b.address()}, args...)...)
}

// build builds with this input; output is a value of buildctl's flag, or "".
func (b *buildkitd) build(ctx context.Context, input, output string) error {
	if err := os.WriteFile(filepath.Join(b.context(), "input"), []byte(input), 0o644); err != nil {
		return err
	}
	args := []string{"build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context=" + b.context(), "--local", "dockerfile=" + b.context()}
	if output != "" {
		args = append(args, "--output", output)
	}
	return b.run(ctx, args...)
}

// buildRight builds, takes the result out and looks at it.
func (b *buildkitd) buildRight(ctx context.Context, input string) error {
	out := filepath.Join(b.dir, "out")
	if err := b.build(ctx, input, "type=local,dest="+out); err != nil {
		return err
	}
	for i := range buildSteps {
		name := fmt.Sprintf("output%d", i)
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		if string(got) != input {
			return fmt.Errorf("%s of the build is %q, not %q", name, got, input)
		}
	}
	return os.RemoveAll(out)
}

// close ends the daemon and removes what it has.
func (b *buildkitd) close() error {
	b.Stop()
	return errors.Join(unmountBelow(b.dir), os.RemoveAll(b.dir))
}

// Measure measures builds whose input is new, and builds of which all is in the cache, on databases that are young and then aged.
func (x *BuildKit) Measure(ctx context.Context) (*Table, error) {
	t := &Table{Title: fmt.Sprintf("BuildKit: builds of %d steps; aged: each database held %d MiB and was emptied", buildSteps, x.MiB)}
	return t, rounds(x.Log, x, x.Rounds, func(e cluster.Engine) error { return x.measure(ctx, e, t) })
}

func (x *BuildKit) measure(ctx context.Context, e cluster.Engine, t *Table) (err error) {
	b, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.buildRight(ctx, "warm up"); err != nil {
		return err
	}
	if err := x.builds(ctx, b, e, t, "young"); err != nil {
		return err
	}
	b.Stop()
	if err := age(x.Log, b.root(), x.MiB); err != nil {
		return err
	}
	began := time.Now()
	if err := b.start(ctx); err != nil {
		return err
	}
	t.Add(e, "aged: start", Seconds, time.Since(began).Seconds())
	if err := x.builds(ctx, b, e, t, "aged"); err != nil {
		return err
	}
	return meter{t, e, x.Disk, "aged"}.once("prune all", func() error { return b.run(ctx, "prune", "--all") })
}

func (x *BuildKit) builds(ctx context.Context, b *buildkitd, e cluster.Engine, t *Table, name string) error {
	m := meter{t, e, x.Disk, name}
	for i := range x.Builds {
		input := fmt.Sprintf("%s %d", name, i)
		for _, what := range []string{"build", "cached build"} {
			if err := m.once(what, func() error { return b.build(ctx, input, "") }); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kill kills the daemon within builds, again and again, and sees that builds are right afterwards.
func (x *BuildKit) Kill(ctx context.Context, e cluster.Engine, times int) (err error) {
	b, err := x.begin(ctx, e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for i := range times {
		input := fmt.Sprintf("killed %d", i)
		_, err := b.killWithin(ctx, 2*time.Second, func() error { return b.build(ctx, input, "") })
		if err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
		if err := b.buildRight(ctx, input); err != nil {
			return fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	return b.run(ctx, "prune", "--all")
}

// Image writes an OCI archive of an image that has busybox, for other programs.
func (x *BuildKit) Image(ctx context.Context, file string) (err error) {
	b, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return b.build(ctx, "image", "type=oci,name="+imageName+",dest="+file)
}
