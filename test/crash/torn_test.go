package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
	"holdfast/test/soak"
)

// Of 60 copies that were made with cp while the file was in use none was refused, and
// 47 were silently wrong: the newest state was not whole in the copy, and so the one
// before was believed, without a look at its pages.
//
// The histories are the same in each run, but for those of several writers. No copy that bbolt opens at a
// state that was committed, and that is not older than its newest meta page says, is opened at another, or
// refused. None is silently wrong and passes the check, but where files have no identity
// (docs/decisions/008-seal-sum.md).
func TestTornCopies(t *testing.T) {
	tally := &soak.Tally{}
	seeds, chosen := soak.Seeds(t, 1, tornHistories)
	dir := t.TempDir()
	for _, seed := range seeds {
		if err := tornHistory(seed, dir, tally); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for line := range strings.SplitSeq(tally.String(), ", ") {
		t.Log(line)
	}
	if chosen {
		return
	}
	if n := tally.Get(isRight); n < tornHistories/8 {
		t.Errorf("%d copies are right: the test tests little", n)
	}
	if n := tally.Get(isRefused); n < tornHistories/3 {
		t.Errorf("%d copies are refused", n)
	}
	if n := tally.Get(isWrong); n > 0 {
		t.Errorf("%d copies are silently wrong", n)
	}
	// What is found without a look at the whole of a copy.
	if n := tally.Get(unknown + isWrong); n > tornHistories/8 {
		t.Errorf("%d copies are silently wrong where files have no identity", n)
	}
	if n := tally.Get("full "+unknown+isWrong) + tally.Get("settled "+unknown+isWrong); n > tornHistories/72 {
		t.Errorf("%d copies are silently wrong where files have no identity, of those that were written with one flush", n)
	}
}

const tornHistories = 144

// torn is a history in which a file is copied while it is written.
type torn struct {
	rng    *rand.Rand
	page   int
	mode   string
	order  int
	db     *holdfast.DB
	copier *copier
	tally  *soak.Tally

	mu     sync.Mutex
	states map[string]page.TxID // each that a transaction has made, and its number
	named  page.TxID            // the least that the copy may be opened at: its newest meta page says that this one was durable
}

// The ways in which the file is written.
var tornModes = []string{"full", "groups", "settled", "periodic", "strict", "nosync"}

// tornHistory writes a file that is copied meanwhile, and verifies the copy.
func tornHistory(seed uint64, dir string, tally *soak.Tally) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	h := &torn{
		rng: rng, page: 1024 << rng.IntN(3), mode: tornModes[seed%uint64(len(tornModes))],
		order: int(seed/uint64(len(tornModes))) % orders, tally: tally, states: map[string]page.TxID{},
	}
	mem := vfs.NewMem("torn.db")
	h.copier = &copier{file: mem.Open(), identity: 1, size: h.page, rng: rand.New(rand.NewPCG(seed, 8))}
	options := &holdfast.Options{PageSize: h.page, SettleDelay: -1, StrictCompat: h.mode == "strict", PeriodicDelay: time.Hour}
	if h.mode == "periodic" {
		options.Durability = holdfast.Periodic
	}
	db, err := bridge.Open(copiedFile{mem.Open(), h.copier}, options)
	if err != nil {
		return err
	}
	h.db = db
	if err := h.begun(); err != nil { // a new database, which is the durable one until the first flush
		return errors.Join(err, db.Close())
	}
	db.AllocSize = 16 << 10 // it grows now and then
	if err := h.fill(); err != nil {
		return errors.Join(err, h.db.Close())
	}
	if rng.IntN(3) == 0 { // what closing leaves is another thing to begin with
		if err := db.Close(); err != nil {
			return err
		}
		if h.db, err = bridge.Open(copiedFile{mem.Open(), h.copier}, options); err != nil {
			return err
		}
		if err := h.begun(); err != nil { // Close has given it another number
			return errors.Join(err, h.db.Close())
		}
	}
	if err := h.write(); err != nil {
		return errors.Join(err, h.db.Close())
	}
	if err := h.verify(h.copier.copied, dir); err != nil {
		return errors.Join(fmt.Errorf("%s, copied %s: %w", h.mode, orderNames[h.order], err), h.db.Close())
	}
	return h.db.Close()
}

// begun notes the state with which the database was opened.
func (h *torn) begun() error {
	return h.db.View(func(tx *holdfast.Tx) error {
		content, err := contentOf(tx)
		h.states[content] = page.TxID(tx.ID())
		return err
	})
}

// fill makes a file of some hundred pages.
func (h *torn) fill() error {
	for b := range 2 + h.rng.IntN(3) {
		e := Edit{Op: "put", Path: fmt.Sprintf("b%d", b), N: 100 + h.rng.IntN(600), Size: 20 + h.rng.IntN(200), Letter: 'p'}
		if err := h.commit([]Edit{e}); err != nil {
			return err
		}
	}
	return nil
}

// write begins a copy of the file, and goes on writing until it is copied.
func (h *torn) write() error {
	if h.rng.IntN(2) == 0 {
		if err := h.db.Sync(); err != nil {
			return err
		}
	}
	h.db.NoSync = h.mode == "nosync"
	if h.rng.IntN(4) > 0 {
		for range h.rng.IntN(20) {
			if err := h.one(h.rng); err != nil {
				return err
			}
		}
	}
	// The copy takes some commits or many.
	if err := h.copier.begin(h.order, 1+h.rng.IntN(16), []float64{0.01, 0.03, 0.1, 0.3, 1}[h.rng.IntN(5)]); err != nil {
		return err
	}
	for n := 0; !h.copier.done() && n < 400; n++ {
		if err := h.some(); err != nil {
			return err
		}
	}
	for !h.copier.done() { // while nothing writes any more
		h.copier.often = 1
		if err := h.copier.step(); err != nil {
			return err
		}
	}
	return nil
}

// some commits one transaction, or several at once.
func (h *torn) some() error {
	if h.mode == "settled" || h.mode == "periodic" && h.rng.IntN(8) == 0 {
		if err := h.db.Sync(); err != nil {
			return err
		}
	}
	if h.mode != "groups" {
		return h.one(h.rng)
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		rng := rand.New(rand.NewPCG(h.rng.Uint64(), 9))
		wg.Go(func() { errs[i] = h.one(rng) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// one commits a transaction.
func (h *torn) one(rng *rand.Rand) error {
	g := &generator{r: rng, page: h.page}
	edits := g.edits()
	for range rng.IntN(4) {
		edits = append(edits, Edit{Op: "put", Path: fmt.Sprintf("b%d", rng.IntN(3)), Key: rng.IntN(700), N: 1 + rng.IntN(2), Size: rng.IntN(250), Letter: byte('a' + rng.IntN(26))})
	}
	return h.commit(edits)
}

func (h *torn) commit(edits []Edit) error {
	return h.db.Update(func(tx *holdfast.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("count"))
		if err != nil {
			return err
		}
		if _, err := b.NextSequence(); err != nil {
			return err
		}
		if err := applyTo(tx, edits); err != nil {
			return err
		}
		content, err := contentOf(tx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.states[content] = page.TxID(tx.ID())
		return err
	})
}

// verify opens the copy, by both engines.
func (h *torn) verify(data []byte, dir string) error {
	h.named = h.namedBy(data)
	stock := h.byStock(data, dir)
	var verdicts [2]string // where files have no identity, and where they have one
	for id := range verdicts {
		ours, writable := h.byUs(data, uint64(2*id), true), h.byUs(data, uint64(2*id), false)
		// A writer also looks which pages are free, and may meet more damage.
		if (ours == isRight) != (writable == isRight) {
			return fmt.Errorf("opened for reading it is %s, and for writing %s", ours, writable)
		}
		if ours == isPassed || writable == isPassed {
			return errors.New(isPassed)
		}
		if ours == isWrong && id != 0 && inUse(data, h.page) {
			return errors.New("silently wrong, and its meta page says that a program has it open")
		}
		if stock == isRight && ours != isRight {
			return fmt.Errorf("it is %s, and bbolt opens a state that was committed", ours)
		}
		verdicts[id] = ours
	}
	before, ours := verdicts[0], verdicts[1]
	if before != ours && (before == isRight || ours != isRefused) {
		return fmt.Errorf("where files have an identity it is %s, else %s", ours, before)
	}
	h.tally.Add(ours, h.mode+": "+ours, orderNames[h.order]+": "+ours, "by bbolt: "+stock,
		unknown+before, h.mode+" "+unknown+before)
	return nil
}

// unknown begins the counts of copies that are opened where files have no identity.
const unknown = "without an identity: "

// Verdicts on a copy.
const (
	isRight   = "right"
	isRefused = "refused"
	isNoticed = "noticed when it is read"
	isWrong   = "silently wrong" // but Check tells: it was begun before the first commit after an opening
	isPassed  = "silently wrong, and passes the check"
)

func (h *torn) verdict(content string, err error) string {
	switch {
	case errors.As(err, new(*holdfast.CorruptError)):
		return isNoticed
	case err != nil: // what only this test knows
		return isWrong
	}
	if n, ok := h.states[content]; ok && n >= h.named {
		return isRight
	}
	return isWrong
}

// namedBy is the number of the state that was durable when the newest meta page of a copy was written, or,
// if that is plain, of which it is; 0 if it does not say. A root page that was copied before it was written
// again leads to an older state, all of which may be there: the commits since are lost.
func (h *torn) namedBy(data []byte) page.TxID {
	slots := page.DecodeSlots(data[:h.page], data[h.page:2*h.page])
	best, err := slots.Best()
	if err != nil {
		return 0
	}
	ext, err := extension.Decode(data[best*h.page:][:h.page])
	switch {
	case err != nil:
		return 0
	case ext.Trailing != nil:
		return ext.Trailing.Base
	}
	return ext.Tx
}

// inUse tells whether the newest meta page of a copy names the file in which it was written.
func inUse(data []byte, size int) bool {
	slots := page.DecodeSlots(data[:size], data[size:2*size])
	best, err := slots.Best()
	if err != nil {
		return true
	}
	ext, err := extension.Decode(data[best*size:][:size])
	return err == nil && ext.File != 0
}

// passes tells whether Check finds nothing.
func passes(db *holdfast.DB) bool {
	sound := true
	err := db.View(func(tx *holdfast.Tx) error {
		for range tx.Check() {
			sound = false
		}
		return nil
	})
	return sound && err == nil
}

func (h *torn) byUs(data []byte, identity uint64, readOnly bool) string {
	mem := vfs.NewMem("copy.db")
	if _, err := mem.Open().WriteAt(data, 0); err != nil {
		panic(err)
	}
	file := copiedFile{mem.Open(), &copier{size: h.page, identity: identity}}
	db, err := bridge.Open(file, &holdfast.Options{ReadOnly: readOnly, SettleDelay: -1, NoFreelistSync: true})
	if err != nil {
		return isRefused
	}
	var content string
	err = db.View(func(tx *holdfast.Tx) error {
		content, err = contentOf(tx)
		return err
	})
	verdict := h.verdict(content, err)
	if verdict == isWrong && identity != 0 && passes(db) {
		verdict = isPassed
	}
	if err := db.Close(); err != nil {
		panic(err)
	}
	return verdict
}

// byStock is what bbolt says of a copy that can be walked without meeting damage.
func (h *torn) byStock(data []byte, dir string) (verdict string) {
	r := &run{script: Script{PageSize: h.page}}
	plain, err := bridge.Open(vfs.NewCrash("disk.db", r.asStock(data), nil).Open(), &holdfast.Options{ReadOnly: true})
	if err != nil {
		return isRefused
	}
	err = plain.View(func(tx *holdfast.Tx) error { _, err := contentOf(tx); return err })
	if err != nil || plain.Close() != nil {
		return isNoticed
	}
	path := filepath.Join(dir, "copy.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		panic(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			verdict = isNoticed
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Minute, PageSize: h.page, ReadOnly: true})
	if err != nil {
		return isRefused
	}
	var content string
	err = db.View(func(tx *bbolt.Tx) error {
		content, err = contentOf(tx)
		return err
	})
	verdict = h.verdict(content, err)
	_ = db.Close()
	return verdict
}
