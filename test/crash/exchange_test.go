package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/blob"
	"holdfast/blob/exchange"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
	"holdfast/test/soak"
)

// exchangeMinimums are the disks that an ordinary run of TestExchangePowerCut must have tried: a fifth of what it tries, or less, since
// that depends on the seeds, and on when a connection breaks.
var exchangeMinimums = map[string]int{
	"push":                30,
	"pull":                30,
	"held before":         30,
	"an ingest":           8,
	"goes on after a cut": 30,
	"compressed":          30,
	"encrypted":           30,
	"resumed":             20,
	"reused":              2,
}

const exchangeLease = "crash"

// TestExchangePowerCut copies blobs from one store to another, in exchanges whose connection breaks somewhere, cuts the power of the
// receiver at the boundaries between calls on its file, and opens what may be left: the store is sound, and each blob that was said
// to be held is held by the lease, and by nothing else, with its content. An exchange that goes on there, with any of these disks,
// brings all blobs and leaves no ingest; after the release of the lease and a Collect the store is empty.
// HOLDFAST_SEED and HOLDFAST_HISTORIES work as for TestPowerCut.
func TestExchangePowerCut(t *testing.T) {
	runSeeds(t, 8, exchangeMinimums, func(seed uint64, tally *soak.Tally) ([]string, error) {
		r := newExchangeRun(seed, tally)
		err := r.do()
		return r.log, err
	})
}

// exchangeRun is a history. What follows mu is looked at where the disk calls back.
type exchangeRun struct {
	rng      *rand.Rand
	tally    *soak.Tally
	options  blob.Options
	source   *holdfast.DB
	refs     []blob.Ref
	contents map[blob.Ref]string
	log      []string
	disk     *vfs.Crash
	db       *holdfast.DB

	mu        sync.Mutex
	verifying *rand.Rand
	features  []string
	held      map[blob.Ref]bool // of which the exchange has said so
	fault     error
	cut       int // the boundary at which the power fails in this exchange; 0: at none
	calls     int
	chosen    []byte // what it left
	cuts      int
}

func newExchangeRun(seed uint64, tally *soak.Tally) *exchangeRun {
	rng := rand.New(rand.NewPCG(seed, 21))
	r := &exchangeRun{rng: rng, tally: tally, verifying: rand.New(rand.NewPCG(seed, 22))}
	r.held, r.contents = map[blob.Ref]bool{}, map[blob.Ref]string{}
	r.options = blob.Options{LeafSize: blob.MinLeafSize, Algorithm: blob.Algorithm(1 + rng.IntN(2)), Chunking: blob.Chunking(1 + rng.IntN(2))}
	if seed%2 == 0 {
		r.options.Compression = blob.Zstd
	}
	if seed%4 < 2 {
		r.options.Key, r.options.Algorithm = blobKey, blob.KeyedBLAKE3
	}
	return r
}

func (r *exchangeRun) open(disk []byte) (err error) {
	r.disk = vfs.NewCrash("crash.db", disk, r.event)
	if r.db, err = bridge.Open(r.disk.Open(), &holdfast.Options{PageSize: blobPageSize, SettleDelay: -1}); err == nil {
		hook.WriteEarly(r.db, 16<<10, 0)
	}
	return err
}

// makeStore makes a store in db, with contents, if there are any.
func (r *exchangeRun) makeStore(db *holdfast.DB, contents ...string) error {
	return db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucket([]byte("blobs"))
		if err != nil {
			return err
		}
		s, err := blob.Create(b, r.options)
		if err != nil {
			return err
		}
		s.InlineUpTo(-1)
		for _, content := range contents {
			ref, err := s.Put([]byte(content))
			if err != nil {
				return err
			}
			r.contents[ref] = content
			r.refs = append(r.refs, ref)
		}
		return nil
	})
}

// do runs the history. Until the store has been made, nothing is verified.
func (r *exchangeRun) do() (err error) {
	if r.source, err = bridge.Open(vfs.NewMem("source.db").Open(), &holdfast.Options{PageSize: blobPageSize, NoSync: true}); err != nil {
		return err
	}
	base := r.text(200 << 10)
	contents := []string{base, base[:150<<10] + "changed", "short", base[:140<<10] + r.text(30<<10), r.text(5000)}
	if err := r.makeStore(r.source, contents...); err != nil {
		return errors.Join(err, r.source.Close())
	}
	r.chosen = []byte{}
	if err := r.open(nil); err != nil {
		return errors.Join(err, r.source.Close())
	}
	if err = r.makeStore(r.db); err == nil {
		r.set(func() { r.chosen = nil })
		for i := 0; i < 8 && err == nil; i++ {
			err = r.step()
		}
	}
	if err == nil {
		err = r.resume(r.db)
	}
	return errors.Join(err, r.db.Close(), r.source.Close())
}

// text gives n bytes, some of which can be compressed.
func (r *exchangeRun) text(n int) string {
	p := make([]byte, n)
	for i := range p {
		if p[i] = byte(r.rng.Uint32()); i/5000%3 > 0 {
			p[i] = 'a' + p[i]%16
		}
	}
	return string(p)
}

// set changes what the disk looks at.
func (r *exchangeRun) set(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn()
}

// step is an exchange whose connection may break, or a Collect. If the power failed in it the history goes on with what that left.
func (r *exchangeRun) step() error {
	to, limit := "push", int64(-1)
	if r.rng.IntN(2) == 0 {
		to = "pull"
	}
	if r.rng.IntN(3) > 0 {
		limit = r.rng.Int64N(350 << 10)
	}
	r.set(func() {
		r.calls, r.cut, r.features = 0, 0, []string{to}
		if r.options.Compression != blob.NoCompression {
			r.features = append(r.features, "compressed")
		}
		if r.options.Key != nil {
			r.features = append(r.features, "encrypted")
		}
		if r.rng.IntN(2) == 0 {
			r.cut = 1 + r.rng.IntN(12)
		}
		r.log = append(r.log, fmt.Sprintf("%s, broken after %d bytes, cut at call %d", to, limit, r.cut))
	})
	some := r.refs
	if r.rng.IntN(2) == 0 {
		some = some[r.rng.IntN(len(some)):][:1]
	}
	_, err := r.exchange(r.db, to, some, limit, func(ref blob.Ref) {
		r.set(func() {
			if r.chosen == nil { // what is said after the cut does not count
				r.held[ref] = true
			}
		})
	})
	r.mu.Lock()
	chosen, fault := r.chosen, r.fault
	r.mu.Unlock()
	if fault != nil || err != nil && limit < 0 {
		return errors.Join(fault, err)
	}
	if r.rng.IntN(4) == 0 {
		if _, err := blob.Collect(context.Background(), r.db, storeOf, blob.CollectOptions{}); err != nil {
			return err
		}
	}
	if chosen == nil {
		return nil
	}
	if err := r.db.Close(); err != nil {
		return err
	}
	if err := r.open(chosen); err != nil {
		return err
	}
	if err := r.sound(r.db, r.held); err != nil {
		return err
	}
	r.set(func() { r.chosen, r.cuts = nil, r.cuts+1 })
	return nil
}

// broken is a connection of which limit bytes can be read.
type broken struct {
	net.Conn
	left int64 // below 0: all
}

func (c *broken) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errors.Join(errInjected, c.Conn.Close())
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.Conn.Read(p)
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// exchange copies blobs into db over a connection of which it reads limit bytes.
func (r *exchangeRun) exchange(db *holdfast.DB, to string, refs []blob.Ref, limit int64, held func(blob.Ref)) (stats exchange.Stats, err error) {
	here, there := net.Pipe()
	here, there = &broken{here, limit}, &broken{there, -1} // here is the receiver
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := exchange.Options{Lease: exchangeLease, Blob: func(ref blob.Ref, err error) {
		if err == nil {
			held(ref)
		}
	}}
	ended := make(chan error)
	if to == "push" {
		go func() {
			err := exchange.Serve(ctx, here, db, storeOf, exchange.Options{})
			ended <- errors.Join(err, here.Close())
		}()
		stats, err = exchange.Push(ctx, there, r.source, storeOf, refs, o)
		return stats, errors.Join(err, there.Close(), <-ended)
	}
	go func() {
		err := exchange.Serve(ctx, there, r.source, storeOf, exchange.Options{ReadOnly: true})
		ended <- errors.Join(err, there.Close())
	}()
	stats, err = exchange.Pull(ctx, here, db, storeOf, refs, o)
	return stats, errors.Join(err, here.Close(), <-ended)
}

// event is called after each call that changed the file.
func (r *exchangeRun) event(vfs.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != nil || r.chosen != nil {
		return
	}
	r.calls++
	if r.calls != r.cut && r.verifying.IntN(6) > 0 {
		return
	}
	n := 0
	for disk := range r.disk.Disks(r.verifying, blobPageSize, 1) {
		if n++; n > 3 {
			break
		}
		if r.calls == r.cut {
			r.chosen = disk
		}
		r.tally.Add("disks")
		r.tally.Add(r.features...)
		if r.cuts > 0 {
			r.tally.Add("goes on after a cut")
		}
		if len(r.held) > 0 {
			r.tally.Add("held before")
		}
		if err := r.try(disk); err != nil {
			r.fault = fmt.Errorf("power cut after call %d, disk %d: %w", r.calls, n, err)
			return
		}
	}
}

// try opens a disk, verifies it, and perhaps goes on with the exchange there.
func (r *exchangeRun) try(disk []byte) error {
	db, err := bridge.Open(vfs.NewCrash("disk.db", disk, nil).Open(), &holdfast.Options{PageSize: blobPageSize, SettleDelay: -1})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = r.sound(db, r.held)
	if err == nil && r.verifying.IntN(3) == 0 {
		r.tally.Add("resumed")
		err = r.resume(db)
	}
	return errors.Join(err, db.Close())
}

// sound verifies file and store: the lease holds at least the blobs of held, and what it holds has its content and no other user.
func (r *exchangeRun) sound(db *holdfast.DB, held map[blob.Ref]bool) error {
	return db.View(func(tx *holdfast.Tx) error {
		for fault := range tx.Check() {
			return fault
		}
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		leased := map[blob.Ref]bool{}
		for ref, err := range s.Leased(exchangeLease) {
			if err != nil {
				return err
			}
			leased[ref] = true
			var b bytes.Buffer
			if reader, err := s.Reader(ref); err != nil {
				return err
			} else if _, err := reader.WriteTo(&b); err != nil || b.String() != r.contents[ref] {
				return fmt.Errorf("the blob of %d bytes has %d others: %w", ref.Size(), b.Len(), err)
			}
		}
		for ref := range held {
			if !leased[ref] {
				return fmt.Errorf("the blob of %d bytes was said to be held, and is not", ref.Size())
			}
		}
		for _, err := range s.Ingests() {
			if err != nil {
				return err
			}
			r.tally.Add("an ingest")
		}
		var problems []error
		none := func(func(blob.Ref, error) bool) {} // the lease is the only user
		_, err = s.Check(context.Background(), blob.CheckOptions{Data: true, Roots: none}, func(p blob.Problem) error {
			problems = append(problems, errors.New(p.String()))
			return nil
		})
		return errors.Join(append(problems, err)...)
	})
}

// resume goes on to the end: then everything is held, and after a release nothing is left.
func (r *exchangeRun) resume(db *holdfast.DB) error {
	held := map[blob.Ref]bool{}
	stats, err := r.exchange(db, []string{"push", "pull"}[r.verifying.IntN(2)], r.refs, -1, func(ref blob.Ref) { held[ref] = true })
	if err == nil && (len(held) != len(r.contents) || stats.Blobs != int64(len(r.refs))) {
		err = fmt.Errorf("%d blobs are held, of %d: %+v", len(held), len(r.contents), stats)
	}
	if err == nil {
		err = r.sound(db, held)
	}
	if err != nil {
		return fmt.Errorf("resumed: %w", err)
	}
	if stats.Reused > 0 {
		r.tally.Add("reused")
	}
	err = db.Update(func(tx *holdfast.Tx) error {
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		for info, err := range s.Ingests() {
			return fmt.Errorf("an ingest is left: %v, %w", info, err)
		}
		l, err := s.Lease(exchangeLease, time.Time{})
		if err != nil {
			return err
		}
		return l.Release()
	})
	if err == nil {
		_, err = blob.Collect(context.Background(), db, storeOf, blob.CollectOptions{})
	}
	if err != nil {
		return err
	}
	return db.View(func(tx *holdfast.Tx) error {
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		if u, err := s.Usage(); err != nil || u.Leaves+u.Nodes+u.Dead != 0 {
			return fmt.Errorf("after a Collect there are %+v: %w", u, err)
		}
		return nil
	})
}
