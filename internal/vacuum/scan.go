package vacuum

import (
	"bytes"
	"cmp"
	"errors"
	"runtime/debug"
	"slices"

	"holdfast/internal/bucket"
	"holdfast/internal/page"
	"holdfast/internal/pager"
	"holdfast/internal/tree"
)

// target is pages that are to be written anew: one, at some depth of a bucket's tree,
// or several neighbours that are joined. Pages are found again by their key, so a
// target stays good whatever others do meanwhile: at worst something is written that
// need not have been.
type target struct {
	path    [][]byte // names of the buckets
	key     []byte
	depth   int
	join    int      // how many runs are joined; 0: one is moved
	long    bool     // some of those have more than one page
	instead []target // what is moved if there is no room for joining
	id      page.ID  // of the one that is moved
	pages   uint64   // about how many are written
}

// Bounds of windows, in pages: of all that is joined at a time, and of a run that may be.
const (
	maxWindow = 64
	maxJoined = 16
)

// window is neighbours: pages of one parent, one page long each, not yet decided on.
type window struct {
	runs  []run
	pages uint64
	sizes []int // of the elements
}

type run struct {
	id    page.ID
	pages uint64
	key   []byte // the first, in the mapping
}

// place is a bucket on the way to where the scan stands. Its own tree comes first, then
// the buckets in it.
type place struct {
	name   []byte // nil of the root bucket
	key    []byte // where to go on
	nested bool   // its own tree is done
	holds  bool   // it holds buckets with pages of their own
}

// scan goes through all buckets, a bounded piece at a time, each in a reading
// transaction of its own so that it pins nothing for long, and gathers targets.
type scan struct {
	p     *pager.Pager
	moves func(id page.ID, pages uint64) bool // whether a run is to lie elsewhere
	gain  float64                             // share of the pages of a window that joining must save
	fill  float64
	limit uint64 // pages of targets, and
	reads uint64 // pages read, after which a piece ends

	stack   []place
	targets []target
	found   uint64 // pages of the targets of this piece
	visited uint64 // pages, in this piece
	total   uint64 // in all pieces
	live    uint64 // pages of the trees
	packed  uint64 // these, once they are joined
	most    uint64 // more pages than there can be

	audits bool          // no page that is met may be free
	met    []page.Extent // in this piece

	snapshot *pager.State
	path     [][]byte // of the bucket in hand; nil: see where
	windows  []window // by depth
	resume   []byte
	advanced bool // a leaf was looked at since the walk of this tree went on
	holds    bool
	resumed  bool // the walk of this tree goes on where a piece before has ended
}

// errPause ends a walk within a tree.
var errPause = errors.New("pause")

func newScan(v *vac) *scan {
	return &scan{p: v.p, stack: []place{{}}, gain: v.o.Gain, fill: v.o.Fill, reads: maxReads}
}

// done tells whether the scan is complete.
func (s *scan) done() bool { return len(s.stack) == 0 }

// piece gathers the next targets.
func (s *scan) piece() (err error) {
	snap, err := s.p.Begin()
	if err != nil {
		return err
	}
	s.snapshot = snap.Value()
	defer func() {
		s.snapshot = nil
		err = cmp.Or(s.p.End(snap), err) // the pages of a state that is lost are free, or another process writes them
	}()
	defer s.snapshot.Image().CatchFault(debug.SetPanicOnFault(true), &err)
	s.targets, s.found, s.visited = s.targets[:0], 0, 0
	s.most = max(s.most, 2*uint64(s.snapshot.Meta.HighWater)+maxReads)
	tx := &bucket.Tx{Source: source(snap)}
	buckets := make([]bucket.Bucket, 1, 8)
	buckets[0].OpenRoot(tx, s.snapshot.Meta.Root, s.snapshot.Meta.Sequence)
	for i := 1; i < len(s.stack); i++ {
		var b bucket.Bucket
		ok, err := buckets[i-1].OpenChild(s.stack[i].name, &b)
		if err != nil {
			return err
		}
		if !ok || b.Root() == 0 { // it was deleted, or made small
			s.stack = s.stack[:i]
			break
		}
		buckets = append(buckets, b)
	}
	for len(s.stack) > 0 && !s.full() {
		at := &s.stack[len(s.stack)-1]
		b := &buckets[len(buckets)-1]
		if !at.nested {
			if err := s.tree(b, at); err != nil {
				return err
			}
			continue
		}
		child, name, err := s.next(tx, b, at)
		if err != nil {
			return err
		}
		if child == nil {
			if !s.full() {
				s.stack = s.stack[:len(s.stack)-1]
				buckets = buckets[:len(buckets)-1]
			}
			continue
		}
		// Each has a page of its own.
		if most := min(maxNesting, uint64(s.snapshot.Meta.HighWater)); uint64(len(s.stack)) > most {
			return page.Corruptf(child.Root(), "buckets are nested more than %d deep", most)
		}
		s.stack = append(s.stack, place{name: name})
		buckets = append(buckets, *child)
	}
	return s.audit()
}

// source is what a scan reads a state from.
func source(snap pager.Snapshot) tree.Reader {
	if f := snap.Foreign(); f != nil {
		return f
	}
	return snap.Value().Image()
}

// audit is damage if a page that was met is free: what is written there would be damage to what it holds.
func (s *scan) audit() error {
	defer func() { s.met = s.met[:0] }()
	for some := range slices.Chunk(s.met, auditRuns) {
		if err := s.p.CheckUsed(some); err != nil {
			return err
		}
	}
	return nil
}

// auditRuns is how many runs of pages are compared with the free ones at a time: others who commit wait for that.
const auditRuns = 256

// maxNesting is how deep buckets are believed to be nested.
const maxNesting = 100_000

// full tells whether the piece is to end.
func (s *scan) full() bool { return s.found >= s.limit && s.limit > 0 || s.visited >= s.reads }

// visit counts pages that are read.
func (s *scan) visit(id page.ID, pages uint64) error {
	s.visited += pages
	if s.total += pages; s.total > s.most {
		return page.Corruptf(id, "the walk meets more pages than the file has: pages form a cycle")
	}
	return nil
}

// tree goes through the tree of bucket b itself.
func (s *scan) tree(b *bucket.Bucket, at *place) error {
	s.path = nil
	s.windows, s.resume, s.advanced, s.holds = s.windows[:0], nil, false, at.holds
	s.resumed = at.key != nil
	err := b.Tree().WalkFrom(at.key, s.level)
	at.holds = s.holds
	if err != nil && !errors.Is(err, errPause) {
		return err
	}
	s.decide(0)
	at.key, at.nested = s.resume, err == nil
	return nil
}

// level is called for each page of a tree, parents first.
func (s *scan) level(l *tree.Level) error {
	var key []byte
	var err error
	if l.Count() > 0 {
		if key, err = l.Key(0); err != nil {
			return err
		}
	}
	// A piece ends before a leaf that begins a window, and not before the first: the branches
	// above it may be enough for a step, in each piece.
	if s.full() && l.IsLeaf() && l.Count() > 0 && s.advanced && s.begins(l) {
		s.resume = bytes.Clone(key)
		return errPause
	}
	if s.resumed && !s.advanced && !l.IsLeaf() {
		return nil // the piece before has seen it
	}
	id, pages := l.Base()
	if err := s.visit(id, pages); err != nil {
		return err
	}
	if s.audits {
		s.met = append(s.met, page.Extent{Start: id, N: pages})
	}
	s.live += pages
	s.advanced = s.advanced || l.IsLeaf()
	s.decide(l.Depth + 1)
	for len(s.windows) <= l.Depth {
		s.windows = append(s.windows, window{})
	}
	w := &s.windows[l.Depth]
	alone := l.Depth == 0 || pages > maxJoined || pages > 1 && !l.IsLeaf()
	if alone || w.pages+pages > maxWindow {
		s.decide(l.Depth)
	}
	w.runs = append(w.runs, run{id, pages, key})
	w.pages += pages
	err = s.look(l, w)
	if alone {
		s.decide(l.Depth)
	}
	return err
}

// begins tells whether a leaf would begin a window.
func (s *scan) begins(l *tree.Level) bool {
	_, pages := l.Base()
	return l.Depth >= len(s.windows) || len(s.windows[l.Depth].runs) == 0 || s.windows[l.Depth].pages+pages > maxWindow
}

// look goes through the elements of a page.
func (s *scan) look(l *tree.Level, w *window) error {
	for i := range l.Count() {
		if !l.IsLeaf() {
			key, err := l.Key(i)
			if err != nil {
				return err
			}
			w.sizes = append(w.sizes, len(key))
			continue
		}
		e, err := l.Element(i)
		if err != nil {
			return err
		}
		w.sizes = append(w.sizes, len(e.Key)+len(e.Value))
		if e.IsBucket() && !s.holds {
			h, _, err := page.DecodeBucket(e.Value)
			if err != nil {
				return err
			}
			s.holds = h.Root != 0
		}
	}
	return nil
}

// decide decides on the windows from some depth on, the deepest first.
func (s *scan) decide(from int) {
	for depth := len(s.windows) - 1; depth >= from; depth-- {
		w := &s.windows[depth]
		if len(w.runs) == 0 {
			continue
		}
		after := w.pages
		if len(w.runs) > 1 {
			after = uint64(tree.PackedPages(w.sizes, s.p.PageSize(), s.fill))
		}
		if after < w.pages && float64(w.pages-after) >= s.gain*float64(w.pages) {
			s.packed += after
			t := target{key: bytes.Clone(w.runs[0].key), depth: depth, join: len(w.runs), pages: after}
			t.long = w.pages > uint64(len(w.runs))
			for _, r := range w.runs {
				if s.moves(r.id, r.pages) {
					t.instead = append(t.instead, s.moved(r, depth))
				}
			}
			s.add(t)
		} else {
			s.packed += w.pages
			for _, r := range w.runs {
				s.move(r, depth)
			}
		}
		w.runs, w.sizes, w.pages = w.runs[:0], w.sizes[:0], 0
	}
}

// move makes a page run a target if it is not to stay where it is.
func (s *scan) move(r run, depth int) {
	if s.moves(r.id, r.pages) {
		s.add(s.moved(r, depth))
	}
}

// moved is the target of a run that is to lie elsewhere.
func (s *scan) moved(r run, depth int) target {
	return target{path: s.where(), key: bytes.Clone(r.key), depth: depth, id: r.id, pages: r.pages}
}

// where is the path of the bucket in hand. It is made when something in the bucket becomes a target: of all
// buckets in a deep nest it would take the square of their number.
func (s *scan) where() [][]byte {
	if s.path == nil {
		s.path = make([][]byte, 0, len(s.stack)-1)
		for _, p := range s.stack[1:] {
			s.path = append(s.path, p.name)
		}
	}
	return s.path
}

func (s *scan) add(t target) {
	t.path = s.where()
	s.targets = append(s.targets, t)
	s.found += t.pages
}

// next finds the next bucket in b that has pages of its own; nil if there is none, or
// the piece is to end first.
func (s *scan) next(tx *bucket.Tx, b *bucket.Bucket, at *place) (*bucket.Bucket, []byte, error) {
	if !at.holds {
		return nil, nil, nil
	}
	c := tree.Cursor{KeysOnly: true}
	c.Init(b.Tree())
	e, ok, err := c.Seek(at.key)
	for n := 1; ok && err == nil; n++ {
		if e.IsBucket() && (at.key == nil || !bytes.Equal(e.Key, at.key)) {
			child, err := nested(b, e.Key)
			if err != nil || child != nil {
				at.key = bytes.Clone(e.Key)
				return child, at.key, err
			}
		}
		if n%elementsAPage == 0 {
			if err := s.visit(b.Root(), 1); err != nil {
				return nil, nil, err
			}
			if s.full() {
				at.key = bytes.Clone(e.Key)
				return nil, nil, nil
			}
		}
		e, ok, err = c.Next()
	}
	return nil, nil, err
}

// elementsAPage is how many elements count as a page that is read.
const elementsAPage = 128

// nested is the bucket name in b if it has pages of its own, or nil.
func nested(b *bucket.Bucket, name []byte) (*bucket.Bucket, error) {
	child := new(bucket.Bucket)
	ok, err := b.OpenChild(slices.Clone(name), child)
	if err != nil || !ok || child.Root() == 0 {
		return nil, err
	}
	return child, nil
}
