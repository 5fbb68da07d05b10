package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	bbolt "go.etcd.io/bbolt"

	"holdfast"
	"holdfast/blob"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

type ident struct {
	vfs.File
	id uint64
}

func (f ident) Identity() uint64 { return f.id }

// held makes transactions write early.
type held struct {
	ident
	n int64
}

func (h held) AppendHeld() int64 { return h.n }

var counts sync.Map

func count(what string) {
	v, _ := counts.LoadOrStore(what, new(atomic.Int64))
	v.(*atomic.Int64).Add(1)
}

type run struct {
	seed    uint64
	rng     *rand.Rand
	ps      int
	mem     *vfs.Mem
	id      uint64
	content []byte
	sumless bool // bbolt wrote it last, and it is large
	lossy   bool
	log     []string
	keyN    atomic.Int64
}

func (r *run) note(f string, a ...any) { r.log = append(r.log, fmt.Sprintf(f, a...)) }

func (r *run) fail(f string, a ...any) {
	msg := fmt.Sprintf(f, a...)
	fmt.Printf("SEED %d ps %d: %s\n  %s\n", r.seed, r.ps, msg, strings.Join(r.log, "\n  "))
	os.WriteFile(fmt.Sprintf("/tmp/sa/fail-%d.db", r.seed), r.content, 0o600)
	count("FAIL")
	panic(errFail)
}

var errFail = errors.New("failed")

// sumKnown tells whether the winning slot has a sum.
func sumKnown(data []byte, ps int) string {
	slots := page.DecodeSlots(data[:ps], data[ps:2*ps])
	best, err := slots.Best()
	if err != nil {
		return err.Error()
	}
	ext, err := extension.Decode(data[best*ps:][:ps])
	if err != nil {
		return err.Error()
	}
	if !ext.Sum.Known {
		return "not known"
	}
	if ext.Trailing != nil && !ext.Trailing.BaseSum.Known {
		return "base not known"
	}
	return ""
}

func (r *run) lookAt(what string, data []byte, id uint64, ro bool, wantSum bool) {
	r.content = data
	if wantSum {
		if why := sumKnown(data, r.ps); why == "no extension" {
			count("plain image")
		} else if why != "" {
			count("nosum")
			r.fail("%s: no sum: %s", what, why)
		}
	}
	mem := vfs.NewMem("copy")
	if _, err := mem.Open().WriteAt(data, 0); err != nil {
		panic(err)
	}
	db, err := holdfast.OpenVFS(ident{mem.Open(), id}, &holdfast.Options{ReadOnly: ro, PreLoadFreelist: true, SettleDelay: -1, NoSeals: r.rng.IntN(4) == 0, OnDamage: holdfast.DamageIsError})
	if err != nil {
		r.fail("%s: open (ro %v): %v", what, ro, err)
	}
	r.check(what, db)
	if !ro && r.rng.IntN(3) == 0 {
		if err := db.Update(func(tx *holdfast.Tx) error { return r.ops(tx, r.rng, 3) }); err != nil {
			r.fail("%s: update of image: %v", what, err)
		}
		r.check(what+" after update", db)
	}
	if err := db.Close(); err != nil {
		r.fail("%s: close: %v", what, err)
	}
	count("image " + strings.Fields(what)[0])
}

func (r *run) check(what string, db *holdfast.DB) {
	err := db.View(func(tx *holdfast.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return nil
	})
	if err != nil {
		r.fail("%s: check: %v", what, err)
	}
	count("check")
}

func (r *run) value(rng *rand.Rand, key []byte) []byte {
	n := 0
	switch rng.IntN(10) {
	case 0:
		n = (1+rng.IntN(6))*r.ps - 32 - len(key) - rng.IntN(12) // full leaf
	case 1:
		n = r.ps + rng.IntN(6*r.ps)
	case 2:
		n = r.ps/4 + rng.IntN(r.ps/2)
	case 3:
		n = 0
	default:
		n = rng.IntN(60)
	}
	return bytes.Repeat([]byte{byte(rng.IntN(256))}, max(n, 0))
}

var names = []string{"a", "b", "c", "d"}

func (r *run) bucket(tx *holdfast.Tx, rng *rand.Rand) (*holdfast.Bucket, error) {
	b, err := tx.CreateBucketIfNotExists([]byte(names[rng.IntN(4)]))
	for err == nil && rng.IntN(3) == 0 {
		b, err = b.CreateBucketIfNotExists([]byte("n" + names[rng.IntN(4)]))
	}
	return b, err
}

func key(rng *rand.Rand) []byte {
	if rng.IntN(8) == 0 {
		return fmt.Appendf(nil, "k%03d%s", rng.IntN(300), strings.Repeat("x", rng.IntN(100)))
	}
	return fmt.Appendf(nil, "k%03d", rng.IntN(300))
}

func (r *run) ops(tx *holdfast.Tx, rng *rand.Rand, n int) error {
	appends := rng.IntN(4) == 0
	for range n {
		b, err := r.bucket(tx, rng)
		if err != nil {
			return err
		}
		switch k := rng.IntN(20); {
		case k < 8:
			kk := key(rng)
			err = b.Put(kk, r.value(rng, kk))
		case k < 11:
			err = b.Delete(key(rng))
		case k == 11:
			err = tx.DeleteBucket([]byte(names[rng.IntN(4)]))
			if errors.Is(err, holdfast.ErrBucketNotFound) {
				err = nil
			}
		case k == 12:
			err = b.DeleteBucket([]byte("n" + names[rng.IntN(4)]))
			if errors.Is(err, holdfast.ErrBucketNotFound) {
				err = nil
			}
		case k == 13:
			d, e := r.bucket(tx, rng)
			if e != nil {
				return e
			}
			if err = b.MoveBucket([]byte("n"+names[rng.IntN(4)]), d); err != nil {
				if tx.Err() != nil {
					return err
				}
				err = nil
			}
		case k == 14:
			_, err = b.NextSequence()
		case k == 15:
			c := b.Cursor()
			for kk, v := c.Seek(key(rng)); kk != nil && rng.IntN(10) > 0 && err == nil; kk, v = c.Next() {
				if v != nil {
					err = c.Delete()
				}
			}
		case k == 16:
			for i := range 20 {
				if err == nil {
					err = b.Put(fmt.Appendf(nil, "m%02d%03d", rng.IntN(10), i), bytes.Repeat([]byte{byte(i)}, rng.IntN(r.ps/3)))
				}
			}
		case k == 17 && appends || appends && rng.IntN(2) == 0:
			ap, e := tx.CreateBucketIfNotExists([]byte("ap"))
			if e != nil {
				return e
			}
			for range 1 + rng.IntN(60) {
				kk := fmt.Appendf(nil, "%016d", r.keyN.Add(1))
				if err = ap.Append(kk, r.value(rng, kk)); err != nil {
					if errors.Is(err, holdfast.ErrUnordered) {
						err = nil
						break
					}
					return err
				}
				if rng.IntN(10) == 0 {
					ap.Get(kk)
				}
				if rng.IntN(20) == 0 {
					if err = ap.Delete(kk); err != nil {
						return err
					}
				}
			}
		case k == 18:
			_, err = tx.Spill(int64(rng.IntN(4 * r.ps)))
			count("spill")
		case k == 19:
			if ap := tx.Bucket([]byte("ap")); ap != nil && rng.IntN(2) == 0 {
				c := ap.Cursor()
				for kk, _ := c.First(); kk != nil && rng.IntN(30) > 0 && err == nil; kk, _ = c.First() {
					err = c.Delete()
				}
			} else if rng.IntN(3) == 0 {
				err = tx.DeleteBucket([]byte("ap"))
				if errors.Is(err, holdfast.ErrBucketNotFound) {
					err = nil
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errMine = errors.New("mine")

func (r *run) blobs(db *holdfast.DB, rng *rand.Rand) error {
	return db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("blobs"))
		if err != nil {
			return err
		}
		var s *blob.Store
		if !blob.IsStore(b) {
			s, err = blob.Create(b, blob.Options{LeafSize: 1024})
		} else {
			s, err = blob.Open(b)
		}
		if err != nil {
			return err
		}
		var refs []blob.Ref
		for ref, err := range s.Roots() {
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		for range 1 + rng.IntN(3) {
			p := make([]byte, rng.IntN(40000))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			if _, err := s.Put(p); err != nil {
				return err
			}
		}
		for _, ref := range refs {
			if rng.IntN(2) == 0 {
				if err := s.Delete(ref); err != nil {
					return err
				}
			}
		}
		if rng.IntN(2) == 0 {
			_, _, err = s.Collect(1 + rng.IntN(100))
		}
		if err == nil && rng.IntN(6) == 0 {
			return errMine
		}
		return err
	})
}

// fault is what the hook does.
type fault struct {
	mu      sync.Mutex
	rng     *rand.Rand
	on      bool
	chance  int
	fatal   bool
	metas   bool
	partial bool
	ps      int64
	fired   atomic.Int64
}

func (f *fault) hook(op vfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || f.rng.IntN(f.chance) != 0 {
		return nil
	}
	switch op.Kind {
	case vfs.KindWrite, vfs.KindGrow:
		if op.Kind == vfs.KindWrite && op.Off < 2*f.ps && !f.metas {
			return nil
		}
		f.fired.Add(1)
		if op.Kind == vfs.KindWrite && f.partial && f.rng.IntN(2) == 0 && op.Off >= 2*f.ps {
			return &vfs.PartialWrite{Bytes: f.rng.Int64N(op.Len + 1), Err: syscall.ENOSPC}
		}
		return syscall.ENOSPC
	case vfs.KindSync:
		if f.fatal {
			f.fired.Add(1)
			return syscall.EIO
		}
	}
	return nil
}

func tolerable(err error) bool {
	return err == nil || errors.Is(err, errMine) || vfs.IsFull(err) || errors.Is(err, holdfast.ErrMaxSizeReached) || errors.Is(err, syscall.EIO) || errors.Is(err, holdfast.ErrStopped)
}

func (r *run) options() *holdfast.Options {
	rng := r.rng
	o := &holdfast.Options{PageSize: r.ps, SettleDelay: -1, OnDamage: holdfast.DamageIsError}
	switch rng.IntN(6) {
	case 0:
		o.StrictCompat = true
	case 1:
		o.NoSync = true
	case 2:
		o.Durability, o.PeriodicDelay = holdfast.Periodic, []time.Duration{time.Hour, time.Millisecond}[rng.IntN(2)]
		if rng.IntN(2) == 0 {
			o.PeriodicBytes = int64(rng.IntN(20)) * int64(r.ps)
		}
	case 3:
		o.DurableBase = true
	}
	if rng.IntN(3) == 0 {
		o.SettleDelay = time.Millisecond
	}
	o.NoSeals = rng.IntN(5) == 0
	o.NoFreelistSync = rng.IntN(2) == 0
	if rng.IntN(6) == 0 {
		o.MaxSize = (100 + rng.IntN(2000)) * r.ps
	}
	if rng.IntN(4) == 0 {
		o.AutoVacuum = &holdfast.AutoVacuum{MinShare: 0.05, MinBytes: 1, Interval: time.Millisecond, MaxBusy: 1, MaxShare: 1}
	}
	return o
}

func (r *run) session() {
	rng := r.rng
	o := r.options()
	fa := &fault{rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), chance: 5 + rng.IntN(40), fatal: rng.IntN(4) == 0, metas: rng.IntN(2) == 0, partial: true, ps: int64(r.ps)}
	faulty := rng.IntN(3) == 0
	r.note("session id %d %v faulty %v fatal %v", r.id, o, faulty, fa.fatal)
	r.content = r.mem.Bytes()
	crash := vfs.NewCrash("x", r.mem.Bytes(), nil)
	useCrash := rng.IntN(2) == 0 && !o.NoSync && o.Durability != holdfast.None
	var file vfs.File = r.mem.Open()
	bytesNow := r.mem.Bytes
	if useCrash {
		file = crash.OpenAhead(64 << 20)
		bytesNow = crash.Bytes
	}
	var f vfs.File = vfs.NewInject(file, fa.hook)
	f = ident{f, r.id}
	if rng.IntN(2) == 0 {
		f = held{ident{f, r.id}, int64(rng.IntN(8) * r.ps)}
	}
	db, err := holdfast.OpenVFS(f, o)
	if errors.Is(err, holdfast.ErrMaxSizeReached) {
		return
	}
	if err != nil {
		r.fail("open: %v", err)
	}
	db.AllocSize = r.ps << rng.IntN(8)
	if rng.IntN(2) == 0 {
		db.AllocSize = r.ps
	}
	r.check("opened", db)
	stopped := false
	unsafePower := o.NoSync
	for step := range 2 + rng.IntN(8) {
		if faulty {
			fa.mu.Lock()
			fa.on = true
			fa.mu.Unlock()
		}
		kind := rng.IntN(10)
		r.note("step %d kind %d", step, kind)
		var wg sync.WaitGroup
		errs := make(chan error, 100)
		writer := func(seed uint64, txs, ops int, batch bool) {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(seed, 7))
			for range txs {
				fn := func(tx *holdfast.Tx) error {
					if err := r.ops(tx, rng, 1+rng.IntN(ops)); err != nil {
						return err
					}
					if rng.IntN(8) == 0 {
						return errMine
					}
					return nil
				}
				var err error
				switch {
				case batch:
					err = db.Batch(fn)
				case rng.IntN(6) == 0:
					var tx *holdfast.Tx
					if tx, err = db.Begin(true); err == nil {
						if err = r.ops(tx, rng, 1+rng.IntN(ops)); err == nil && rng.IntN(3) > 0 {
							if rng.IntN(3) == 0 {
								var buf bytes.Buffer
								if _, err := tx.WriteTo(&buf); err != nil && !tolerable(err) {
									errs <- err
								}
							}
							err = tx.Commit()
						} else if e := tx.Rollback(); err == nil {
							err = e
						}
					}
				default:
					err = db.Update(fn)
				}
				count("commit")
				if !tolerable(err) {
					errs <- err
				}
				if errors.Is(err, holdfast.ErrStopped) {
					return
				}
			}
		}
		done := make(chan struct{})
		beside := func(fn func()) {
			wg.Add(1)
			go func() { defer wg.Done(); fn() }()
		}
		switch {
		case kind < 5:
			n := 1 + rng.IntN(6)
			for range n {
				wg.Add(1)
				go writer(rng.Uint64(), 1+rng.IntN(12), 1+rng.IntN(15), rng.IntN(3) == 0)
			}
		case kind == 5:
			wg.Add(1)
			go writer(rng.Uint64(), 1, 200, false)
		case kind == 6:
			seed := rng.Uint64()
			beside(func() {
				if err := r.blobs(db, rand.New(rand.NewPCG(seed, 3))); !tolerable(err) {
					errs <- err
				}
			})
		case kind == 7:
			was := db.NoSync
			db.NoSync = !was
			if db.NoSync {
				unsafePower = true
			}
			r.note("nosync %v", db.NoSync)
			wg.Add(1)
			go writer(rng.Uint64(), 3, 10, false)
		case kind == 8:
			if err := db.Sync(); !tolerable(err) {
				r.fail("sync: %v", err)
			}
		case kind == 9:
			seed := rng.Uint64()
			pages := 1 + rng.IntN(20)
			beside(func() {
				rng := rand.New(rand.NewPCG(seed, 3))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				_, err := db.Vacuum(ctx, holdfast.VacuumOptions{StepPages: pages, Hurry: true, Progress: func(holdfast.VacuumProgress) {
					if rng.IntN(30) == 0 {
						cancel()
					}
				}})
				if !tolerable(err) && !errors.Is(err, context.Canceled) {
					errs <- fmt.Errorf("vacuum: %w", err)
				}
				count("vacuum")
			})
			for range rng.IntN(4) {
				wg.Add(1)
				go writer(rng.Uint64(), 1+rng.IntN(6), 10, false)
			}
		}
		// readers that check beside writers, and images
		if rng.IntN(2) == 0 {
			beside(func() {
				for range 3 {
					tx, err := db.Begin(false)
					if err != nil {
						return
					}
					time.Sleep(time.Duration(step) * 100 * time.Microsecond)
					for err := range tx.Check() {
						errs <- fmt.Errorf("check beside: %w", err)
					}
					count("check beside")
					tx.Rollback()
				}
			})
		}
		var images [][]byte
		beside(func() {
			for range 2 {
				time.Sleep(200 * time.Microsecond)
				images = append(images, bytesNow())
			}
		})
		wg.Wait()
		close(done)
		close(errs)
		for err := range errs {
			r.content = bytesNow()
			r.fail("step: %v", err)
		}
		fa.mu.Lock()
		fa.on = false
		fa.mu.Unlock()
		r.content = bytesNow()
		r.check("after step", db)
		images = append(images, bytesNow())
		for _, image := range images {
			if rng.IntN(3) == 0 {
				r.lookAt("kill image", image, r.id, rng.IntN(2) == 0, !r.sumless)
			}
			if rng.IntN(3) == 0 {
				r.lookAt("copied image", image, r.id+100, rng.IntN(2) == 0, !r.sumless)
			}
		}
		if useCrash && !unsafePower && rng.IntN(2) == 0 {
			for disk := range crash.Disks(rand.New(rand.NewPCG(rng.Uint64(), 2)), r.ps, 3) {
				r.lookAt("power image", disk, r.id, rng.IntN(2) == 0, false)
				r.lookAt("powercopied image", disk, r.id+100, rng.IntN(2) == 0, false)
			}
		}
		if rng.IntN(4) == 0 {
			var buf bytes.Buffer
			err := db.View(func(tx *holdfast.Tx) error { _, err := tx.WriteTo(&buf); return err })
			if err != nil {
				r.fail("WriteTo: %v", err)
			}
			r.lookAt("written copy", buf.Bytes(), 55, rng.IntN(2) == 0, !r.sumless)
		}
		err := db.Update(func(tx *holdfast.Tx) error { return nil })
		if errors.Is(err, holdfast.ErrStopped) {
			stopped = true
			break
		}
	}
	killed := rng.IntN(3) == 0
	if killed {
		image := bytesNow()
		db.Close()
		r.mem = vfs.NewMem("x")
		r.mem.Open().WriteAt(image, 0)
	} else {
		if faulty && rng.IntN(2) == 0 {
			fa.mu.Lock()
			fa.on = true
			fa.mu.Unlock()
		}
		err = db.Close()
		if err != nil && !stopped && !tolerable(err) {
			r.fail("close: %v", err)
		}
		image := bytesNow()
		if useCrash {
			r.mem = vfs.NewMem("x")
			r.mem.Open().WriteAt(image, 0)
		}
	}
	r.note("end: killed %v stopped %v", killed, stopped)
	r.lookAt("closed", r.mem.Bytes(), r.id, true, !r.sumless)
	if rng.IntN(3) == 0 {
		r.id++
	}
}

func (r *run) outside() {
	rng := r.rng
	dir, err := os.MkdirTemp("/dev/shm", "sa")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "x.db")
	must := func(err error) {
		if err != nil {
			r.content, _ = os.ReadFile(path)
			r.fail("outside: %v", err)
		}
	}
	os.WriteFile(path, r.mem.Bytes(), 0o600)
	cmd := func(args ...string) {
		out, err := exec.Command("/tmp/sa/holdfast", args...).CombinedOutput()
		if err != nil {
			r.content, _ = os.ReadFile(path)
			r.fail("%v: %v\n%s", args, err, out)
		}
		count(args[0])
	}
	switch k := rng.IntN(6); k {
	case 0, 1:
		missing := rng.IntN(2) == 0
		r.note("reseal missing %v", missing)
		_, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{MissingOnly: missing})
		must(err)
		if !missing {
			r.sumless = false
		}
		count("reseal")
	case 2:
		r.note("settle")
		_, err := holdfast.Settle(path, holdfast.SettleOptions{})
		must(err)
		count("settle")
	case 3:
		r.note("bbolt")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: r.ps, NoFreelistSync: rng.IntN(2) == 0, NoSync: true})
		if err != nil { // settle first
			must(err)
		}
		for range 1 + rng.IntN(4) {
			must(db.Update(func(tx *bbolt.Tx) error {
				if rng.IntN(4) == 0 {
					return nil
				}
				b, err := tx.CreateBucketIfNotExists([]byte(names[rng.IntN(4)]))
				if err != nil {
					return err
				}
				for range rng.IntN(20) {
					kk := key(rng)
					if rng.IntN(3) == 0 {
						err = b.Delete(kk)
					} else {
						err = b.Put(kk, r.value(rng, kk))
					}
					if err != nil && !errors.Is(err, bbolt.ErrIncompatibleValue) {
						return err
					}
				}
				return nil
			}))
		}
		must(db.Close())
		r.sumless = true
		count("bbolt")
	case 4:
		r.note("compact")
		cmd("compact", "-o", path+"2", path)
		if rng.IntN(2) == 0 {
			path += "2"
			r.sumless = false
		}
		count("compact")
	case 5:
		cmd("check", path)
	}
	cmd("check", path)
	data, err := os.ReadFile(path)
	must(err)
	r.mem = vfs.NewMem("x")
	r.mem.Open().WriteAt(data, 0)
	r.content = data
	if m, err := page.DecodeMeta(data); err == nil {
		r.ps = int(m.PageSize)
	}
	// the identity has changed: a real file's; closed files name none
	r.id = r.id + 1000
}

func one(seed uint64, size int) {
	r := &run{seed: seed, rng: rand.New(rand.NewPCG(seed, 99)), id: 1}
	defer func() {
		if e := recover(); e != nil && e != any(errFail) {
			panic(e)
		}
	}()
	r.ps = 512 << r.rng.IntN(5)
	if r.rng.IntN(20) == 0 {
		r.ps = 65536
	}
	r.mem = vfs.NewMem("x")
	if r.ps == 512 || r.rng.IntN(6) == 0 {
		dir, _ := os.MkdirTemp("/dev/shm", "sa")
		path := filepath.Join(dir, "x.db")
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: r.ps})
		if err != nil {
			r.fail("bbolt: %v", err)
		}
		db.Close()
		data, _ := os.ReadFile(path)
		os.RemoveAll(dir)
		r.mem.Open().WriteAt(data, 0)
	}
	for range 2 + r.rng.IntN(5) {
		wasSumless := r.sumless
		if r.sumless { // small ones get it at opening
			r.sumless = true
		}
		_ = wasSumless
		r.session()
		if r.rng.IntN(2) == 0 {
			r.outside()
		}
	}
	count("seed")
}

func main() {
	from := flag.Uint64("from", 1, "")
	n := flag.Uint64("n", 100, "")
	dur := flag.Duration("d", time.Minute, "")
	flag.Parse()
	end := time.Now().Add(*dur)
	var next atomic.Uint64
	next.Store(*from)
	var wg sync.WaitGroup
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				s := next.Add(1) - 1
				if s >= *from+*n || time.Now().After(end) {
					return
				}
				done := make(chan struct{})
				go func() {
					select {
					case <-done:
					case <-time.After(60 * time.Second):
						panic(fmt.Sprintf("seed %d hangs", s))
					}
				}()
				one(s, 0)
				close(done)
			}
		}()
	}
	wg.Wait()
	counts.Range(func(k, v any) bool { fmt.Println(k, v.(*atomic.Int64).Load()); return true })
}
