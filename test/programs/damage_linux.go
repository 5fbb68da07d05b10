package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/test/cluster"
)

// A Damaged is a program whose databases are damaged, one after the other and each in all ways, before it is started on bbolt and on
// Holdfast. Wherever it starts on bbolt it must start on Holdfast, and work where it works.
type Damaged struct {
	name  string
	root  string // all that it keeps
	start func(context.Context, cluster.Engine) error
	works func() error
	end   func() error // after each start, whatever it gave: nothing runs, nothing is mounted
	log   io.Writer
}

// damagedPatience is how long a program has to start: none that starts takes longer.
const damagedPatience = 4 * time.Second

// A damage changes the bytes of a database. Pages are of 4 KiB: all these programs run on such machines here.
type damage struct {
	name string
	do   func(b []byte) []byte
}

const damagedPage = 4096

// damages are those that are done to a file of so many bytes.
func damages(size int) []damage {
	fill := func(from, to int, with func(i int) byte) func([]byte) []byte {
		return func(b []byte) []byte {
			for i := from; i < min(to, len(b)); i++ {
				b[i] = with(i)
			}
			return b
		}
	}
	zero := func(int) byte { return 0 }
	noise := func(i int) byte { return byte(rand.NewPCG(1, uint64(i)).Uint64()) }
	list := []damage{
		{"emptied", func(b []byte) []byte { return b[:0] }},
		{"one page left", func(b []byte) []byte { return b[:damagedPage] }},
		{"two pages left", func(b []byte) []byte { return b[:2*damagedPage] }},
		{"half left", func(b []byte) []byte { return b[:len(b)/2] }},
		{"page 0 zeroed", fill(0, damagedPage, zero)},
		{"page 1 zeroed", fill(damagedPage, 2*damagedPage, zero)},
		{"both metas zeroed", fill(0, 2*damagedPage, zero)},
		{"both metas noise", fill(0, 2*damagedPage, noise)},
		{"all behind the metas zeroed", fill(2*damagedPage, size, zero)},
		{"all behind the metas noise", fill(2*damagedPage, size, noise)},
		{"all noise", fill(0, size, noise)},
	}
	for page := 2; page < min(size/damagedPage, 12); page++ {
		at := page * damagedPage
		list = append(list,
			damage{fmt.Sprintf("page %d zeroed", page), fill(at, at+damagedPage, zero)},
			damage{fmt.Sprintf("page %d noise", page), fill(at, at+damagedPage, noise)},
			damage{fmt.Sprintf("page %d, its flags and count", page), fill(at+8, at+12, noise)},
			damage{fmt.Sprintf("page %d, its first element", page), fill(at+16, at+32, noise)},
		)
	}
	return list
}

// A level is how far a program gets with a damage.
type level int

const (
	fails level = iota
	starts
	works
)

func (l level) String() string { return [...]string{"does not start", "starts", "works"}[l] }

// A Verdict is what became of all damages.
type Verdict struct {
	Tried         int
	Starts, Works [2]int // by engine; what works has started, too
	Better        int    // gets further on Holdfast
	Explained     int    // gets further on bbolt, as it should be
	Worse         []string
}

// explained are errors with which a program ends on Holdfast, and may go on with bbolt.
var explained = []string{
	"the freelist names page", // that is not in the file: bbolt starts, gives it away later, and writes there
}

// Compare tries all damages. A Verdict with something Worse is an error, too.
func (x *Damaged) Compare(ctx context.Context) (*Verdict, error) {
	pristine := x.root + ".pristine"
	if err := os.Rename(x.root, pristine); err != nil {
		return nil, err
	}
	defer os.RemoveAll(pristine)
	v := &Verdict{}
	err := filepath.WalkDir(pristine, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !isDatabase(path, entry) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(pristine, path)
		if err != nil {
			return err
		}
		for _, d := range damages(int(info.Size())) {
			if err := x.try(ctx, v, pristine, rel, d); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(v.Worse) > 0 {
		err = fmt.Errorf("%s gets further on bbolt than on Holdfast with:\n  %s", x.name, strings.Join(v.Worse, "\n  "))
	}
	return v, err
}

// isDatabase tells whether a file is one by what it says of itself.
func isDatabase(path string, entry fs.DirEntry) bool {
	if !entry.Type().IsRegular() || filepath.Ext(path) != ".db" && filepath.Base(path) != "db" {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 20)
	_, err = io.ReadFull(f, head)
	return err == nil && bytes.Equal(head[16:], []byte{0xed, 0xda, 0x0c, 0xed}) // the magic number of a meta
}

// try does one damage to one database on both engines.
func (x *Damaged) try(ctx context.Context, v *Verdict, pristine, rel string, d damage) error {
	var got [2]level
	var errs [2]error
	for _, e := range []cluster.Engine{cluster.Stock, cluster.Holdfast} {
		if err := run(ctx, "cp", "-a", pristine, x.root); err != nil {
			return err
		}
		path := filepath.Join(x.root, rel)
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, d.do(b), 0o600); err != nil {
			return err
		}
		if errs[e] = x.start(ctx, e); errs[e] == nil {
			got[e] = starts
			v.Starts[e]++
			if errs[e] = x.works(); errs[e] == nil {
				got[e] = works
				v.Works[e]++
			}
		}
		if err := errors.Join(x.end(), os.RemoveAll(x.root)); err != nil {
			return err
		}
	}
	v.Tried++
	switch {
	case got[cluster.Stock] > got[cluster.Holdfast] && slices.ContainsFunc(explained, func(text string) bool {
		return strings.Contains(errs[cluster.Holdfast].Error(), text)
	}):
		v.Explained++
	case got[cluster.Stock] > got[cluster.Holdfast]:
		v.Worse = append(v.Worse, fmt.Sprintf("%s, %s: %v", rel, d.name, errs[cluster.Holdfast]))
	case got[cluster.Stock] < got[cluster.Holdfast]:
		v.Better++
	}
	fmt.Fprintf(x.log, "%s, %s: bbolt %v, Holdfast %v\n", rel, d.name, got[cluster.Stock], got[cluster.Holdfast])
	for e, err := range errs {
		if err != nil {
			fmt.Fprintf(x.log, "    %v: %.200v\n", cluster.Engine(e), err)
		}
	}
	return nil
}

// Damaged prepares BuildKit for it: it has built once.
func (x *BuildKit) Damaged(ctx context.Context) (*Verdict, error) {
	b, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return nil, err
	}
	if err := b.buildRight(ctx, "whole"); err != nil {
		return nil, errors.Join(err, b.close())
	}
	b.Stop()
	if err := unmountBelow(b.dir); err != nil {
		return nil, err
	}
	v, err := (&Damaged{
		name: "BuildKit", root: b.root(), log: x.Log, start: b.damaged(x.Bin),
		works: func() error { return b.buildRight(ctx, "damaged") },
		end: func() error {
			b.Kill()
			return unmountBelow(b.dir)
		},
	}).Compare(ctx)
	return v, errors.Join(err, b.close())
}

// Damaged prepares containerd for it: it has an image, of which a container has run.
func (x *Containerd) Damaged(ctx context.Context) (*Verdict, error) {
	c, err := x.begin(ctx, cluster.Stock)
	if err != nil {
		return nil, err
	}
	use := func(id string) error { return errors.Join(c.load(ctx, x.Image), c.container(ctx, id)) }
	if err := use("whole"); err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.Stop()
	v, err := (&Damaged{
		name: "containerd", root: c.root(), log: x.Log, start: c.damaged(x.Bin),
		works: func() error { return use("damaged") },
		end: func() error {
			c.Kill()
			return errors.Join(c.endShims(), unmountBelow(c.dir), os.RemoveAll(filepath.Join(c.dir, "state")))
		},
	}).Compare(ctx)
	return v, errors.Join(err, c.close())
}

// Damaged prepares a member of etcd for it: it has some keys.
func (x *Etcd) Damaged(ctx context.Context) (*Verdict, error) {
	dir, err := os.MkdirTemp(x.Disk.Dir, "etcd")
	if err != nil {
		return nil, err
	}
	c, m, err := x.member(ctx, cluster.Stock, dir)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := x.load(ctx, m, load{clients: 16, total: 2000, size: 1024, keys: 500}); err != nil {
		return nil, err
	}
	if err := m.Put(ctx, "whole", "yes"); err != nil {
		return nil, err
	}
	m.Stop()
	v, err := (&Damaged{
		name: "etcd", root: m.Dir, log: x.Log,
		start: func(ctx context.Context, e cluster.Engine) error {
			m.Engine = e
			if err := m.Start(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, damagedPatience)
			defer cancel()
			return c.Await(ctx)
		},
		works: func() error {
			got, err := m.Get(ctx, "whole")
			if err == nil && got != "yes" {
				err = fmt.Errorf("the key whole is %q", got)
			}
			return errors.Join(err, m.Put(ctx, "damaged", "yes"))
		},
		end: func() error {
			m.Kill()
			return nil
		},
	}).Compare(ctx)
	return v, errors.Join(err, os.RemoveAll(dir))
}

// damaged starts the daemon with the binary of either engine.
func (d *daemon) damaged(bin Bin) func(context.Context, cluster.Engine) error {
	name := filepath.Base(d.Binary)
	return func(ctx context.Context, e cluster.Engine) error {
		d.Binary, d.patience = filepath.Join(bin[e], name), damagedPatience
		return d.start(ctx)
	}
}
