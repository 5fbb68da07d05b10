//go:build unix

// Command cluster runs etcd on Holdfast while members are killed, paused, replaced and moved between engines, and fails if a write that
// was acknowledged is lost, a history is not linearizable, or members differ.
//
//	go run ./cmd/cluster [-for 2m] [-seed N] [-clients 12]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"holdfast/test/cluster"
	"holdfast/test/downstream"
)

// What runs, and what restores a cluster from a snapshot.
const (
	etcd    = "go.etcd.io/etcd/server/v3@v3.7.3"
	etcdutl = "go.etcd.io/etcd/etcdutl/v3@v3.7.3"
)

// overhead is what a run takes at most beside the time that it is given: building, and the checks of what it leaves.
const overhead = 6 * time.Minute

func main() {
	length := flag.Duration("for", 2*time.Minute, "how long, of both clusters together")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what decides what goes wrong, and when")
	clients := flag.Int("clients", 12, "clients at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *length, *seed, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, seed uint64, clients int) error {
	dir, err := os.MkdirTemp("/var/tmp", "holdfast-cluster")
	if err != nil {
		return err
	}
	began := time.Now()
	fmt.Printf("At most %v on two cores, most of it to build etcd and to look at what the members have.\n", length+overhead)
	binaries, err := build(ctx, dir, etcd, "etcd")
	if err != nil {
		return err
	}
	utilities, err := build(ctx, dir, etcdutl, "etcdutl")
	if err != nil {
		return err
	}
	fmt.Printf("seed %d\n", seed)
	for _, c := range []struct {
		name    string
		engines []cluster.Engine
		mixed   bool
	}{
		{"Holdfast", []cluster.Engine{cluster.Holdfast, cluster.Holdfast, cluster.Holdfast}, false},
		{"mixed", []cluster.Engine{cluster.Stock, cluster.Holdfast, cluster.Stock}, true},
	} {
		fmt.Printf("three members, %s\n", c.name)
		r, err := cluster.Run(ctx, cluster.Options{
			Binaries: binaries, Utilities: utilities, Dir: filepath.Join(dir, c.name), Engines: c.engines, Mixed: c.mixed,
			For: length / 2, Clients: clients, Seed: seed, Log: os.Stdout,
		})
		if err != nil {
			return fmt.Errorf("%s: %w; again: -seed %d; the members' directories and logs are in %s", c.name, err, seed, dir)
		}
		fmt.Printf("%d puts acknowledged, none lost; %d operations are linearizable; the members are equal; a cluster restored from a snapshot has all; the slowest put took %v\n",
			r.Puts, r.Checked, r.Slowest.Round(time.Millisecond))
		for _, what := range slices.Sorted(maps.Keys(r.Did)) {
			fmt.Printf("  %3d times %s\n", r.Did[what], what)
		}
	}
	fmt.Printf("all took %v\n", time.Since(began).Round(time.Second))
	return os.RemoveAll(dir)
}

// build builds the program of a module on both engines.
func build(ctx context.Context, dir, module, name string) (map[cluster.Engine]string, error) {
	repo, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	r := downstream.Runner{Repo: repo, Dir: dir, Log: io.Discard}
	binaries := map[cluster.Engine]string{}
	for _, e := range []cluster.Engine{cluster.Stock, cluster.Holdfast} {
		fmt.Printf("building %s on %v\n", module, e)
		binaries[e] = filepath.Join(dir, name+"-"+e.String())
		if err := r.Build(ctx, module, e == cluster.Holdfast, map[string]string{".": binaries[e]}); err != nil {
			return nil, err
		}
	}
	return binaries, nil
}
