package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// Random disks at one boundary.
const (
	disksAtOnce = 3
	disksAtLast = 24 // in a script that tries the last step only
)

// event is called behind each call that changed the file: there the power may
// fail.
func (r *run) event(kind vfs.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != nil || r.file.dead {
		return
	}
	switch {
	case kind == vfs.KindGrow:
		r.past.growth = true
	case kind == vfs.KindTruncate:
		r.past.cutOff, r.past.truncated = true, true
	case kind == vfs.KindSync && r.failing:
		r.failing = false
		if r.exposed {
			r.unsure, r.lying = true, true
			r.tally.Add("lost flush")
		}
	case kind == vfs.KindSync:
		r.past.switched, r.exposed, r.leftExposed = r.exposed, false, false
		if r.db != nil && r.failed == "" { // all that is visible is on the disk
			r.soft = nil
		}
	case r.noSync:
		r.exposed = true
	case r.exposed && kind == vfs.KindWrite:
		r.fault = fmt.Errorf("NoSync is off, and call %d writes before what came before is flushed", r.calls)
	}
	if err := r.longEnough(r.disk.Bytes()); err != nil && r.fault == nil {
		r.fault = fmt.Errorf("behind call %d, a %s: %w", r.calls, kind, err)
	}
	// A vacuum has many boundaries that are much alike.
	skip := r.step.Kind == "vacuum" && !r.past.cutOff && (r.step.Seed+uint64(r.calls))%2 == 0
	if r.fault == nil && (!r.script.OnlyLast && !skip || r.script.OnlyLast && r.last || r.step.Cut == r.calls) {
		r.cut(kind)
	}
	if r.calls == r.step.Cut || r.calls == r.step.Kill {
		r.file.dead, r.file.by = true, kind
	}
	if kind == vfs.KindSync {
		r.past.rollback, r.past.cutOff = false, false
	}
}

// cut tries disks.
func (r *run) cut(kind vfs.Kind) {
	features := r.features()
	verifying := !r.script.OnlyLast || r.last
	try := func(n int, disk []byte, lenient bool) bool {
		rng := rand.New(rand.NewPCG(r.step.Seed, uint64(r.calls)<<32|uint64(n)))
		if err := r.try(disk, features, lenient, rng); err != nil {
			r.fault = fmt.Errorf("power cut behind call %d, a %s, disk %d (%s; page size %d): %w",
				r.calls, kind, n, strings.Join(features, ", "), r.script.PageSize, err)
		}
		return r.fault == nil
	}
	cached := r.exposed && !r.unsure
	if cached { // only what a killed process leaves is known
		all := r.disk.Bytes()
		if r.calls == r.step.Cut {
			r.chosen = all
		}
		if !verifying || !try(0, all, false) {
			return
		}
	}
	random := disksAtOnce
	if r.script.OnlyLast && r.last {
		random = disksAtLast
	}
	n := 0
	for disk := range r.disk.Disks(rand.New(rand.NewPCG(r.step.Seed, uint64(r.calls))), r.script.PageSize, random) {
		n++
		if !cached && r.calls == r.step.Cut && n <= max(1, r.step.Disk) {
			r.chosen = disk
		}
		if verifying && !try(n, disk, r.exposed || r.unsure) {
			return
		}
	}
}

// features are what is going on.
func (r *run) features() []string {
	f := []string{"disks"}
	add := func(name string, on bool) {
		if on {
			f = append(f, name)
		}
	}
	p := r.past
	add("creation", !r.created)
	add("reader open", len(r.readers) > 0)
	add("several writers", r.step.Together)
	add("group of several", r.db != nil && len(r.pending) > 1 && r.db.Stats().GroupSize > 1)
	add("strict", r.db != nil && r.options.Strict)
	add("one flush", r.db != nil && !r.options.Strict && !r.exposed)
	add("Periodic", r.db != nil && r.options.durability() == holdfast.Periodic && !r.exposed)
	add("Periodic, several commits since the flush", len(r.soft) > 1)
	add("settling", r.step.Kind == "sync")
	add("growth", p.growth)
	add("large value", r.has(func(e Edit) bool { return e.Op == "put" && e.Size > r.script.PageSize }))
	add("nested buckets", r.has(func(e Edit) bool { return strings.Contains(e.Path, "/") }))
	add("appending", r.step.Kind == "tx" && r.has(func(e Edit) bool { return e.Op == "append" }))
	add("written early", r.editing)
	add("spilling", r.step.Kind == "tx" && r.has(func(e Edit) bool { return e.Op == "spill" }))
	add("deletes", r.has(func(e Edit) bool { return e.Op == "del" }))
	add("bucket deletes", r.has(func(e Edit) bool { return e.Op == "drop" }))
	add("rollback before", p.rollback)
	add("reopened", p.sessions > 1)
	add("stock in between", p.stock)
	add("goes on after a cut", p.recoveries > 0)
	add("goes on after two cuts", p.recoveries > 1)
	add("goes on after a kill", p.killed)
	add("opening", r.created && r.step.Kind == "open")
	add("closing", r.step.Kind == "close")
	add("NoSync", r.exposed)
	add("durable after NoSync", p.switched)
	add("write error before", p.failed == "write" || p.failed == "grow")
	add("flush error before", p.failed == "sync")
	add("after a lost flush", p.adopted)
	vacuum := r.step.Kind == "vacuum"
	add("vacuum under way", vacuum)
	add("vacuum under way, reader open", vacuum && len(r.readers) > 0)
	add("vacuum under way, Periodic", vacuum && r.options.durability() == holdfast.Periodic)
	add("vacuum under way, strict", vacuum && r.options.Strict)
	add("vacuum under way, commit under way", vacuum && len(r.pending) > 0)
	add("truncation", p.cutOff)
	add("truncation, reader open", p.cutOff && len(r.readers) > 0)
	add("truncation, growth", p.cutOff && p.growth)
	add("behind a truncation", p.truncated && !p.cutOff)
	return f
}

func (r *run) has(is func(Edit) bool) bool { return slices.ContainsFunc(r.step.Edits, is) }

// expected is the state with that content, if a disk may hold it now. Stock bbolt
// may find it one flush behind; so may a power failure leave it with Periodic.
func (r *run) expected(content string, stock, power bool) (*node, error) {
	all := slices.Concat([]version{r.version}, r.pending, r.torn)
	under := len(all)
	if stock {
		all = append(all, r.behind...)
	}
	if stock || power {
		all = append(all, r.soft...)
	}
	var text strings.Builder
	for i, v := range all {
		if v.acked == content {
			switch {
			case i < under:
			case stock:
				r.tally.Add("bbolt one flush behind")
			default:
				r.tally.Add("Periodic, not the newest")
			}
			return v.state, nil
		}
		fmt.Fprintf(&text, "\n%d:\n%s", i, v.acked)
	}
	return nil, fmt.Errorf("the content is neither that of the last acknowledged commit nor of one under way:\n%s\nacknowledged is 0, then those under way:%s", content, &text)
}

// try opens a disk with each engine.
func (r *run) try(disk []byte, features []string, lenient bool, rng *rand.Rand) error {
	if lenient {
		r.tally.Add("lost for want of a flush")
		return r.look(disk)
	}
	r.tally.Add(features...)
	if err := r.longEnough(disk); err != nil {
		return err
	}
	if err := r.verify(disk, rng); err != nil {
		return err
	}
	// bbolt knows nothing of pages below 1,024 bytes if a meta is torn, nor of a
	// creation that was cut short.
	if r.created && r.script.PageSize >= 1024 && rng.IntN(6) == 0 {
		r.tally.Add("opened by bbolt")
		if err := r.verifyStock(disk); err != nil {
			return fmt.Errorf("opened by bbolt: %w", err)
		}
	}
	return nil
}

// look opens a disk that may hold anything: there is an error or not, but no
// panic.
func (r *run) look(disk []byte) error {
	db, err := bridge.Open(vfs.NewCrash("disk.db", disk, nil).Open(), &holdfast.Options{PageSize: r.script.PageSize})
	if err != nil {
		return nil
	}
	_, _, _ = viewed(db, everyLeak)
	return db.Close()
}

// again is what is committed to each disk that was opened.
var again = []Edit{
	{Op: "put", Path: "b9/n1", Key: 1, N: 3, Size: 40, Letter: 'z'},
	{Op: "del", Path: "b0", Key: 10, N: 20},
	{Op: "seq", Path: "b1"},
}

// verify opens a disk with Holdfast, commits to it, closes it and opens it again.
func (r *run) verify(disk []byte, rng *rand.Rand) error {
	j := &verified{r: r, rng: rng}
	if rng.IntN(40) == 0 && !r.script.Plain {
		j.disk = vfs.NewCrash("disk.db", disk, j.event)
	} else {
		j.disk = vfs.NewCrash("disk.db", disk, nil)
	}
	options := &holdfast.Options{
		PageSize: r.script.PageSize, NoFreelistSync: rng.IntN(2) == 0, StrictCompat: rng.IntN(4) == 0, SettleDelay: -1,
	}
	open := j.disk.Open
	if r.vacuums() && rng.IntN(2) == 0 {
		open = func() vfs.File { return j.disk.OpenAhead(32 << 10) }
	}
	db, err := bridge.Open(open(), options)
	if err != nil {
		if r.unborn(err, disk) {
			return nil
		}
		return fmt.Errorf("open: %w", err)
	}
	content, _, err := viewed(db, r.leaks)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	state, err := r.expected(content, false, true)
	if err != nil || r.script.Plain {
		return errors.Join(err, db.Close())
	}
	next := state.clone()
	next.apply(again)
	j.content, j.also = content, next.content()
	if err := db.Update(func(tx *holdfast.Tx) error { return applyTo(tx, again) }); err != nil {
		return fmt.Errorf("commit to it: %w", err)
	}
	j.content = j.also
	if r.vacuums() && rng.IntN(12) == 0 {
		if _, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{StepPages: 1 + rng.IntN(8)}); err != nil {
			return fmt.Errorf("vacuum of it: %w", errors.Join(err, db.Close()))
		}
		r.tally.Add("vacuum of what was left")
	}
	for range 2 {
		if err := j.holds(db); err != nil {
			return errors.Join(err, db.Close())
		}
		if err := db.Close(); err != nil {
			return err
		}
		if db, err = bridge.Open(open(), options); err != nil {
			return fmt.Errorf("open again: %w", err)
		}
	}
	return errors.Join(j.err, db.Close())
}

// verified is a disk of which the power is cut once more.
type verified struct {
	r             *run
	disk          *vfs.Crash
	rng           *rand.Rand
	content, also string // what it may hold; "" before it was looked at
	err           error
}

// holds tells whether the open database holds the content, and no more.
func (j *verified) holds(db *holdfast.DB) error {
	content, _, err := viewed(db, j.r.leaks)
	if err == nil && content != j.content {
		err = fmt.Errorf("committed to once more, it holds\n%s\nand not\n%s", content, j.content)
	}
	return err
}

func (j *verified) event(vfs.Kind) {
	for disk := range j.disk.Disks(j.rng, j.r.script.PageSize, 1) {
		if j.err != nil {
			return
		}
		j.r.tally.Add("recovered twice")
		if err := j.second(disk); err != nil {
			j.err = fmt.Errorf("cut once more while it was recovered: %w", err)
		}
	}
}

func (j *verified) second(disk []byte) error {
	db, err := bridge.Open(vfs.NewCrash("disk.db", disk, nil).Open(), &holdfast.Options{PageSize: j.r.script.PageSize})
	if err != nil {
		if j.r.unborn(err, disk) {
			return nil
		}
		return fmt.Errorf("open: %w", err)
	}
	content, _, err := viewed(db, j.r.leaks)
	if err == nil && content != j.content && content != j.also {
		if _, err = j.r.expected(content, false, true); j.content != "" {
			err = fmt.Errorf("it holds\n%s\nand neither\n%s\nnor\n%s", content, j.content, j.also)
		}
	}
	return errors.Join(err, db.Close())
}

// leaks are pages that are lost, as Check names them.
type leaks map[string]bool

var (
	everyLeak = leaks{"*": true} // allows all
	lost      = regexp.MustCompile(`^page (\d+): unreachable unfreed`)
)

// viewed is what a database holds, and which pages are lost; an error if they
// are not among those allowed, or something else is wrong.
func viewed(db *holdfast.DB, allowed leaks) (content string, found leaks, err error) {
	found = leaks{}
	err = db.View(func(tx *holdfast.Tx) error {
		content, err = contentOf(tx)
		if err != nil {
			return err
		}
		var faults []error
		for fault := range tx.Check() {
			m := lost.FindStringSubmatch(fault.Error())
			if m == nil || !allowed[m[1]] && !allowed["*"] {
				faults = append(faults, fault)
			} else {
				found[m[1]] = true
			}
		}
		return errors.Join(faults...)
	})
	return content, found, err
}

// metaAssertion is what bbolt's check says of a file of which one meta page is
// torn or missing: it opens such a file, but its check expects a header there.
var metaAssertion = regexp.MustCompile(`assertion failed: (Page expected to be: [01], |page [01]: has unexpected type/flags)`)

// asStock is the disk as bbolt sees it: without what Holdfast keeps behind the metas.
func (r *run) asStock(disk []byte) []byte {
	disk = bytes.Clone(disk)
	for at := 0; at < 2*r.script.PageSize; at += r.script.PageSize {
		clear(disk[at+page.ExtensionOffset : at+r.script.PageSize])
	}
	return disk
}

// verifyStock opens a disk with bbolt. What bbolt would find there is walked before,
// with every bound checked: bbolt trusts pages, and would take the test down.
func (r *run) verifyStock(disk []byte) error {
	plain, err := bridge.Open(vfs.NewCrash("disk.db", r.asStock(disk), nil).Open(), &holdfast.Options{ReadOnly: true, PageSize: r.script.PageSize})
	if err != nil {
		return fmt.Errorf("its plain metas: open: %w", err)
	}
	if _, _, err := viewed(plain, everyLeak); err != nil {
		return fmt.Errorf("its plain metas: %w", errors.Join(err, plain.Close()))
	}
	if err := plain.Close(); err != nil {
		return err
	}
	path := filepath.Join(r.dir, "disk.db")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Minute, PageSize: r.script.PageSize, NoSync: true, NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		content, err := contentOf(tx)
		if err != nil {
			return err
		}
		faults := []error{}
		for fault := range tx.Check() {
			m := lost.FindStringSubmatch(fault.Error())
			if !metaAssertion.MatchString(fault.Error()) && (m == nil || !r.leaks[m[1]]) {
				faults = append(faults, fault)
			}
		}
		_, err = r.expected(content, true, true)
		return errors.Join(append(faults, err)...)
	})
	return errors.Join(err, db.Close(), os.Remove(path))
}
