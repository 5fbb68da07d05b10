// Command bench-service compares steps that a program runs by the library with the same through the socket of a daemon: steps a
// second of twenty clients, and what one step takes. The two stores are on one file system and are measured in turns, in every
// other round in reverse order. With -soak it has twenty clients run steps while snapshots are pruned, and shows whether the daemon
// fails or grows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"holdfast/worker/api"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/step"
)

var (
	program = flag.String("holdfastd", "bin/holdfastd", "the daemon's program")
	base    = flag.String("base", "", "tar archive of the base, which has /bin/true")
	dir     = flag.String("dir", "", "directory for the stores; a temporary one if it is empty")
	rounds  = flag.Int("rounds", 5, "rounds")
	clients = flag.Int("clients", 20, "clients at once")
	steps   = flag.Int("steps", 25, "steps of each client in a round")
	single  = flag.Int("single", 200, "steps of one client in a round")
	soak    = flag.Duration("soak", 0, "in place of comparing: how long to run steps while snapshots are pruned")
)

// contender runs steps, each once.
type contender struct {
	name  string
	run   func(ctx context.Context, n int) error
	rates []float64
	took  []time.Duration // of steps of one client
}

func main() {
	step.Init()
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-service:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	root := *dir
	if root == "" {
		if root, err = os.MkdirTemp("", "bench-service-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	}
	d, err := startDaemon(filepath.Join(root, "daemon"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if *soak > 0 {
		return d.soak()
	}
	l, err := openLibrary(filepath.Join(root, "library"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	return compare([]*contender{{name: "library", run: l.step}, {name: "socket", run: d.step}})
}

var serial int // of steps: no two are the same

func compare(list []*contender) error {
	for round := range *rounds + 1 { // the first is not counted
		for _, c := range list {
			first := serial
			serial += *clients**steps + *single
			begun := time.Now()
			if err := together(*clients, *steps, func(i int) error { return c.run(context.Background(), first+i) }); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			rate := float64(*clients**steps) / time.Since(begun).Seconds()
			var took []time.Duration
			for i := range *single {
				begun := time.Now()
				if err := c.run(context.Background(), first+*clients**steps+i); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				took = append(took, time.Since(begun))
			}
			if round > 0 {
				c.rates, c.took = append(c.rates, rate), append(c.took, took...)
			}
		}
		slices.Reverse(list)
	}
	slices.SortFunc(list, func(a, b *contender) int { return len(a.name) - len(b.name) })
	fmt.Printf("%-8s %12s %14s %14s\n", "", "steps/s", "a step, median", "p99")
	for _, c := range list {
		slices.Sort(c.rates)
		slices.Sort(c.took)
		fmt.Printf("%-8s %12.1f %14v %14v\n", c.name, c.rates[len(c.rates)/2], round(c.took[len(c.took)/2]), round(c.took[len(c.took)*99/100]))
	}
	own, lib := list[0], list[1]
	if own.name != "socket" {
		own, lib = lib, own
	}
	fmt.Printf("socket to library: %.2f of the steps a second, %v more for a step\n", own.rates[len(own.rates)/2]/lib.rates[len(lib.rates)/2],
		round(own.took[len(own.took)/2]-lib.took[len(lib.took)/2]))
	return nil
}

// together calls fn from n goroutines, each many times.
func together(n, many int, fn func(i int) error) error {
	errs := make(chan error, n)
	for c := range n {
		go func() {
			var err error
			for i := 0; i < many && err == nil; i++ {
				err = fn(c*many + i)
			}
			errs <- err
		}()
	}
	var err error
	for range n {
		err = errors.Join(err, <-errs)
	}
	return err
}

// library is a store that this process has.
type library struct {
	store  *snapshot.Store
	mounts *mount.Manager
	runner *step.Runner
	base   string
}

func openLibrary(root string) (l *library, err error) {
	ctx := context.Background()
	quiet := slog.New(slog.DiscardHandler)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	l = &library{}
	if l.store, err = snapshot.Open(root, snapshot.Options{Driver: overlay.New(), Logger: quiet}); err != nil {
		return nil, err
	}
	names, err := l.store.Namespace("local")
	if err != nil {
		return nil, err
	}
	f, err := os.Open(*base)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := image.ImportArchive(ctx, names, f, image.Options{Name: "base"}); err != nil {
		return nil, err
	}
	on, err := image.Resolve(ctx, names, "base")
	if err != nil {
		return nil, err
	}
	l.base = on.Name
	run := filepath.Join("/run", fmt.Sprintf("bench-service-%d", os.Getpid()))
	if l.mounts, err = mount.Open(ctx, mount.Options{Directory: run, Keep: []string{root}, Logger: quiet, Cgroups: step.Cgroups(step.DefaultCgroup(root))}); err != nil {
		return nil, err
	}
	l.runner, err = step.New(ctx, step.Options{Namespace: names, Mounts: l.mounts, Logger: quiet})
	return l, err
}

func (l *library) step(ctx context.Context, n int) error {
	_, err := l.runner.Run(ctx, step.Step{Base: l.base, Command: []string{"/bin/true"}, Env: []string{fmt.Sprintf("N=%d", n), "PATH=/bin"}, Hold: -1}, io.Discard)
	return err
}

func (l *library) close() error {
	return errors.Join(l.runner.Close(), l.mounts.Close(context.Background()), l.store.Close())
}

// aDaemon is a process with a store.
type aDaemon struct {
	cmd     *exec.Cmd
	steps   api.StepsClient
	storage api.StorageClient
}

func startDaemon(root string) (*aDaemon, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	config, policy, store := filepath.Join(root, "config.toml"), filepath.Join(root, "policy.toml"), filepath.Join(root, "store")
	if err := os.WriteFile(policy, []byte("[[policy]]\nall = true\nmaxSnapshots = 300\n"), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "root = %q\n[prune]\ninterval = \"0\"\npolicy = %q\n", store, policy), 0o600); err != nil {
		return nil, err
	}
	d := &aDaemon{cmd: exec.Command(*program, "serve", "--config", config)}
	d.cmd.Stderr = os.Stderr
	if *soak == 0 {
		d.cmd.Stderr = nil
	}
	if out, err := exec.Command(*program, "--root", store, "import", *base, "base").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("import %s: %w: %s", *base, err, out)
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(store, "api.sock"))
	}}
	tr.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: tr}
	d.steps, d.storage = api.NewStepsClient(client, "http://holdfastd"), api.NewStorageClient(client, "http://holdfastd")
	for range 500 {
		if _, err := d.storage.GetStatus(context.Background(), connect.NewRequest(&api.GetStatusRequest{})); err == nil {
			return d, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("the daemon does not answer"), d.stop())
}

func (d *aDaemon) step(ctx context.Context, n int) error {
	stream, err := d.steps.Run(ctx, connect.NewRequest(&api.RunRequest{Base: "base", Command: []string{"/bin/true"}, Env: []string{fmt.Sprintf("N=%d", n), "PATH=/bin"},
		Hold: durationpb.New(0), ReserveBytes: -1}))
	if err != nil {
		return err
	}
	defer stream.Close()
	var res *api.StepResult
	for stream.Receive() {
		res = stream.Msg().GetResult()
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if res.GetSnapshot() == "" {
		return fmt.Errorf("step %d has no result: %v", n, res)
	}
	return nil
}

func (d *aDaemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.cmd.Wait()
}

// load is what clients do in a soak, and what became of it.
type load struct {
	d      *aDaemon
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	took   []time.Duration
	pruned int64
	failed error
}

// fail ends all if something has failed.
func (l *load) fail(err error) {
	if err == nil || l.ctx.Err() != nil || connect.CodeOf(err) == connect.CodeDeadlineExceeded { // the daemon's clock is ahead
		return
	}
	l.mu.Lock()
	l.failed = errors.Join(l.failed, err)
	l.mu.Unlock()
	l.cancel()
}

// client runs one step after the other. Every fourth is a hit, unless it was pruned since.
func (l *load) client(c int) {
	for i := 0; l.ctx.Err() == nil; i++ {
		n := c<<32 + i
		if i%4 == 3 {
			n--
		}
		begun := time.Now()
		l.fail(l.d.step(l.ctx, n))
		l.mu.Lock()
		l.took = append(l.took, time.Since(begun))
		l.mu.Unlock()
	}
}

func (l *load) pruner() {
	for l.ctx.Err() == nil {
		stream, err := l.d.storage.Prune(l.ctx, connect.NewRequest(&api.PruneRequest{}))
		l.fail(err)
		if err == nil {
			for stream.Receive() {
				l.mu.Lock()
				l.pruned += stream.Msg().GetResult().GetSnapshots()
				l.mu.Unlock()
			}
			l.fail(stream.Err())
			_ = stream.Close()
		}
		wait(l.ctx, 2*time.Second)
	}
}

// watcher watches, and goes away now and then.
func (l *load) watcher() {
	for l.ctx.Err() == nil {
		short, gone := context.WithTimeout(l.ctx, 5*time.Second)
		if stream, err := l.d.storage.Watch(short, connect.NewRequest(&api.WatchRequest{})); err == nil {
			for stream.Receive() {
			}
			_ = stream.Close()
		}
		gone()
	}
}

// soak runs steps while snapshots are pruned and others watch, and reports.
func (d *aDaemon) soak() error {
	l := &load{d: d}
	l.ctx, l.cancel = context.WithTimeout(context.Background(), *soak)
	defer l.cancel()
	var all sync.WaitGroup
	for c := range *clients {
		all.Go(func() { l.client(c) })
	}
	all.Go(l.pruner)
	all.Go(l.watcher)
	fmt.Printf("%8s %10s %10s %12s %8s %10s\n", "after", "steps", "pruned", "memory", "files", "snapshots")
	for begun := time.Now(); l.ctx.Err() == nil; wait(l.ctx, max(*soak/20, time.Second)) {
		st, err := d.storage.GetStatus(l.ctx, connect.NewRequest(&api.GetStatusRequest{}))
		if err != nil {
			l.fail(err)
			break
		}
		l.mu.Lock()
		ran, pruned := len(l.took), l.pruned
		l.mu.Unlock()
		memory, files := usage(d.cmd.Process.Pid)
		fmt.Printf("%8v %10d %10d %9d MiB %8d %10d\n", time.Since(begun).Round(time.Second), ran, pruned, memory>>20, files, st.Msg.Snapshots)
	}
	all.Wait()
	slices.Sort(l.took)
	fmt.Printf("%d steps: median %v, p99 %v, most %v\n", len(l.took), round(l.took[len(l.took)/2]), round(l.took[len(l.took)*99/100]), round(l.took[len(l.took)-1]))
	dbs, err := d.storage.ListDatabases(context.Background(), connect.NewRequest(&api.ListDatabasesRequest{}))
	if err != nil {
		return errors.Join(l.failed, err)
	}
	for _, one := range dbs.Msg.Databases {
		fmt.Printf("%s: %d KiB, %d KiB free, %d commits, vacuum: %s\n", one.Name, one.Bytes>>10, one.FreeBytes>>10, one.Commits, one.Vacuum)
	}
	return l.failed
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// usage is the memory of a process that is not shared, and how many files it has open.
func usage(pid int) (memory int64, files int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident, shared int64
	_, _ = fmt.Sscan(string(b), &size, &resident, &shared)
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return (resident - shared) * int64(os.Getpagesize()), len(list)
}
