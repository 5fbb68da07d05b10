package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast"
	"holdfast/blob"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
	"holdfast/test/soak"
)

// blobMinimums are the disks that an ordinary run of TestBlobPowerCut must have tried.
var blobMinimums = map[string]int{
	"put":                  500,
	"writer":               300,
	"delete":               30,
	"collect":              300,
	"lease":                200,
	"ingest":               300,
	"save":                 100,
	"vacuum":               200,
	"goes on after a cut":  1000,
	"of the one under way": 30,
	"collected afterwards": 300,
	"new chunks apart":     500,
	"moved":                15,
	"compressed":           1000,
	"encrypted":            1000,
}

// TestBlobPowerCut runs random histories of a store of blobs, cuts the power at the boundaries between calls
// on the file, and opens what may be left: the blobs, their users, the rows that name them, leases and
// ingests are those of the last acknowledged transaction or of the one under way; each blob reads as
// it was written; Check finds nothing, and behind a Collect nothing is left but what blobs need.
// HOLDFAST_SEED and HOLDFAST_HISTORIES work as for TestPowerCut.
func TestBlobPowerCut(t *testing.T) {
	runSeeds(t, 20, blobMinimums, func(seed uint64, tally *soak.Tally) ([]string, error) {
		r := newBlobRun(seed, tally)
		err := r.do()
		return r.log, err
	})
}

// blobState is what a store holds, as a caller knows it.
type blobState struct {
	users   map[string]int    // content -> how often it was put or retained and not deleted
	rows    map[string]string // key -> content, whose user the row is
	leases  map[string]string // id -> content
	ingests map[string]int    // name -> bytes saved
}

func (st blobState) clone() blobState {
	return blobState{maps.Clone(st.users), maps.Clone(st.rows), maps.Clone(st.leases), maps.Clone(st.ingests)}
}

// blobRun is a history. What follows mu is looked at where the disk calls back.
type blobRun struct {
	rng      *rand.Rand
	tally    *soak.Tally
	options  blob.Options
	contents []string
	refs     map[string]blob.Ref // of contents; learned when they are written
	log      []string
	disk     *vfs.Crash
	db       *holdfast.DB

	mu        sync.Mutex
	verifying *rand.Rand
	acked     blobState
	pending   *blobState // under way
	features  []string
	fault     error
	cut       int // the boundary at which the power fails in this step; 0: at none
	calls     int
	chosen    []byte // what it left
	cuts      int    // power failures with which the history has gone on
}

func newBlobRun(seed uint64, tally *soak.Tally) *blobRun {
	rng := rand.New(rand.NewPCG(seed, 11))
	r := &blobRun{rng: rng, tally: tally, verifying: rand.New(rand.NewPCG(seed, 12)), refs: map[string]blob.Ref{}}
	r.options = blob.Options{LeafSize: blob.MinLeafSize, Algorithm: blob.Algorithm(1 + rng.IntN(2)), Chunking: blob.Chunking(1 + rng.IntN(2))}
	text := seed%2 == 0 // of some stores leaves are compressed
	if text {
		r.options.Compression = blob.Zstd
	}
	if seed%4 < 2 { // and some are encrypted, with compression or without
		r.options.Key, r.options.Algorithm = blobKey, blob.KeyedBLAKE3
	}
	r.acked = blobState{map[string]int{}, map[string]string{}, map[string]string{}, map[string]int{}}
	base := make([]byte, 160<<10)
	for i := range base {
		if base[i] = byte(rng.Uint32()); text && i/5000%4 > 0 {
			base[i] = 'a' + base[i]%16
		}
	}
	for _, size := range []int{0, 10, 1 << 10, 5000, 20 << 10, 126 << 10, 130 << 10, 160 << 10} {
		r.contents = append(r.contents, string(base[:size]))
	}
	r.contents = append(r.contents, string(base[100:9000]), string(base[:3000])+"changed"+string(base[3000:30000]))
	return r
}

const blobPageSize = 1024

var blobKey = must2(blob.NewKey([32]byte{1, 2, 3}))

func (r *blobRun) open(disk []byte) error {
	r.disk = vfs.NewCrash("crash.db", disk, r.event)
	db, err := bridge.Open(r.disk.Open(), &holdfast.Options{PageSize: blobPageSize, SettleDelay: -1})
	if err == nil {
		hook.WriteEarly(db, 16<<10, 0)
	}
	r.db = db
	return err
}

// storeOf has short values stored, too: the model knows one reference of each content.
func storeOf(tx *holdfast.Tx) (*blob.Store, error) {
	var key *blob.Key
	b := tx.Bucket([]byte("blobs"))
	if blob.IsEncrypted(b) {
		key = blobKey
	}
	s, err := blob.OpenEncrypted(b, key)
	if err == nil {
		s.InlineUpTo(-1)
	}
	return s, err
}

// do runs the history. Until the store has been made, nothing is verified.
func (r *blobRun) do() error {
	r.mu.Lock()
	r.chosen = []byte{}
	r.mu.Unlock()
	if err := r.open(nil); err != nil {
		return err
	}
	err := r.db.Update(func(tx *holdfast.Tx) error {
		if _, err := tx.CreateBucket([]byte("rows")); err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte("blobs"))
		if err == nil {
			_, err = blob.Create(b, r.options)
		}
		if err == nil { // as in a larger store, where new chunks come to a bucket of their own first
			err = b.Bucket([]byte("index")).SetSequence(uint64(r.rng.IntN(300)))
		}
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.chosen = nil
	r.mu.Unlock()
	for range 22 {
		if err := r.step(); err != nil {
			return errors.Join(err, r.db.Close())
		}
	}
	return r.db.Close()
}

func (r *blobRun) note(feature, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(feature+": "+format, args...))
	r.features = append(r.features, feature)
}

func (r *blobRun) step() error {
	r.mu.Lock()
	r.features, r.calls, r.cut = nil, 0, 0
	if r.options.Compression != blob.NoCompression {
		r.features = append(r.features, "compressed")
	}
	if r.options.Key != nil {
		r.features = append(r.features, "encrypted")
	}
	if r.rng.IntN(4) == 0 {
		r.cut = 1 + r.rng.IntN(6)
	}
	r.mu.Unlock()
	var err error
	switch n := r.rng.IntN(10); {
	case n == 0:
		r.note("collect", "all")
		_, err = blob.Collect(context.Background(), r.db, storeOf, blob.CollectOptions{Hold: time.Nanosecond})
	case n == 1:
		r.note("vacuum", "")
		_, err = r.db.Vacuum(context.Background(), holdfast.VacuumOptions{Hurry: true})
	default:
		err = r.transaction()
	}
	r.mu.Lock()
	chosen, fault := r.chosen, r.fault
	r.mu.Unlock()
	if err != nil || fault != nil {
		return errors.Join(fault, err)
	}
	if chosen == nil {
		return nil
	}
	// Go on with the disk that the power failure left; what it holds is what was acknowledged from now on.
	if err := r.db.Close(); err != nil {
		return err
	}
	r.note("cut", "")
	if err := r.open(chosen); err != nil {
		return err
	}
	state, err := r.verify(r.db)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.acked, r.pending, r.chosen = *state, nil, nil
	r.cuts++
	r.mu.Unlock()
	return nil
}

// transaction does some things and commits, or is rolled back.
func (r *blobRun) transaction() error {
	next := r.acked.clone()
	back := errors.New("rolled back")
	var before []string
	err := r.db.Update(func(tx *holdfast.Tx) error {
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		if before = recentKeys(tx); len(before) > 0 {
			r.note("new chunks apart", "recent")
			if r.rng.IntN(2) == 0 { // as if there were more than may wait, from some key on
				recent := tx.Bucket([]byte("blobs")).Bucket([]byte("recent"))
				if err := recent.SetSequence(r.rng.Uint64()<<48 | 1<<47); err != nil {
					return err
				}
			}
		}
		for range 1 + r.rng.IntN(5) {
			if err := r.op(tx, s, &next); err != nil {
				return err
			}
		}
		if r.rng.IntN(10) == 0 {
			return back
		}
		r.mu.Lock()
		r.pending = &next
		r.mu.Unlock()
		return nil
	})
	if err == nil && len(before) > 0 {
		if err := r.db.View(func(tx *holdfast.Tx) error {
			index := tx.Bucket([]byte("blobs")).Bucket([]byte("index"))
			if slices.ContainsFunc(before, func(key string) bool { return index.Get([]byte(key)) != nil }) {
				r.tally.Add("moved")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.chosen == nil {
		r.acked = next
		r.pending = nil
	}
	if err == back {
		return nil
	}
	return err
}

// recentKeys are the keys of chunks that wait for being moved to the index.
func recentKeys(tx *holdfast.Tx) (keys []string) {
	if b := tx.Bucket([]byte("blobs")).Bucket([]byte("recent")); b != nil {
		for key := range b.All() {
			keys = append(keys, string(key))
		}
	}
	return keys
}

func (r *blobRun) op(tx *holdfast.Tx, s *blob.Store, st *blobState) error {
	content := r.contents[r.rng.IntN(len(r.contents))]
	rows := tx.Bucket([]byte("rows"))
	key := fmt.Sprint("row ", r.rng.IntN(6))
	learn := func(ref blob.Ref) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refs[content] = ref
	}
	switch r.rng.IntN(8) {
	case 0, 1: // a row and its blob, in place of another
		r.note("put", "%s of %d bytes", key, len(content))
		if old, ok := st.rows[key]; ok {
			if err := s.Delete(r.refs[old]); err != nil {
				return err
			}
		}
		ref, err := s.Put([]byte(content))
		if err != nil {
			return err
		}
		learn(ref)
		st.rows[key] = content
		value, err := ref.MarshalBinary()
		if err != nil {
			return err
		}
		return rows.Put([]byte(key), value)
	case 2:
		r.note("writer", "%d bytes", len(content))
		w := s.Writer()
		for p := content; len(p) > 0; {
			n := min(len(p), 1+r.rng.IntN(20000))
			if _, err := w.Write([]byte(p[:n])); err != nil {
				return err
			}
			p = p[n:]
		}
		switch r.rng.IntN(4) {
		case 0:
			w.Abort()
			return nil
		case 1:
			return nil // left open
		}
		ref, err := w.Commit()
		learn(ref)
		st.users[content]++
		return err
	case 3:
		if st.users[content] == 0 {
			return nil
		}
		r.note("delete", "%d bytes", len(content))
		if st.users[content]--; st.users[content] == 0 {
			delete(st.users, content)
		}
		return s.Delete(r.refs[content])
	case 4:
		old, ok := st.rows[key]
		if !ok {
			return nil
		}
		r.note("delete", "%s", key)
		delete(st.rows, key)
		return errors.Join(s.Delete(r.refs[old]), rows.Delete([]byte(key)))
	case 5:
		r.note("collect", "some")
		_, _, err := s.Collect(1 + r.rng.IntN(60))
		return err
	case 6:
		id := fmt.Sprint("lease ", r.rng.IntN(2))
		l, err := s.Lease(id, time.Time{})
		if err != nil {
			return err
		}
		if _, ok := st.leases[id]; ok {
			r.note("lease", "release %s", id)
			delete(st.leases, id)
			return l.Release()
		}
		r.note("lease", "%s of %d bytes", id, len(content))
		ref, err := s.Put([]byte(content))
		if err != nil {
			return err
		}
		learn(ref)
		st.leases[id] = content
		return errors.Join(l.Add(ref), s.Delete(ref))
	}
	return r.ingest(s, st)
}

// ingest goes on with one of two ingests.
func (r *blobRun) ingest(s *blob.Store, st *blobState) error {
	which := r.rng.IntN(2)
	name, content := fmt.Sprint("ingest ", which), r.contents[5+which]
	r.note("ingest", "%s of %d bytes from %d on", name, len(content), st.ingests[name])
	in, err := s.Ingest(name, blob.IngestOptions{WholeDigest: which == 0})
	if err != nil {
		return err
	}
	at := st.ingests[name]
	if in.Offset() != int64(at) {
		return fmt.Errorf("%s is at %d, not %d", name, in.Offset(), at)
	}
	st.ingests[name] = at
	n := min(r.rng.IntN(60000), len(content)-at)
	if _, err := in.Write([]byte(content[at : at+n])); err != nil {
		return err
	}
	switch {
	case at+n == len(content):
		ref, err := in.Commit()
		r.mu.Lock()
		r.refs[content] = ref
		r.mu.Unlock()
		st.users[content]++
		delete(st.ingests, name)
		return err
	case r.rng.IntN(8) == 0:
		delete(st.ingests, name)
		return in.Abort()
	case r.rng.IntN(4) > 0:
		r.note("save", "%s at %d", name, at+n)
		st.ingests[name] = at + n
		return in.Save()
	}
	return nil
}

// event is behind each call that changed the file.
func (r *blobRun) event(vfs.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != nil || r.chosen != nil {
		return
	}
	r.calls++
	all := r.calls == r.cut || r.verifying.IntN(3) == 0
	if !all {
		return
	}
	n := 0
	for disk := range r.disk.Disks(r.verifying, blobPageSize, 1) {
		if n++; n > 4 {
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
		if err := r.try(disk); err != nil {
			r.fault = fmt.Errorf("power cut behind call %d, disk %d: %w", r.calls, n, err)
			return
		}
	}
}

// try opens a disk and verifies it.
func (r *blobRun) try(disk []byte) error {
	db, err := bridge.Open(vfs.NewCrash("disk.db", disk, nil).Open(), &holdfast.Options{PageSize: blobPageSize, SettleDelay: -1})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	state, err := r.verify(db)
	if err == nil && r.verifying.IntN(4) == 0 {
		r.tally.Add("collected afterwards")
		err = r.collected(db, state)
	}
	return errors.Join(err, db.Close())
}

// verify finds the state that a database is in, which must be one of the possible ones.
func (r *blobRun) verify(db *holdfast.DB) (found *blobState, err error) {
	err = db.View(func(tx *holdfast.Tx) error {
		for fault := range tx.Check() {
			return fault
		}
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		got, err := r.describeStore(tx, s)
		if err != nil {
			return err
		}
		want := r.describe(&r.acked)
		found = &r.acked
		if got != want && r.pending != nil {
			found, want = r.pending, want+"\nor\n"+r.describe(r.pending)
			if got == r.describe(r.pending) {
				r.tally.Add("of the one under way")
				want = got
			}
		}
		if got != want {
			return fmt.Errorf("it holds\n%s\nand must hold\n%s", got, want)
		}
		return r.sound(s, found)
	})
	return found, err
}

// sound tells whether Check finds nothing, and all blobs have their content.
func (r *blobRun) sound(s *blob.Store, st *blobState) error {
	var problems []error
	_, err := s.Check(context.Background(), blob.CheckOptions{Data: true, Roots: r.roots(st)}, func(p blob.Problem) error {
		problems = append(problems, errors.New(p.String()))
		return nil
	})
	if err != nil || problems != nil {
		return errors.Join(append(problems, err)...)
	}
	for content := range r.held(st) {
		reader, err := s.Reader(r.refs[content])
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if _, err := reader.WriteTo(&b); err != nil || b.String() != content {
			return fmt.Errorf("the blob of %d bytes has %d others: %w", len(content), b.Len(), err)
		}
	}
	return nil
}

// held are the contents that have users, and how many.
func (r *blobRun) held(st *blobState) map[string]int {
	held := maps.Clone(st.users)
	for _, named := range []map[string]string{st.rows, st.leases} {
		for _, content := range named {
			held[content]++
		}
	}
	return held
}

func (r *blobRun) roots(st *blobState) func(yield func(blob.Ref, error) bool) {
	return func(yield func(blob.Ref, error) bool) {
		for content, n := range r.held(st) {
			for _, leased := range st.leases { // Check knows leases
				if leased == content {
					n--
				}
			}
			for range n {
				if !yield(r.refs[content], nil) {
					return
				}
			}
		}
	}
}

// collected collects what is dead: then exactly the chunks of blobs and ingests are there.
func (r *blobRun) collected(db *holdfast.DB, st *blobState) error {
	if _, err := blob.Collect(context.Background(), db, storeOf, blob.CollectOptions{}); err != nil {
		return err
	}
	return db.View(func(tx *holdfast.Tx) error {
		s, err := storeOf(tx)
		if err != nil {
			return err
		}
		if u, err := s.Usage(); err != nil || u.Dead != 0 || len(st.ingests)+len(r.held(st)) == 0 && u.Leaves+u.Nodes != 0 {
			return fmt.Errorf("behind a Collect there are %+v: %w", u, err)
		}
		return r.sound(s, st)
	})
}

// describe is a state in words.
func (r *blobRun) describe(st *blobState) string {
	var lines []string
	for content, n := range r.held(st) {
		lines = append(lines, fmt.Sprintln("blob", r.refs[content], n))
	}
	for key, content := range st.rows {
		lines = append(lines, fmt.Sprintln(key, r.refs[content]))
	}
	for id, content := range st.leases {
		lines = append(lines, fmt.Sprintln(id, 1, r.refs[content]))
	}
	for name, n := range st.ingests {
		lines = append(lines, fmt.Sprintln(name, n))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// describeStore is what a store holds, in the same words.
func (r *blobRun) describeStore(tx *holdfast.Tx, s *blob.Store) (string, error) {
	var lines []string
	for ref, err := range s.Roots() {
		if err != nil {
			return "", err
		}
		st, err := s.Stat(ref)
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintln("blob", ref, st.Users))
	}
	for key, value := range tx.Bucket([]byte("rows")).All() {
		var ref blob.Ref
		if err := ref.UnmarshalBinary(value); err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintln(string(key), ref))
	}
	for info, err := range s.Leases() {
		if err != nil {
			return "", err
		}
		for ref, err := range s.Leased(info.ID) {
			if err != nil {
				return "", err
			}
			lines = append(lines, fmt.Sprintln(info.ID, info.Blobs, ref))
		}
	}
	for info, err := range s.Ingests() {
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintln(info.Name, info.Offset))
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
