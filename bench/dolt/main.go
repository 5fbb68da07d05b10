// Command dolt lets bench-blob measure the blob builder of Dolt. It is a module of its own,
// for it has hundreds of dependencies, and it is asked on its standard input:
//
//	blobs STORE SIZE BYTES DIR         as many blobs of SIZE bytes as BYTES hold
//	values STORE COUNT COLUMNS DIR     COUNT small values, each as often as there are columns
//
// STORE is "memory", or "journal", which keeps its file in DIR and is committed, which
// flushes it, every 16 MiB. The answer to each is a line with nanoseconds and allocations of
// one blob, or of the whole for values.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/dolthub/dolt/go/store/chunks"
	"github.com/dolthub/dolt/go/store/hash"
	"github.com/dolthub/dolt/go/store/nbs"
	"github.com/dolthub/dolt/go/store/prolly/tree"
	"github.com/dolthub/dolt/go/store/types"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if err := answer(in.Text()); err != nil {
			fmt.Fprintln(os.Stderr, "dolt:", err)
			os.Exit(1)
		}
	}
}

func answer(line string) error {
	var (
		what, store, dir string
		a, b             int
	)
	if _, err := fmt.Sscan(line, &what, &store, &a, &b, &dir); err != nil {
		return fmt.Errorf("%q: %w", line, err)
	}
	ctx := context.Background()
	cs, err := open(ctx, store, dir)
	if err != nil {
		return err
	}
	defer cs.Close()
	d := builder{ctx: ctx, cs: cs, ns: tree.NewNodeStore(cs), commits: store == "journal"}
	defer d.ns.PurgeCaches()
	switch what {
	case "blobs":
		return d.blobs(a, b)
	case "values":
		return d.values(a, b)
	}
	return fmt.Errorf("%q is not known", what)
}

func open(ctx context.Context, store, dir string) (chunks.ChunkStore, error) {
	switch store {
	case "memory":
		return new(chunks.TestStorage).NewView(), nil
	case "journal":
		warn := func(err error) { fmt.Fprintln(os.Stderr, "dolt:", err) }
		return nbs.NewLocalJournalingStore(ctx, types.Format_DOLT.VersionString(), dir, nbs.NewUnlimitedMemQuotaProvider(), false, warn)
	}
	return nil, fmt.Errorf("there is no store %q", store)
}

const (
	stride   = 4000     // distance of the numbers that make each chunk of a blob new
	together = 16 << 20 // bytes that are committed together
)

// builder builds blobs in a store.
type builder struct {
	ctx     context.Context
	cs      chunks.ChunkStore
	ns      tree.NodeStore
	commits bool
	last    hash.Hash // blob
	pending int       // bytes since the last commit
}

// blobs builds blobs whose every chunk is new.
func (d *builder) blobs(size, total int) error {
	n := max(1, total/size)
	p := make([]byte, size)
	for i, r := 0, rand.New(rand.NewPCG(3, 4)); i < size; i++ {
		p[i] = byte(r.Uint32())
	}
	number := uint64(0)
	return measure(n, func() error {
		for range n {
			for at := 0; at+8 <= size; at += stride {
				number++
				binary.LittleEndian.PutUint64(p[at:], number)
			}
			if err := d.build(p); err != nil {
				return err
			}
		}
		return d.commit()
	})
}

// values builds the small values of a table with so many rows.
func (d *builder) values(rows, columns int) error {
	var p []byte
	return measure(1, func() error {
		for i := range rows {
			p = fmt.Appendf(p[:0], "blob %d", i)
			for range columns {
				if err := d.build(p); err != nil {
					return err
				}
			}
		}
		return d.commit()
	})
}

func (d *builder) build(p []byte) (err error) {
	if _, d.last, err = tree.SerializeBytesToAddr(d.ctx, d.ns, bytes.NewReader(p), len(p)); err != nil {
		return err
	}
	if d.pending += len(p); d.pending < together {
		return nil
	}
	return d.commit()
}

// commit makes the last blob the root of the store, if that is one that has a root.
func (d *builder) commit() error {
	if !d.commits || d.pending == 0 {
		return nil
	}
	d.pending = 0
	root, err := d.cs.Root(d.ctx)
	if err != nil {
		return err
	}
	done, err := d.cs.Commit(d.ctx, d.last, root)
	if err == nil && !done {
		err = errors.New("the root has changed meanwhile")
	}
	return err
}

// measure prints the time and the allocations of one of n.
func measure(n int, fn func() error) error {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	if err := fn(); err != nil {
		return err
	}
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	_, err := fmt.Printf("%g %g\n", float64(took)/float64(n), float64(after.Mallocs-before.Mallocs)/float64(n))
	return err
}
