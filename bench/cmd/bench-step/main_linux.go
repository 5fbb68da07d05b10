// Command bench-step measures the own time of a step, one that runs /bin/true: from the question whether
// there is a result to the record of it. Two stores, one of few and one of many snapshots, are asked in
// turn, with one client and with several, with both runtimes, and with runc alone; then all again in a
// mount namespace that has as many foreign mounts as the store has snapshots; and that three times over.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdfast"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/step"

	"golang.org/x/sys/unix"
)

var (
	dir     = flag.String("dir", "", "directory for the stores; a temporary one if it is empty")
	many    = flag.Int("n", 33787, "snapshots of the larger store, and foreign mounts")
	few     = flag.Int("few", 10, "snapshots of the smaller one")
	clients = flag.Int("clients", 20, "clients at once, compared with one alone")
	rounds  = flag.Int("rounds", 600, "steps of each kind; of runc a tenth")
	full    = flag.Bool("full", false, "SyncCommit and durability Full in place of SyncDeferred and Periodic")
	asJSON  = flag.Bool("json", false, "results as JSON")
)

// again tells the program that it is in a mount namespace of its own.
const again = "HOLDFAST_BENCH_STEP"

func main() {
	step.Init()
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-step:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("root is needed: run it with sudo")
	}
	if os.Getenv(again) == "" {
		return restart()
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	root := *dir
	if root == "" {
		if root, err = os.MkdirTemp("", "bench-step-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	}
	b := &bench{ctx: context.Background(), dir: root}
	return b.run()
}

// restart runs the program in a mount namespace of its own, which has the foreign mounts.
func restart() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), again+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// row is the own time of steps of one kind, in both stores.
type row struct {
	Runtime   string
	Clients   int
	Foreign   int
	Few, Many []time.Duration `json:"-"`

	each [2][]time.Duration // of several clients, a figure for each piece

	MedianFew, MedianMany time.Duration // by step; of several clients, of the time that each waits
	EachFew, EachMany     time.Duration // of several clients: time of all by their number
}

type bench struct {
	ctx       context.Context
	dir       string
	busybox   []byte
	few, many *stand
	rows      []*row
}

// stand is a store, with what steps need.
type stand struct {
	dir       string
	store     *snapshot.Store
	namespace *snapshot.Namespace
	mounts    *mount.Manager
	runner    *step.Runner
	base      string // name of a snapshot
}

func (b *bench) run() (err error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("busybox is not there: install the package busybox-static: %w", err)
	}
	if b.busybox, err = os.ReadFile(program); err != nil {
		return err
	}
	for _, s := range []struct {
		to   **stand
		name string
		n    int
	}{{&b.few, "few", *few}, {&b.many, "many", *many}} {
		began := time.Now()
		if *s.to, err = b.fill(s.name, s.n); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d snapshots: %v\n", s.n, time.Since(began).Round(time.Millisecond))
	}
	for range repeats {
		if err := b.measure(0); err != nil {
			return err
		}
		if err := b.foreign(*many); err != nil {
			return err
		}
		if err := b.measure(*many); err != nil {
			return err
		}
		if err := unix.Unmount(filepath.Join(b.dir, "foreign"), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount the foreign mounts: %w", err)
		}
	}
	b.summarize()
	for _, s := range []*stand{b.few, b.many} {
		err = errors.Join(err, s.store.Close())
	}
	if err == nil && *asJSON {
		return json.NewEncoder(os.Stdout).Encode(b.rows)
	}
	b.print()
	return err
}

// fill makes a store with a base and n snapshots.
func (b *bench) fill(name string, n int) (*stand, error) {
	s := &stand{dir: filepath.Join(b.dir, name)}
	o := snapshot.Options{Driver: overlay.New("volatile"), Sync: snapshot.SyncDeferred, Durability: holdfast.Periodic}
	if *full {
		o.Sync, o.Durability = snapshot.SyncCommit, holdfast.Full
	}
	var err error
	if err = os.MkdirAll(s.root(), 0o700); err != nil {
		return nil, err
	}
	if s.store, err = snapshot.Open(s.root(), o); err != nil {
		return nil, err
	}
	if s.namespace, err = s.store.Namespace("bench"); err != nil {
		return nil, err
	}
	res, err := image.ImportArchive(b.ctx, s.namespace, bytes.NewReader(b.archive()), image.Options{})
	if err != nil {
		return nil, err
	}
	s.base = res.Snapshot
	for i := range n - 1 {
		key := fmt.Sprint("filling ", i)
		parent := ""
		if i%8 > 0 {
			parent = fmt.Sprint("filled ", i-1)
		}
		if _, err := s.namespace.Prepare(b.ctx, key, parent); err != nil {
			return nil, err
		}
		if err := s.namespace.Commit(b.ctx, fmt.Sprint("filled ", i), key); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stand) root() string { return filepath.Join(s.dir, "store") }

// archive is a base: busybox, and /bin/true.
func (b *bench) archive() []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []*tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(b.busybox))},
		{Name: "bin/true", Typeflag: tar.TypeLink, Linkname: "bin/busybox", Mode: 0o755},
	} {
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(b.busybox); err != nil {
				panic(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// open opens what runs steps.
func (s *stand) open(ctx context.Context, runtime step.Runtime) (err error) {
	quiet := slog.New(slog.DiscardHandler)
	s.mounts, err = mount.Open(ctx, mount.Options{Directory: filepath.Join(s.dir, "run"), Keep: []string{s.root()},
		Cgroups: step.Cgroups(step.DefaultCgroup(s.root())), Logger: quiet})
	if err != nil {
		return err
	}
	o := step.Options{Namespace: s.namespace, Mounts: s.mounts, Runtime: runtime, Concurrency: *clients, Durability: holdfast.Periodic, Logger: quiet}
	if *full {
		o.Durability = holdfast.Full
	}
	s.runner, err = step.New(ctx, o)
	return err
}

func (s *stand) close(ctx context.Context) error {
	err := s.runner.Close()
	return errors.Join(err, s.mounts.Close(ctx))
}

// measure measures all kinds, with so many foreign mounts.
func (b *bench) measure(foreign int) error {
	for _, k := range []struct {
		name    string
		runtime step.Runtime
		rounds  int
	}{{"native", step.Native(), *rounds}, {"runc", step.Runc(), max(*rounds/10, 1)}} {
		if _, err := exec.LookPath("runc"); k.name == "runc" && err != nil {
			fmt.Fprintln(os.Stderr, "runc is left out: it is not there; its package is runc")
			continue
		}
		for _, s := range []*stand{b.few, b.many} {
			if err := s.open(b.ctx, k.runtime); err != nil {
				return err
			}
		}
		for _, n := range []int{1, *clients} {
			if err := b.interleave(b.row(k.name, n, foreign), max(k.rounds/repeats, 1)); err != nil {
				return err
			}
		}
		for _, s := range []*stand{b.few, b.many} {
			if err := s.close(b.ctx); err != nil {
				return err
			}
		}
		if k.name == "runc" {
			if err := b.bare(b.row("runc alone", 1, foreign), max(k.rounds/repeats, 1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// row is that of steps of one kind, which is measured in each turn.
func (b *bench) row(runtime string, clients, foreign int) *row {
	for _, r := range b.rows {
		if r.Runtime == runtime && r.Clients == clients && r.Foreign == foreign {
			return r
		}
	}
	r := &row{Runtime: runtime, Clients: clients, Foreign: foreign}
	b.rows = append(b.rows, r)
	return r
}

// repeats is how often all is measured without and with foreign mounts, and pieces in how many parts the two
// stores are asked each time.
const (
	repeats = 3
	pieces  = 10
)

func (b *bench) interleave(r *row, rounds int) error {
	for i := range pieces {
		for at, s := range []*stand{b.few, b.many} {
			n := max(rounds/pieces, r.Clients)
			began := time.Now()
			took, err := b.steps(s, r.Clients, n)
			if err != nil {
				return err
			}
			if i == 0 {
				continue // the first makes the step namespace, threads, pools
			}
			r.each[at] = append(r.each[at], time.Since(began)/time.Duration(n))
			if at == 0 {
				r.Few = append(r.Few, took...)
			} else {
				r.Many = append(r.Many, took...)
			}
		}
	}
	return nil
}

func (b *bench) summarize() {
	for _, r := range b.rows {
		r.MedianFew, r.MedianMany = median(r.Few), median(r.Many)
		r.EachFew, r.EachMany = median(r.each[0]), median(r.each[1])
	}
}

// steps runs n steps, no two the same, and removes what they leave.
func (b *bench) steps(s *stand, clients, n int) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var results []string
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range (n + c) / clients {
				began := time.Now()
				res, err := s.runner.Run(b.ctx, step.Step{Base: s.base, Command: []string{"/bin/true"},
					Env: []string{fmt.Sprint("N=", began.UnixNano(), "-", c, "-", i)}}, nil)
				d := time.Since(began)
				mu.Lock()
				if took = append(took, d); err != nil {
					failed = errors.Join(failed, err)
				} else {
					results = append(results, res.Snapshot)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, name := range results {
		failed = errors.Join(failed, s.namespace.Remove(b.ctx, name))
	}
	return took, failed
}

// bare is runc with a directory, started from the namespace that has the foreign mounts.
func (b *bench) bare(r *row, rounds int) error {
	bundle, err := os.MkdirTemp(b.dir, "bundle-")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs/bin"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "rootfs/bin/true"), b.busybox, 0o755); err != nil {
		return err
	}
	spec := exec.Command("runc", "spec")
	if spec.Dir = bundle; spec.Run() != nil {
		return errors.New("runc spec failed")
	}
	name := filepath.Join(bundle, "config.json")
	config, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text := strings.Replace(strings.Replace(string(config), `"sh"`, `"/bin/true"`, 1), `"terminal": true`, `"terminal": false`, 1)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return err
	}
	for range rounds {
		began := time.Now()
		out, err := exec.Command("runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, filepath.Base(bundle)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("runc: %w: %s", err, out)
		}
		r.Few = append(r.Few, time.Since(began))
	}
	return nil
}

// foreign mounts n binds of directories.
func (b *bench) foreign(n int) error {
	at := filepath.Join(b.dir, "foreign")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("foreign", at, "tmpfs", 0, "nr_inodes=0"); err != nil {
		return err
	}
	for i := range n {
		name := filepath.Join(at, fmt.Sprint(i))
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(name, name, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}
