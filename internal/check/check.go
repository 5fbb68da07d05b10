package check

import (
	"bytes"
	"fmt"
	"iter"
	"runtime/debug"

	"holdfast/internal/page"
)

// Input is what to check.
type Input struct {
	Image *page.Image
	Meta  page.Meta

	// Start is the page to start from; 0 for the root. With another page only
	// what lies below it is checked, and not which pages are free.
	Start page.ID

	// Free are the free and pending pages, Reserved those in use outside of
	// any tree. Accounted says that they are known and belong to this state.
	Free      []page.Extent
	Reserved  []page.Extent
	Accounted bool

	// Freelist is the freelist page if it is damaged, so that Free and Reserved
	// are not known: its faults are reported, and what can be read of it counts.
	// 0: there is none.
	Freelist page.ID

	// Listed is the freelist page if Free comes from elsewhere: it has to list the
	// same pages, and those of Records, which are some of Reserved. 0: there is none.
	Listed  page.ID
	Records []page.Extent

	// Seals counts the pages that were looked at by their seals, of which the wrong
	// ones are faults. nil: seals are not looked at.
	Seals *Seals

	// Sum is what the fingerprints of all runs in trees add up to, if that is known.
	Sum page.Sum

	// PassDamaged passes over pages whose seal is wrong and pages that the system cannot deliver:
	// whether the others fit together is asked, and not what will be noticed when it is read.
	PassDamaged bool

	// Gaps says that room between elements is not a fault: "bbolt surgery" leaves some.
	Gaps bool

	// Key turns a key into text for messages; nil: quoted.
	Key func([]byte) string

	// Progress is called with the pages of each tree page that has been looked
	// at. It ends the check by returning false. May be nil.
	Progress func(pages uint64) bool
}

// Limits of what is believed.
const (
	maxDepth   = 64      // of a tree
	maxNesting = 100_000 // of buckets
	maxShown   = 64      // bytes of a key in a message
	maxPath    = 8       // names of a bucket's path in a message
)

// Run checks in and calls report for each fault, until it returns false. A
// page that the system cannot deliver is a fault as any other.
func Run(in Input, report func(*page.CorruptError) bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	c := &checker{in: in, report: report, seen: make(map[page.ID]struct{})}
	show := in.Key
	if show == nil {
		show = func(k []byte) string { return fmt.Sprintf("%q", k) }
	}
	c.in.Key = func(k []byte) string {
		if len(k) > maxShown {
			return fmt.Sprintf("%s... (%d bytes)", show(k[:maxShown]), len(k))
		}
		return show(k)
	}
	if in.Start != 0 {
		c.tree(in.Start, nil, reference{})
		return
	}
	c.used = newBitmap(in.Meta.HighWater)
	c.free = newBitmap(in.Meta.HighWater)
	c.freePages()
	if in.Freelist != 0 {
		c.freelist(in.Freelist)
	}
	if in.Listed != 0 {
		c.listed(in.Listed)
	}
	c.sum.Known = true
	c.tree(in.Meta.Root, nil, reference{})
	if !in.PassDamaged || !c.unread { // what is below a damaged page looks like that
		c.unaccounted()
	}
	c.compare()
}

type checker struct {
	in      Input
	report  func(*page.CorruptError) bool
	stopped bool
	faulty  bool // something was reported
	unread  bool // a page of a tree could not be read, so pages below it are missed
	sum     page.Sum
	used    bitmap
	free    bitmap
	seen    map[page.ID]struct{} // in place of used when only a part is checked
}

func (c *checker) fault(id page.ID, format string, args ...any) {
	if c.faulty = true; !c.stopped {
		c.stopped = !c.report(page.Corruptf(id, format, args...))
	}
}

// err reports an error that a decoder returned.
func (c *checker) err(err error, where string) {
	damage, ok := err.(*page.CorruptError)
	if !ok {
		damage = page.Corruptf(0, "%v", err)
	}
	if c.faulty = true; !c.stopped {
		c.stopped = !c.report(&page.CorruptError{Page: damage.Page, Reason: damage.Reason + where, Err: damage.Err})
	}
}

// freePages notes the free and the reserved pages.
func (c *checker) freePages() {
	for _, e := range c.in.Free {
		if bad, ok := c.free.add(e); !ok {
			c.fault(bad, "the page is listed as free twice, or does not exist")
		}
	}
	c.used.add(page.Extent{N: uint64(page.FirstDataPage)})
	for _, e := range c.in.Reserved {
		if bad, ok := c.used.add(e); !ok {
			c.fault(bad, "a freelist page lies outside of the file's pages")
		}
		if bad, ok := c.free.touches(e); ok {
			c.fault(bad, "the freelist page is listed as free")
		}
	}
}

// freelist reports what is wrong with a freelist page, and notes what is right.
func (c *checker) freelist(id page.ID) {
	defer c.caught(nil)
	ids, pages, err := c.in.Image.FreelistIDs(id)
	if err != nil {
		c.err(err, " (in the freelist page)")
		return
	}
	c.listSeal(id)
	list := page.Extent{Start: id, N: pages}
	c.numbers(id, ids, c.free)
	c.used.add(list)
	if bad, ok := c.free.touches(list); ok {
		c.fault(bad, "the freelist page is listed as free")
	}
	c.in.Accounted = true
}

// numbers notes the numbers on a freelist page in set, and reports those that
// cannot be right.
func (c *checker) numbers(id page.ID, ids iter.Seq[page.ID], set bitmap) {
	var last page.ID
	for p := range ids {
		switch {
		case p < page.FirstDataPage || p >= c.in.Meta.HighWater:
			c.fault(id, "the freelist names page %d, which is not a page of this database: they are %d to %d", p, page.FirstDataPage, c.in.Meta.HighWater-1)
			continue
		case set.has(p):
			c.fault(p, "the page is listed as free twice")
		case p < last:
			c.fault(id, "freelist is not in ascending order: %d follows %d", p, last)
		}
		set.add(page.Extent{Start: p, N: 1})
		last = max(last, p)
		if c.stopped {
			return
		}
	}
}

// listed compares a freelist page with what is free: bbolt goes by it.
func (c *checker) listed(id page.ID) {
	defer c.caught(nil)
	ids, pages, err := c.in.Image.FreelistIDs(id)
	if err != nil {
		c.err(err, " (in the freelist page)")
		return
	}
	c.listSeal(id)
	for _, e := range c.in.Reserved {
		if e.Start == id && e.N != pages {
			c.fault(id, "the freelist page has %d pages, and %d are recorded", pages, e.N)
		}
	}
	set, records := newBitmap(c.in.Meta.HighWater), newBitmap(c.in.Meta.HighWater)
	c.numbers(id, ids, set)
	for _, e := range c.in.Records {
		records.add(e)
	}
	for p := page.FirstDataPage; p < c.in.Meta.HighWater && !c.stopped; p++ {
		switch free := c.free.has(p) || records.has(p); {
		case free && !set.has(p):
			c.fault(p, "the page is free, but the freelist page %d does not list it", id)
		case !free && set.has(p):
			c.fault(p, "the page is not free, but the freelist page %d lists it", id)
		}
	}
}

// unaccounted reports the pages that are neither used nor free.
func (c *checker) unaccounted() {
	if !c.in.Accounted {
		return
	}
	readable := ""
	if c.unread {
		readable = ", as far as they could be read,"
	}
	for id := page.FirstDataPage; id < c.in.Meta.HighWater && !c.stopped; id++ {
		if !c.used.has(id) && !c.free.has(id) {
			c.fault(id, "unreachable unfreed: no bucket%s uses the page, and it is not free", readable)
		}
	}
}

// path is the names of the buckets from the root down.
type path [][]byte

func (c *checker) where(p path) string {
	if len(p) == 0 {
		return ""
	}
	var b bytes.Buffer
	b.WriteString(" (in bucket ")
	if cut := len(p) - maxPath; cut > 0 {
		b.WriteString(".../")
		p = p[cut:]
	}
	for i, name := range p {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(c.in.Key(name))
	}
	b.WriteByte(')')
	return b.String()
}

// reference is the element that names a page. The zero reference is the meta.
type reference struct {
	page    page.ID
	element int
}

func (r reference) String() string {
	if r.page == 0 {
		return ""
	}
	return fmt.Sprintf(", named by element %d of page %d", r.element, r.page)
}

// tree checks the tree whose root is page root.
func (c *checker) tree(root page.ID, p path, by reference) {
	if len(p) > maxNesting {
		c.fault(root, "buckets are nested more than %d deep", maxNesting)
		return
	}
	leafDepth := -1
	c.page(root, 0, bounds{}, &leafDepth, p, by)
}

// bounds of the keys of a page: from lo, which its parent names, to before hi.
type bounds struct {
	lo, hi []byte
}

func (c *checker) page(id page.ID, depth int, b bounds, leafDepth *int, p path, by reference) {
	if c.stopped {
		return
	}
	defer c.caught(p)
	pg, err := c.read(id)
	if err != nil {
		if id >= page.FirstDataPage && id < c.in.Meta.HighWater { // what a tree names is in use, also if it cannot be read
			c.claim(id, 1, p, by)
		}
		c.unread = true
		c.err(err, c.where(p)+by.String())
		return
	}
	if !c.claim(id, pg.Pages(), p, by) {
		return
	}
	if c.in.Progress != nil && !c.in.Progress(pg.Pages()) {
		c.stopped = true
		return
	}
	c.sum.Add(page.Fingerprint(pg.Bytes(), id))
	if c.in.PassDamaged && page.CheckSeal(pg.Bytes(), id) == page.WrongSeal {
		c.unread = true
		return
	}
	c.seal(pg.Bytes(), id, p, by)
	if depth == maxDepth {
		c.fault(id, "the tree is deeper than any real one%s", c.where(p))
		return
	}
	keys := c.keys(pg, id, b, p)
	if pg.IsLeaf() {
		c.leaf(pg, id, depth, leafDepth, p)
		c.values(pg, id, p, false, keys == nil)
		return
	}
	if pg.Count() == 0 {
		c.fault(id, "branch without elements%s", c.where(p))
	}
	for i := range pg.Count() {
		_, child, err := pg.Branch(i)
		if err != nil {
			continue // reported with the keys
		}
		below := bounds{hi: b.hi}
		if keys != nil {
			below.lo = keys[i]
			if i+1 < len(keys) {
				below.hi = keys[i+1]
			}
		}
		c.page(child, depth+1, below, leafDepth, p, reference{id, i})
	}
}

// leaf checks where a leaf is, and that it has a reason to be there.
func (c *checker) leaf(pg page.Page, id page.ID, depth int, leafDepth *int, p path) {
	if *leafDepth < 0 {
		*leafDepth = depth
	} else if *leafDepth != depth {
		c.fault(id, "leaf at depth %d, others are at depth %d%s", depth, *leafDepth, c.where(p))
	}
	if pg.Count() == 0 && depth > 0 {
		c.fault(id, "leaf without elements below a branch%s", c.where(p))
	}
}

// caught reports a fault in reading a page, as far as the page has not been
// looked at yet: a page below has seen to its own.
func (c *checker) caught(p path) {
	recovered := recover()
	if recovered == nil {
		return
	}
	fault := c.in.Image.Fault(recovered)
	if fault == nil {
		panic(recovered)
	}
	c.unread = true
	if !c.in.PassDamaged {
		c.err(fault, c.where(p))
	}
}

// read is a page's view, whatever its seal says. That its header cannot be
// delivered is an error here as any other damage.
func (c *checker) read(id page.ID) (pg page.Page, err error) {
	defer c.in.Image.CatchFault(debug.SetPanicOnFault(true), &err)
	return c.in.Image.UnsealedPage(id)
}

// claim notes that a tree uses the pages; false if they must not be entered.
func (c *checker) claim(id page.ID, n uint64, p path, by reference) bool {
	e := page.Extent{Start: id, N: n}
	if c.in.Start != 0 {
		if _, again := c.seen[id]; again {
			c.fault(id, "the page is used twice%s%s", c.where(p), by)
			return false
		}
		c.seen[id] = struct{}{}
		return true
	}
	if bad, ok := c.free.touches(e); ok {
		c.fault(bad, "reachable freed: the page is in use and listed as free%s%s", c.where(p), by)
	}
	if bad, ok := c.used.add(e); !ok {
		c.fault(bad, "the page is used twice%s%s", c.where(p), by)
		return false
	}
	return true
}

// keys checks the elements of a page and returns its keys; nil if one of them
// cannot be read or they are out of order.
func (c *checker) keys(pg page.Page, id page.ID, b bounds, p path) [][]byte {
	keys := make([][]byte, pg.Count())
	sound := true
	for i := range keys {
		k, err := pg.Key(i)
		if err == nil && pg.IsLeaf() {
			_, err = pg.Leaf(i)
		}
		if err != nil {
			c.fault(id, "element %d of %d lies outside its page%s", i, pg.Count(), c.where(p))
			sound = false
			continue
		}
		keys[i] = k
		switch {
		case i > 0 && keys[i-1] != nil && bytes.Compare(keys[i-1], k) >= 0:
			c.fault(id, "key %s of element %d is not above key %s before it%s", c.in.Key(k), i, c.in.Key(keys[i-1]), c.where(p))
			sound = false
		case b.lo != nil && bytes.Compare(k, b.lo) < 0:
			c.fault(id, "key %s of element %d is below %s, with which the branch above names the page%s", c.in.Key(k), i, c.in.Key(b.lo), c.where(p))
		case b.hi != nil && bytes.Compare(k, b.hi) >= 0:
			c.fault(id, "key %s of element %d is not below %s, the first key of the next page%s", c.in.Key(k), i, c.in.Key(b.hi), c.where(p))
		}
	}
	if !c.packing(pg, id, p) || !sound {
		return nil
	}
	if b.lo != nil && len(keys) > 0 && bytes.Compare(keys[0], b.lo) > 0 && (b.hi == nil || bytes.Compare(keys[0], b.hi) < 0) {
		c.fault(id, "the first key %s is not %s, with which the branch above names the page%s", c.in.Key(keys[0]), c.in.Key(b.lo), c.where(p))
	}
	return keys
}

// packing checks that what elements point to lies in their order, without gaps,
// after the element array, as a page is written. One fault is
// reported for a page: those after it mostly follow from it.
func (c *checker) packing(pg page.Page, id page.ID, p path) bool {
	next := page.HeaderSize + pg.Count()*page.LeafElementSize
	for i := range pg.Count() {
		from, to, err := pg.Span(i)
		if err != nil {
			return false // reported with the keys
		}
		if from != next && !(c.in.Gaps && from > next) {
			c.fault(id, "element %d of %d begins at byte %d, but what is before it ends at byte %d%s", i, pg.Count(), from, next, c.where(p))
			return false
		}
		next = to
	}
	return true
}

// values checks the buckets in a leaf, which may be that of an inline bucket.
// If its elements may overlap, what is in inline buckets is not looked at.
func (c *checker) values(pg page.Page, id page.ID, p path, inInline, overlap bool) {
	for i := range pg.Count() {
		e, err := pg.Leaf(i)
		if err != nil {
			continue // reported with the keys
		}
		if e.Flags&^page.BucketFlag != 0 {
			c.fault(id, "element %d has unknown flags %#x%s", i, e.Flags, c.where(p))
		}
		if len(e.Key) > page.MaxKeySize {
			c.fault(id, "element %d has a key of %d bytes%s", i, len(e.Key), c.where(p))
		}
		if len(e.Key) == 0 {
			c.fault(id, "element %d has an empty key%s", i, c.where(p))
		}
		if !e.IsBucket() {
			if len(p) == 0 && c.in.Start == 0 {
				c.fault(id, "%s stands where only buckets can be", c.in.Key(e.Key))
			}
			continue
		}
		name := append(p, e.Key) // shares p's memory: what is below is done before the next
		h, inline, err := page.DecodeBucket(e.Value)
		switch {
		case err != nil:
			c.fault(id, "element %d: %s%s", i, reason(err), c.where(name))
		case h.Root != 0:
			c.tree(h.Root, name, reference{id, i})
		case inInline:
			c.fault(id, "an inline bucket holds a bucket%s", c.where(name))
		default:
			if overlap { // they may be one and the same, again and again
				continue
			}
			c.keys(inline, id, bounds{}, name)
			c.values(inline, id, name, true, false)
		}
	}
}

func reason(err error) string {
	if damage, ok := err.(*page.CorruptError); ok {
		return damage.Reason
	}
	return err.Error()
}
