//go:build linux

// Command programs runs etcd, BuildKit, containerd and dockerd on bbolt and on Holdfast, side by side, and prints a table for each part. The
// parts whose names end with -kill kill them while they work, and fail if something acknowledged is lost or they do not start; those with
// -damage damage their databases, and fail if they then get further on bbolt than on Holdfast. It takes root, ext4, runc and busybox.
//
// The part service, which is not run without its name, has containerd and BuildKit use holdfastd serve. So is the part record, which records
// what etcd, BuildKit and containerd do to their databases, and replaces the files *.trace.gz of bench/age/traces.
//
//	go run ./cmd/programs [-rounds 3] [-mib 1024] [PART...]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/test/cluster"
	"holdfast/test/downstream"
	"holdfast/test/programs"
)

// What is run.
const (
	etcd       = "go.etcd.io/etcd/server/v3@v3.7.3"
	etcdLoad   = "go.etcd.io/etcd/v3@v3.6.8" // the newest of which the proxy has this module
	buildkit   = "github.com/moby/buildkit@v0.34.2"
	containerd = "github.com/containerd/containerd/v2@v2.4.2"
	docker     = "github.com/moby/moby/v2@v2.0.0-beta.24"
)

// The packages of programs, and what they are called.
var (
	buildkitPackages   = map[string]string{"./cmd/buildkitd": "buildkitd", "./cmd/buildctl": "buildctl"}
	containerdPackages = map[string]string{"./cmd/containerd": "containerd", "./cmd/containerd-shim-runc-v2": "containerd-shim-runc-v2", "./cmd/ctr": "ctr"}
)

// A part is something that can be asked for by name. Run prints what it finds.
type part struct {
	name    string
	minutes int // that it takes at most on two cores with the default flags, without building the programs
	run     func(context.Context, *workshop) error
}

// building is how many minutes it takes at most to build all programs on both engines, with nothing in Go's caches.
const building = 20

var parts = []part{
	{"etcd-young", 5, table((*workshop).etcd, (*programs.Etcd).Young)},
	{"etcd-aged", 7, table((*workshop).etcd, (*programs.Etcd).Aged)},
	{"etcd-start", 5, table((*workshop).etcd, (*programs.Etcd).Start)},
	{"etcd-shrink", 15, table((*workshop).etcd, (*programs.Etcd).Shrink)},
	{"etcd-back", 3, func(ctx context.Context, w *workshop) error { return w.back(ctx) }},
	{"etcd-damage", 2, damage((*workshop).etcd, (*programs.Etcd).Damaged)},
	{"buildkit", 9, table((*workshop).buildkit, (*programs.BuildKit).Measure)},
	{"buildkit-kill", 3, kill((*workshop).buildkit, (*programs.BuildKit).Kill)},
	{"buildkit-damage", 10, damage((*workshop).buildkit, (*programs.BuildKit).Damaged)},
	{"containerd", 8, table((*workshop).containerd, (*programs.Containerd).Measure)},
	{"containerd-kill", 4, kill((*workshop).containerd, (*programs.Containerd).Kill)},
	{"containerd-damage", 7, damage((*workshop).containerd, (*programs.Containerd).Damaged)},
	{"docker", 12, table((*workshop).docker, (*programs.Docker).Measure)},
	{"docker-kill", 4, kill((*workshop).docker, (*programs.Docker).Kill)},
	{"docker-damage", 7, damage((*workshop).docker, (*programs.Docker).Damaged)},
}

// services are parts in which holdfastd serves containerd and BuildKit: make e2e.
var services = []part{
	{"service-containerd", 3, service(false, (*programs.Service).Run)},
	{"service-debian", 3, service(true, (*programs.Service).Run)},
	{"service-containerd-kill", 4, service(false, killed)},
	{"service-debian-kill", 4, service(true, killed)},
	{"service-buildkit", 5, func(ctx context.Context, w *workshop) error { return w.serviceBuild(ctx) }},
}

// figures are parts that measure it; each is asked for by its name.
var figures = []part{
	{"service-unpack", 15, func(ctx context.Context, w *workshop) error { return w.unpack(ctx) }},
	{"service-builds", 5, func(ctx context.Context, w *workshop) error { return w.builds(ctx) }},
}

// A workshop has what the parts share. Programs are built when a part first needs them.
type workshop struct {
	dir               string
	disk              *programs.Disk
	rounds, puts, mib int
	kills, many       int
	debian            string // the directory of Debian's containerd
	traces            string // the directory for what is recorded
	builder           downstream.Runner
	built             map[string]programs.Bin
	building          time.Duration // in which programs were built
	report            report
}

// A report is what -json writes: the tables, and how they were made.
type report struct {
	Command string            `json:"command"`
	Date    string            `json:"date"`
	Machine string            `json:"machine"`
	Tables  []*programs.Table `json:"tables"`
}

// write replaces in a file the tables that have the titles of those of the report, adds the others, and keeps the rest: parts may be run
// one by one.
func (r *report) write(file string) error {
	if file == "" || len(r.Tables) == 0 {
		return nil
	}
	var old report
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &old)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, t := range r.Tables {
		if i := slices.IndexFunc(old.Tables, func(o *programs.Table) bool { return o.Title == t.Title }); i >= 0 {
			old.Tables[i] = t
		} else {
			old.Tables = append(old.Tables, t)
		}
	}
	r.Tables = old.Tables
	b, err = json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

func main() {
	if os.Getenv(inside) == "" {
		os.Exit(enter())
	}
	w := &workshop{built: map[string]programs.Bin{}}
	dir := flag.String("dir", "/var/tmp", "where to put programs and a disk")
	gib := flag.Int64("disk", 60, "GiB of the disk, which takes as much room as is written to it")
	flag.IntVar(&w.rounds, "rounds", 3, "rounds of each measurement")
	flag.IntVar(&w.puts, "puts", 50_000, "puts of a measurement of etcd")
	flag.IntVar(&w.mib, "mib", 1024, "MiB in files that are emptied or opened")
	file := flag.String("json", "", "a file for the tables, as JSON")
	flag.IntVar(&w.many, "snapshots", 0, "snapshots that containerd has, too, when its databases are aged; a thousand take a quarter of a minute")
	flag.IntVar(&w.kills, "kills", 20, "how often programs are killed")
	flag.StringVar(&w.debian, "debian", "", "the directory of Debian's containerd, for service-debian and service-debian-kill")
	flag.StringVar(&w.traces, "traces", filepath.Join("..", "bench", "age", "traces"), "the directory for what is recorded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := w.run(ctx, *dir, *gib, flag.Args())
	if err := errors.Join(err, w.report.write(*file)); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		stop()
		os.Exit(1)
	}
}

func (w *workshop) run(ctx context.Context, dir string, gib int64, names []string) (err error) {
	selected, err := choose(names)
	if err != nil {
		return err
	}
	if err := settleIn(); err != nil {
		return err
	}
	if w.debian, err = filepath.Abs(w.debian); err != nil {
		return err
	}
	repo, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	var lock io.Closer
	if w.dir, lock, err = workDir(dir); err != nil {
		return err
	}
	defer lock.Close()
	w.builder = downstream.Runner{Repo: repo, Dir: w.dir, Log: io.Discard}
	if w.disk, err = programs.NewDisk(ctx, w.dir, gib); err != nil {
		return errors.Join(err, os.RemoveAll(w.dir))
	}
	w.report = report{Command: strings.Join(append([]string{"programs"}, os.Args[1:]...), " "), Date: time.Now().Format(time.DateOnly), Machine: machine()}
	fmt.Println(w.report.Machine)
	announce(selected)
	began := time.Now()
	for _, p := range selected {
		start := time.Now()
		if err = p.run(ctx, w); err != nil {
			err = fmt.Errorf("%s: %w", p.name, err)
			break
		}
		fmt.Printf("\n%s took %v\n", p.name, time.Since(start).Round(time.Second))
	}
	fmt.Printf("\nall took %v, of which building %v\n", time.Since(began).Round(time.Second), w.building.Round(time.Second))
	err = errors.Join(err, w.disk.Close())
	if err != nil {
		return fmt.Errorf("%w; logs are in %s until the next run", err, w.dir)
	}
	return os.RemoveAll(w.dir)
}

// announce prints how long parts take.
func announce(selected []part) {
	minutes := 0
	for _, p := range selected {
		minutes += p.minutes
	}
	fmt.Printf("At most %d minutes on two cores with the default flags, and up to %d to build the programs.\n", minutes, building)
}

// machine is what the figures depend on.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Sprintf("%d cores, %s, linux/%s, %s, ext4 on a loop device; %s, %s, %s, %s", runtime.NumCPU(), runtime.Version(), runtime.GOARCH,
		unix.ByteSliceToString(u.Release[:]), etcd, buildkit, containerd, docker)
}

// choose finds parts by name; none means all.
func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts, nil
	}
	var chosen []part
	for _, name := range names {
		if all := map[string][]part{"service": services, "record": records}[name]; all != nil {
			chosen = append(chosen, all...)
			continue
		}
		parts := slices.Concat(parts, services, figures, records)
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %s", name)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// table is a part that prints a table.
func table[T any](make func(*workshop, context.Context) (T, error), measure func(T, context.Context) (*programs.Table, error)) func(context.Context, *workshop) error {
	return func(ctx context.Context, w *workshop) error {
		x, err := make(w, ctx)
		if err != nil {
			return err
		}
		t, err := measure(x, ctx)
		if err != nil {
			return err
		}
		return w.print(t)
	}
}

// kill is a part that kills a program on both engines.
func kill[T fmt.Stringer](make func(*workshop, context.Context) (T, error), kill func(T, context.Context, cluster.Engine, int) error) func(context.Context, *workshop) error {
	return func(ctx context.Context, w *workshop) error {
		x, err := make(w, ctx)
		if err != nil {
			return err
		}
		for _, e := range []cluster.Engine{cluster.Stock, cluster.Holdfast} {
			began := time.Now()
			if err := kill(x, ctx, e, w.kills); err != nil {
				return fmt.Errorf("on %v: %w", e, err)
			}
			fmt.Printf("\n%v on %v: killed %d times in %v, nothing lost\n", x, e, w.kills, time.Since(began).Round(time.Second))
		}
		return nil
	}
}

// back is a part that kills etcd on Holdfast and starts it on bbolt.
func (w *workshop) back(ctx context.Context) error {
	x, err := w.etcd(ctx)
	if err != nil {
		return err
	}
	b, err := x.Back(ctx, w.kills)
	if err != nil {
		return err
	}
	fmt.Printf("\netcd on Holdfast: killed %d times. Once settled, it started on bbolt each time, and had all that was acknowledged. Not settled, bbolt did not start %d times, and %d times had less\n",
		b.Kills, b.Refused, b.Lost)
	return nil
}

// damage is a part that damages the databases of a program.
func damage[T fmt.Stringer](make func(*workshop, context.Context) (T, error), damaged func(T, context.Context) (*programs.Verdict, error)) func(context.Context, *workshop) error {
	return func(ctx context.Context, w *workshop) error {
		x, err := make(w, ctx)
		if err != nil {
			return err
		}
		v, err := damaged(x, ctx)
		if v != nil {
			fmt.Printf("\n%v: of %d damages to its databases it starts with %d on bbolt and %d on Holdfast, and works with %d and %d; it gets further on Holdfast with %d, on bbolt with %d, of which %d are explained\n",
				x, v.Tried, v.Starts[cluster.Stock], v.Starts[cluster.Holdfast], v.Works[cluster.Stock], v.Works[cluster.Holdfast], v.Better, len(v.Worse)+v.Explained, v.Explained)
		}
		return err
	}
}

// build builds packages of a module on both engines, once.
func (w *workshop) build(ctx context.Context, module string, packages map[string]string) (programs.Bin, error) {
	if bin := w.built[module]; bin != nil {
		return bin, nil
	}
	began := time.Now()
	bin := programs.Bin{}
	for _, e := range []cluster.Engine{cluster.Stock, cluster.Holdfast} {
		fmt.Fprintf(os.Stderr, "building %s on %v\n", module, e)
		bin[e] = filepath.Join(w.dir, "bin", e.String())
		if err := os.MkdirAll(bin[e], 0o755); err != nil {
			return nil, err
		}
		files := maps.Clone(packages)
		for pkg, name := range files {
			files[pkg] = filepath.Join(bin[e], name)
		}
		if err := w.builder.Build(ctx, module, e == cluster.Holdfast, files); err != nil {
			return nil, err
		}
	}
	w.built[module] = bin
	w.building += time.Since(began)
	return bin, nil
}

func (w *workshop) etcd(ctx context.Context) (*programs.Etcd, error) {
	bin, err := w.build(ctx, etcd, map[string]string{".": "etcd"})
	if err != nil {
		return nil, err
	}
	x := &programs.Etcd{
		Binaries: map[cluster.Engine]string{}, Load: filepath.Join(w.dir, "benchmark"),
		Disk: w.disk, Rounds: w.rounds, Puts: w.puts, MiB: w.mib, Log: os.Stderr,
	}
	for e, dir := range bin {
		x.Binaries[e] = filepath.Join(dir, "etcd")
	}
	if _, err := os.Stat(x.Load); err == nil {
		return x, nil
	}
	fmt.Fprintf(os.Stderr, "building benchmark of %s\n", etcdLoad)
	return x, w.builder.Build(ctx, etcdLoad, false, map[string]string{"./tools/benchmark": x.Load})
}

func (w *workshop) buildkit(ctx context.Context) (*programs.BuildKit, error) {
	bin, err := w.build(ctx, buildkit, buildkitPackages)
	if err != nil {
		return nil, err
	}
	return &programs.BuildKit{Bin: bin, Disk: w.disk, Rounds: w.rounds, Builds: 5, MiB: w.mib, Log: os.Stderr}, nil
}

func (w *workshop) containerd(ctx context.Context) (*programs.Containerd, error) {
	bin, err := w.build(ctx, containerd, containerdPackages)
	if err != nil {
		return nil, err
	}
	x := &programs.Containerd{
		Bin: bin, Image: filepath.Join(w.dir, "image.tar"), Disk: w.disk,
		Rounds: w.rounds, Snapshots: 100, Containers: 20, Many: w.many, MiB: w.mib, Log: os.Stderr,
	}
	if _, err := os.Stat(x.Image); err == nil {
		return x, nil
	}
	b, err := w.buildkit(ctx)
	if err != nil {
		return nil, err
	}
	return x, b.Image(ctx, x.Image)
}

func (w *workshop) docker(ctx context.Context) (*programs.Docker, error) {
	c, err := w.containerd(ctx)
	if err != nil {
		return nil, err
	}
	bin, err := w.build(ctx, docker, map[string]string{"./cmd/dockerd": "dockerd"})
	if err != nil {
		return nil, err
	}
	return &programs.Docker{Bin: bin, Containerd: c, Rounds: w.rounds, Volumes: 100, Containers: 20, MiB: w.mib, Log: os.Stderr}, nil
}
