//go:build linux

// Command bench-content compares a content store of Holdfast with containerd's local store. Each is served on a socket and used by
// containerd's client, which writes many small blobs, with one goroutine and with twenty, and writes and reads a large one. The stores
// are in one directory and are measured in turns.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/content/proxy"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/services/content/contentserver"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ours "holdfast/worker/content"
	"holdfast/worker/server"
)

var (
	dir    = flag.String("dir", "", "directory for the stores; a temporary one if it is empty")
	rounds = flag.Int("rounds", 5, "rounds; in every other one the stores are in reverse order")
	small  = flag.Int("small", 1000, "small blobs of 10 kB")
	large  = flag.Int("large", 1000, "MB of the large blob")
)

const smallSize = 10_000 // bytes

// contender is a store that is served on a socket.
type contender struct {
	name  string
	store content.Store // a client's
	close func() error
	took  map[string][]time.Duration
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-content:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	if err := log.SetLevel("fatal"); err != nil {
		return err
	}
	root := *dir
	if root == "" {
		if root, err = os.MkdirTemp("", "bench-content-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	}
	var list []*contender
	for _, open := range []func(string) (*contender, error){holdfast, containerd} {
		c, err := open(root)
		if err != nil {
			return err
		}
		c.took = map[string][]time.Duration{}
		defer func() { err = errors.Join(err, c.close()) }()
		list = append(list, c)
	}
	for round := range *rounds {
		order := slices.Clone(list)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			if err := c.measure(round); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	report(list)
	return nil
}

// holdfast serves its store with its service.
func holdfast(root string) (*contender, error) {
	store, err := ours.Open(filepath.Join(root, "content.db"), ours.Options{})
	if err != nil {
		return nil, err
	}
	s := server.New(server.Services{Content: store}, slog.Default())
	c, err := serve(filepath.Join(root, "ours.sock"), "holdfast", s.Serve, func() { s.Stop(context.Background()) })
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	stop := c.close
	c.close = func() error { return errors.Join(stop(), store.Close()) }
	return c, nil
}

// containerd serves its local store with its service.
func containerd(root string) (*contender, error) {
	store, err := local.NewStore(filepath.Join(root, "local"))
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	contentapi.RegisterContentServer(s, contentserver.New(store))
	return serve(filepath.Join(root, "theirs.sock"), "containerd local", s.Serve, s.GracefulStop)
}

func serve(path, name string, run func(net.Listener) error, stop func()) (*contender, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- run(l) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20), grpc.MaxCallSendMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	return &contender{name: name, store: proxy.NewContentStore(conn), close: func() error {
		err := conn.Close()
		stop()
		return errors.Join(err, <-served)
	}}, nil
}

// What is measured.
var what = []string{"small blobs, 1 client", "small blobs, 20 clients", "large blob written", "large blob read"}

// measure writes new blobs, and removes them.
func (c *contender) measure(round int) error {
	ctx := context.Background()
	for i, clients := range []int{1, 20} {
		var next sync.Mutex
		n := 0
		blobs := make([][]byte, *small)
		for j := range blobs {
			blobs[j] = random(uint64(round*10+i)<<32|uint64(j), smallSize)
		}
		err := c.timed(what[i], func() error {
			errs := make([]error, clients)
			var all sync.WaitGroup
			for k := range clients {
				all.Go(func() {
					for errs[k] == nil {
						next.Lock()
						j := n
						n++
						next.Unlock()
						if j >= len(blobs) {
							return
						}
						errs[k] = c.write(ctx, fmt.Sprintf("small-%d-%d-%d", round, i, j), blobs[j])
					}
				})
			}
			all.Wait()
			return errors.Join(errs...)
		})
		for _, b := range blobs {
			err = errors.Join(err, c.store.Delete(ctx, digest.FromBytes(b)))
		}
		if err != nil {
			return err
		}
	}
	data := random(uint64(round)<<16|1, *large*1_000_000)
	d := digest.FromBytes(data)
	if err := c.timed(what[2], func() error { return c.write(ctx, fmt.Sprint("large-", round), data) }); err != nil {
		return err
	}
	err := c.timed(what[3], func() error {
		r, err := c.store.ReaderAt(ctx, ocispec.Descriptor{Digest: d, Size: int64(len(data))})
		if err != nil {
			return err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.NewSectionReader(r, 0, int64(len(data)))}, make([]byte, 1<<20))
		if err == nil && n != int64(len(data)) {
			err = io.ErrUnexpectedEOF
		}
		return errors.Join(err, r.Close())
	})
	return errors.Join(err, c.store.Delete(ctx, d))
}

func (c *contender) write(ctx context.Context, ref string, data []byte) error {
	return content.WriteBlob(ctx, c.store, ref, bytes.NewReader(data), ocispec.Descriptor{Size: int64(len(data)), Digest: digest.FromBytes(data)})
}

func (c *contender) timed(name string, fn func() error) error {
	began := time.Now()
	err := fn()
	c.took[name] = append(c.took[name], time.Since(began))
	return err
}

// random makes bytes that no other seed makes.
func random(seed uint64, n int) []byte {
	r := rand.NewPCG(seed, 22)
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func report(list []*contender) {
	fmt.Printf("Medians of %d rounds; %d blobs of %d bytes, and one of %d MB\n\n%-26s", *rounds, *small, smallSize, *large, "")
	for _, c := range list {
		fmt.Printf(" %18s", c.name)
	}
	fmt.Println("   times as fast")
	for _, w := range what {
		fmt.Printf("%-26s", w)
		for _, c := range list {
			fmt.Printf(" %18v", median(c.took[w]).Round(time.Millisecond))
		}
		fmt.Printf("   %.2f\n", float64(median(list[1].took[w]))/float64(median(list[0].took[w])))
	}
}
