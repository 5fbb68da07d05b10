// Command stress runs random trees of build steps, many at once, while others are pruned, and verifies the content of
// every result: meanwhile of some, at the end of all. Its exit code is 1 if anything differs. It needs root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"holdfast/test/stress"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/btrfs"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/erofs"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/step"
)

var (
	dir     = flag.String("dir", "", "directory for the store; one that a run has left, also a killed one, is used again. Empty: a temporary one")
	driver  = flag.String("driver", "overlay", "driver of the store: overlay|copy|btrfs|erofs")
	runtime = flag.String("runtime", "native", "runtime of the steps: native|runc")
	clients = flag.Int("clients", 15, "steps at once")
	steps   = flag.Int64("steps", 0, "how many steps; 0: as many as -for allows")
	during  = flag.Duration("for", time.Minute, "how long; ignored with -steps")
	prune   = flag.Duration("prune", 20*time.Millisecond, "pause between two prunings")
	seed    = flag.Uint64("seed", 0, "seed of the choices; 0: another one each time")
	quiet   = flag.Bool("q", false, "no lines of progress")
)

func main() {
	step.Init()
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1)
	}
}

func run() error {
	o := stress.Options{Dir: *dir, Clients: *clients, Steps: *steps, Prune: *prune, Seed: *seed}
	drivers := map[string]snapshot.Driver{"overlay": overlay.New("volatile"), "copy": copy.New(), "btrfs": btrfs.New(), "erofs": erofs.New()}
	runtimes := map[string]step.Runtime{"native": step.Native(), "runc": step.Runc()}
	o.Driver, o.Runtime = drivers[*driver], runtimes[*runtime]
	switch {
	case o.Driver == nil:
		return fmt.Errorf("-driver is %q", *driver)
	case o.Runtime == nil:
		return fmt.Errorf("-runtime is %q", *runtime)
	case flag.NArg() > 0:
		return fmt.Errorf("what is %q?", strings.Join(flag.Args(), " "))
	case os.Geteuid() != 0:
		return errors.New("root is needed: run it with sudo")
	}
	if o.Dir == "" {
		made, err := os.MkdirTemp("", "holdfast-stress-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(made)
		o.Dir = made
	} else if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	for o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("driver %s, runtime %s, %d clients, HOLDFAST_SEED=%d\n", *driver, *runtime, *clients, o.Seed)
	if !*quiet {
		begun := time.Now()
		o.Progress = func(r stress.Report) { fmt.Printf("%6.0fs  %s\n", time.Since(begun).Seconds(), line(r)) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.Steps == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *during)
		defer cancel()
	}
	report, err := stress.Run(ctx, o)
	fmt.Println("stress:", line(report))
	for _, p := range report.Problems {
		fmt.Println("problem:", p)
	}
	if err == nil && len(report.Problems) > 0 {
		err = errors.New("not all is as it should be")
	}
	return err
}

func line(r stress.Report) string {
	return fmt.Sprintf("%d runs, %d hits, %d adopted, %d failed, %d canceled, %d bases pruned meanwhile, %d pruned, %d verified, %d problems",
		r.Runs, r.Hits, r.Adopted, r.Failed, r.Canceled, r.Lost, r.Pruned, r.Verified, len(r.Problems))
}
