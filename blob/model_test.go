package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"holdfast"
)

// model is what a store must hold, in plain maps. Trees and counts are computed from the
// content by code of its own; of the store's it uses only the hash function and, with content-defined
// chunking, where leaves end.
type model struct {
	o      Options
	chunks map[chunkKey]modelChunk // all that were ever made
	texts  map[string]*text        // all contents

	state modelState
}

// text is a content.
type text struct {
	string
	ref  Ref        // zero: not computed yet
	open []chunkKey // what an ingest of it stands on; nil: not computed yet
}

// text gives the one text of a content: maps of them need not look at megabytes.
func (m *model) text(content string) *text {
	t := m.texts[content]
	if t == nil {
		t = &text{string: content}
		m.texts[content] = t
	}
	return t
}

// modelState is what a transaction changes.
type modelState struct {
	users   map[*text]int             // content -> users but for leases
	leases  map[string]map[*text]bool // id -> contents
	expired map[string]bool           // of the leases
	ingests map[string]*text          // name -> what was saved of the content
	ended   map[string]bool           // of these, which have expired
}

// expire is what a Collect does to leases and ingests.
func (st *modelState) expire() {
	for id := range st.expired {
		delete(st.leases, id)
	}
	for name := range st.ended {
		delete(st.ingests, name)
	}
	clear(st.expired)
	clear(st.ended)
}

type modelChunk struct {
	length   int
	children []chunkKey
}

func newModel(o Options) *model {
	return &model{o: o, chunks: map[chunkKey]modelChunk{}, texts: map[string]*text{}, state: modelState{
		users: map[*text]int{}, leases: map[string]map[*text]bool{}, expired: map[string]bool{}, ingests: map[string]*text{}, ended: map[string]bool{},
	}}
}

func (st modelState) clone() modelState {
	leases := map[string]map[*text]bool{}
	for id, held := range st.leases {
		leases[id] = maps.Clone(held)
	}
	return modelState{maps.Clone(st.users), leases, maps.Clone(st.expired), maps.Clone(st.ingests), maps.Clone(st.ended)}
}

// cut gives the leaves of a content, and the rest that does not make a whole leaf.
func (m *model) cut(content string) (leaves []string, rest string) {
	if m.o.Chunking == FixedSize {
		for len(content) >= m.o.LeafSize {
			leaves = append(leaves, content[:m.o.LeafSize])
			content = content[m.o.LeafSize:]
		}
		return leaves, content
	}
	c := newCutter(&m.o)
	for {
		n, end := c.cut([]byte(content))
		if !end {
			return leaves, content
		}
		leaves = append(leaves, content[:n])
		content = content[n:]
	}
}

func (m *model) leaf(content string) subtree {
	k := chunkKey{addr: m.o.sum([]byte(content))}
	m.chunks[k] = modelChunk{length: len(content)}
	return subtree{k, int64(len(content))}
}

// above makes the nodes above trees; open gets those that no whole node is made of, if it is
// not nil: then only whole nodes are made.
func (m *model) above(level uint8, below []subtree, open *[]chunkKey) (nodes []subtree) {
	fanout, magic := 126, "HFN1"
	if m.o.Chunking == FastCDC {
		fanout, magic = 100, "HFC1"
	}
	for len(below) > 0 {
		n := min(fanout, len(below))
		group := below[:n]
		below = below[n:]
		switch {
		case open != nil && n < fanout:
			for _, t := range group {
				*open = append(*open, t.key)
			}
			continue
		case n == 1:
			nodes = append(nodes, group[0])
			continue
		}
		b := append([]byte(magic), level, 0, byte(n), 0)
		size := int64(0)
		var children []chunkKey
		for _, t := range group {
			size += t.size
			children = append(children, t.key)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(size))
		for _, t := range group {
			b = append(b, t.key.addr[:]...)
			if m.o.Chunking == FastCDC {
				b = binary.LittleEndian.AppendUint64(b, uint64(t.size)|uint64(t.key.level)<<56)
			}
		}
		k := chunkKey{m.o.sum(b), level}
		m.chunks[k] = modelChunk{len(b), children}
		nodes = append(nodes, subtree{k, size})
	}
	return nodes
}

// tree gives the reference of a content.
func (m *model) tree(t *text) Ref {
	if !t.ref.IsZero() {
		return t.ref
	}
	leaves, rest := m.cut(t.string)
	var trees []subtree
	for _, l := range leaves {
		trees = append(trees, m.leaf(l))
	}
	if rest != "" || len(leaves) == 0 {
		trees = append(trees, m.leaf(rest))
	}
	for level := uint8(1); len(trees) > 1; level++ {
		trees = m.above(level, trees, nil)
	}
	t.ref = Ref{algorithm: m.o.Algorithm, addr: trees[0].key.addr, level: trees[0].key.level, size: trees[0].size}
	return t.ref
}

// standsOn gives the chunks that an ingest of so much content stands on.
func (m *model) standsOn(t *text) []chunkKey {
	if t.open != nil {
		return t.open
	}
	open := []chunkKey{}
	leaves, _ := m.cut(t.string)
	var trees []subtree
	for _, l := range leaves {
		trees = append(trees, m.leaf(l))
	}
	for level := uint8(1); len(trees) > 0; level++ {
		trees = m.above(level, trees, &open)
	}
	t.open = open
	return open
}

// users counts what is named from outside.
func (m *model) users() map[chunkKey]int {
	users := map[chunkKey]int{}
	for content, n := range m.state.users {
		users[m.tree(content).key()] += n
	}
	for _, held := range m.state.leases {
		for content := range held {
			users[m.tree(content).key()]++
		}
	}
	return users
}

// leased counts of these the leases.
func (m *model) leased() map[chunkKey]int {
	leased := map[chunkKey]int{}
	for _, held := range m.state.leases {
		for content := range held {
			leased[m.tree(content).key()]++
		}
	}
	return leased
}

// ingested counts what ingests stand on.
func (m *model) ingested() map[chunkKey]int {
	parents := map[chunkKey]int{}
	for _, content := range m.state.ingests {
		for _, k := range m.standsOn(content) {
			parents[k]++
		}
	}
	return parents
}

// alive gives all chunks that must be there.
func (m *model) alive() map[chunkKey]bool {
	alive := map[chunkKey]bool{}
	var visit func(k chunkKey)
	visit = func(k chunkKey) {
		if alive[k] {
			return
		}
		alive[k] = true
		for _, child := range m.chunks[k].children {
			visit(child)
		}
	}
	for _, counts := range []map[chunkKey]int{m.users(), m.ingested()} {
		for k, n := range counts {
			if n > 0 {
				visit(k)
			}
		}
	}
	return alive
}

// has tells whether the store has to hold a content.
func (m *model) has(content *text) bool { return m.alive()[m.tree(content).key()] }

// roots gives the references from outside that are not records of the store.
func (m *model) roots() iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for content, n := range m.state.users {
			for range n {
				if !yield(m.tree(content), nil) {
					return
				}
			}
		}
	}
}

// compare compares the store with the model: each chunk that must be there is, the counts are exactly
// those that follow from which chunks are there, exactly those without any are marked, and each has its own
// bytes. collected: nothing else may be there.
func (m *model) compare(s *Store, collected bool) error {
	stored := map[chunkKey]entry{}
	ids := map[string]chunkKey{}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := onlyOnce(s); err != nil {
		return err
	}
	for key, v := range s.indexAll() {
		k, err := parseKey(key)
		if err != nil {
			return err
		}
		e, err := parseEntry(v)
		if err != nil {
			return err
		}
		stored[k] = e
		id := fmt.Sprint(e.packed, e.id)
		if other, ok := ids[id]; ok {
			fault("chunks %v and %v have the same bytes", k, other)
		}
		ids[id] = k
		if known, ok := m.chunks[k]; !ok || known.length != e.length {
			fault("chunk %v has %d bytes; the model knows it: %v, with %d", k, e.length, ok, known.length)
		}
	}
	alive := m.alive()
	for k := range alive {
		if _, ok := stored[k]; !ok {
			fault("chunk %v is not there", k)
		}
	}
	parents, users, leased := m.ingested(), m.users(), m.leased()
	for k := range stored {
		for _, child := range m.chunks[k].children {
			parents[child]++
		}
	}
	for k, e := range stored {
		if e.parents != uint64(parents[k]) || e.users != uint64(users[k]) || e.leased != uint64(leased[k]) {
			fault("chunk %v has %d parents, %d users and %d leases, and must have %d, %d and %d", k, e.parents, e.users, e.leased, parents[k], users[k], leased[k])
		}
		if collected && !alive[k] {
			fault("chunk %v is still there", k)
		}
		key := k.encode()
		if marked := s.dead.Get(key[:]) != nil; marked != (parents[k]+users[k] == 0) {
			fault("chunk %v is marked as dead: %v", k, marked)
		}
	}
	for key := range s.dead.All() {
		if k, err := parseKey(key); err != nil || stored[k] == (entry{}) {
			fault("a mark of %x, which is not there: %v", key, err)
		}
	}
	for packed, b := range map[bool]*holdfast.Bucket{false: s.leaves, true: s.packs} {
		for key := range b.All() {
			if _, ok := ids[fmt.Sprint(packed, binary.BigEndian.Uint64(key))]; !ok {
				fault("bytes %x belong to no chunk", key)
			}
		}
	}
	return errors.Join(append(faults, m.compareRecords(s))...)
}

// compareRecords compares leases, ingests and digests.
func (m *model) compareRecords(s *Store) error {
	leases := map[string]map[string]bool{}
	for info, err := range s.Leases() {
		if err != nil {
			return err
		}
		held := map[string]bool{}
		for ref, err := range s.Leased(info.ID) {
			if err != nil {
				return err
			}
			held[ref.String()] = true
		}
		if len(held) != info.Blobs {
			return fmt.Errorf("lease %s of %d blobs has %d", info.ID, info.Blobs, len(held))
		}
		leases[info.ID] = held
	}
	for id, contents := range m.state.leases {
		held := leases[id]
		delete(leases, id)
		for content := range contents {
			if ref := m.tree(content).String(); !held[ref] {
				return fmt.Errorf("lease %s does not hold %s", id, ref)
			}
		}
		if len(held) != len(contents) {
			return fmt.Errorf("lease %s holds %d blobs, not %d", id, len(held), len(contents))
		}
	}
	if len(leases) > 0 {
		return fmt.Errorf("leases that must not be there: %v", leases)
	}
	n := 0
	for info, err := range s.Ingests() {
		content, ok := m.state.ingests[info.Name]
		if err != nil || !ok || int64(len(content.string)) != info.Offset {
			return fmt.Errorf("ingest %s at %d (to be there: %v): %w", info.Name, info.Offset, ok, err)
		}
		n++
	}
	if n != len(m.state.ingests) {
		return fmt.Errorf("%d ingests, not %d", n, len(m.state.ingests))
	}
	return nil
}

// read compares the bytes of all blobs, and which are there.
func (m *model) read(s *Store) error {
	refs := map[string]bool{}
	alive := m.alive()
	for _, content := range m.texts {
		ref := m.tree(content)
		has, err := s.Has(ref)
		k := ref.key()
		e, _, _ := s.lookup(&k)
		// What dead nodes still hold may be there.
		if err != nil || has != (alive[k] || e.parents > 0) {
			return fmt.Errorf("blob %v of %d bytes is there: %v, %v", ref, ref.size, has, err)
		}
		if !alive[k] {
			continue
		}
		r, err := s.Reader(ref)
		if err != nil {
			return err
		}
		var got bytes.Buffer
		if _, err := r.WriteTo(&got); err != nil {
			return err
		}
		if got.String() != content.string {
			return fmt.Errorf("blob %v has other content", ref)
		}
	}
	for content, n := range m.state.users {
		if n > 0 {
			refs[m.tree(content).String()] = true
		}
	}
	for _, held := range m.state.leases {
		for content := range held {
			refs[m.tree(content).String()] = true
		}
	}
	var found []string
	for ref, err := range s.Roots() {
		if err != nil {
			return err
		}
		found = append(found, ref.String())
	}
	want := slices.Sorted(maps.Keys(refs))
	if slices.Sort(found); !slices.Equal(found, want) {
		return fmt.Errorf("the blobs of the store are\n%v, not\n%v", found, want)
	}
	return nil
}
