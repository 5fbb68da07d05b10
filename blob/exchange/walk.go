package exchange

import (
	"errors"
	"slices"

	"holdfast/blob"
)

// walk goes through the tree of a blob, in the order of its content.
type walk struct {
	offset int64 // of what comes next
	stack  []level
	nodes  map[blob.Chunk]blob.VerifiedChunk // that have arrived, and were not entered yet
	ended  bool
}

// level is the children of a node that are still to come.
type level struct{ children []blob.Chunk }

func (w *walk) begin(ref blob.Ref) {
	*w = walk{nodes: map[blob.Chunk]blob.VerifiedChunk{}}
	w.stack = []level{{[]blob.Chunk{ref.Root()}}}
}

// next is the next chunk; nil: there is none.
func (w *walk) next() *blob.Chunk {
	for n := len(w.stack); n > 0; n-- {
		if l := &w.stack[n-1]; len(l.children) > 0 {
			return &l.children[0]
		}
		w.stack = w.stack[:n-1]
	}
	return nil
}

// pass goes on to the chunk after the next one.
func (w *walk) pass() {
	l := &w.stack[len(w.stack)-1]
	w.offset += l.children[0].Size
	l.children = l.children[1:]
}

// enter goes on to the children of the next chunk.
func (w *walk) enter(children []blob.Chunk) {
	l := &w.stack[len(w.stack)-1]
	c := l.children[0]
	l.children = l.children[1:]
	if !slices.Contains(l.children, c) { // as in a blob of zeros
		delete(w.nodes, c)
	}
	w.stack = append(w.stack, level{children})
}

// plan goes on with the plan, as far as memory allows, and asks for what it needs.
func (k *sink) plan() error {
	for len(k.queue) > 0 && k.room() {
		var nodes []*slot
		err := k.view(func(store *blob.Store) (err error) {
			store.VerifyStored(k.o.Verify)
			nodes, err = k.planSome(store)
			return err
		})
		if err == nil {
			err = k.askWindow()
		}
		if err == nil && len(nodes) > 0 {
			err = k.askNodes(nodes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *sink) room() bool { return k.buffered < maxBuffered && len(k.steps) < maxSteps }

// planSome plans until there is no more room, or nodes are needed.
func (k *sink) planSome(store *blob.Store) (nodes []*slot, err error) {
	for len(k.queue) > 0 && k.room() && len(nodes) == 0 {
		t := k.queue[0]
		if t.err == nil && !t.done && !t.walk.ended {
			nodes, err = k.planNext(store, t)
			if err != nil {
				return nil, err
			}
		} else {
			k.queue = k.queue[1:]
		}
	}
	return nodes, nil
}

// planNext plans one step of a blob, or gives the nodes that are needed for it.
func (k *sink) planNext(store *blob.Store, t *transfer) ([]*slot, error) {
	w := &t.walk
	c := w.next()
	switch {
	case c == nil:
		w.ended = true
		k.add(t, stepEnd, blob.Chunk{}, nil)
		return nil, nil
	case c.Size > 0 && w.offset+c.Size <= t.start: // it had arrived before
		w.pass()
		return nil, nil
	case c.Level > 0:
		return k.planNode(store, t, c)
	case w.offset < t.start: // what is stored has another form
		w.ended = true
		k.add(t, stepReset, blob.Chunk{}, nil)
		return nil, nil
	case w.offset+c.Size < t.ref.Size() && c.Size < int64(k.options.MinLeaf()):
		k.giveUp(t, errOther)
		return nil, nil
	}
	has, err := store.HasChunk(*c)
	if err != nil {
		return nil, err
	}
	var s *slot
	if !has || t.leaves && w.offset == t.start {
		s = k.want(*c)
	}
	k.add(t, stepChunk, *c, s)
	w.pass()
	return nil, nil
}

func (k *sink) add(t *transfer, kind stepKind, c blob.Chunk, s *slot) {
	if s != nil {
		s.uses++
	}
	k.steps = append(k.steps, step{t: t, round: t.round, kind: kind, chunk: c, offset: t.walk.offset, slot: s})
}

// want has a leaf asked for, once while it is in the plan.
func (k *sink) want(c blob.Chunk) *slot {
	s := k.asked[c]
	if s == nil {
		s = &slot{chunk: c}
		k.asked[c] = s
		k.buffered += c.Size
		k.window = append(k.window, s)
	}
	return s
}

// planNode plans a node: as it is, if the store has it and it can be appended so, or by going on to its
// children.
func (k *sink) planNode(store *blob.Store, t *transfer, c *blob.Chunk) ([]*slot, error) {
	w := &t.walk
	v, arrived := w.nodes[*c]
	if !arrived {
		has, err := k.hasNode(store, *c)
		if err != nil {
			return nil, err
		}
		if !has {
			return k.rootsWith(store, *c)
		}
		p, err := store.Chunk(c.Address, c.Level)
		if err == nil {
			v, err = k.options.VerifyChunk(*c, append([]byte(nil), p...))
		}
		if err != nil {
			return nil, err
		}
		if v.Full() && w.offset >= t.start && !t.leaves && !k.o.Verify {
			k.add(t, stepChunk, *c, nil)
			w.pass()
			return nil, nil
		}
	}
	// Nodes that are alike could not be appended as they are, and there would be no end of work with a tree of a few.
	if w.offset+c.Size < t.ref.Size() && !v.Full() {
		k.giveUp(t, errOther)
		return nil, nil
	}
	w.enter(v.Children())
	if v.Level == 1 {
		return nil, nil
	}
	return k.nodesBelow(store, t)
}

// hasNode tells whether the store has a node. One that is damaged it has not.
func (k *sink) hasNode(store *blob.Store, c blob.Chunk) (bool, error) {
	has, err := store.HasChunk(c)
	if err == nil && !has {
		err = k.look(store, c)
	}
	return has, err
}

// look finds out whether a chunk that is to be received is stored, and damaged. The index would be believed, and the bytes that come
// given up.
func (k *sink) look(store *blob.Store, c blob.Chunk) error {
	_, err := store.Chunk(c.Address, c.Level)
	switch {
	case errors.Is(err, blob.ErrCorrupt): // also if its bytes are missing where the index says that they are
		k.mends = true
		return nil
	case err == nil || errors.Is(err, blob.ErrMissing):
		return nil
	}
	return err
}

// giveUp plans that a blob is given up. What was planned of it before is written.
func (k *sink) giveUp(t *transfer, err error) {
	if !t.walk.ended {
		t.walk.ended = true
		k.steps = append(k.steps, step{t: t, round: t.round, kind: stepFail, err: err})
	}
}

// nodesBelow are the nodes that the store does not have of those that the walk is about to come to. They are asked for
// together.
func (k *sink) nodesBelow(store *blob.Store, t *transfer) (nodes []*slot, err error) {
	end := t.walk.offset
	seen := map[blob.Chunk]bool{}
	for _, c := range t.walk.stack[len(t.walk.stack)-1].children {
		if end += c.Size; end <= t.start || c.Level == 0 || seen[c] {
			continue
		}
		seen[c] = true
		has, err := k.hasNode(store, c)
		if err != nil {
			return nil, err
		}
		if !has {
			nodes = append(nodes, &slot{chunk: c, t: t})
		}
	}
	return nodes, nil
}

// rootsWith is the slot of a node that is needed, which is the root of the first blob in the queue, with those of
// the roots of the others that are needed, too.
func (k *sink) rootsWith(store *blob.Store, c blob.Chunk) ([]*slot, error) {
	nodes := []*slot{{chunk: c, t: k.queue[0]}}
	if len(k.queue[0].walk.stack) > 1 {
		return nodes, nil
	}
	for _, t := range k.queue[1:] {
		root := t.ref.Root()
		if _, arrived := t.walk.nodes[root]; arrived || root.Level == 0 || t.err != nil || len(t.walk.stack) != 1 || len(nodes) == maxRoots {
			continue
		}
		has, err := k.hasNode(store, root)
		if err != nil {
			return nil, err
		}
		if !has {
			nodes = append(nodes, &slot{chunk: root, t: t})
		}
	}
	return nodes, nil
}

// maxRoots is how many roots are asked for together.
const maxRoots = 256

// askWindow asks for the leaves that were found to be wanted.
func (k *sink) askWindow() error {
	for len(k.window) > 0 {
		n, size := 0, int64(0)
		for n < len(k.window) && n < maxChunks && size < maxWindow {
			size += k.window[n].chunk.Size
			n++
		}
		if _, err := k.r.ask(kindGet, k.window[:n:n], nil); err != nil {
			return err
		}
		k.window = k.window[n:]
	}
	k.window = nil
	return nil
}

// askNodes asks for nodes, and waits for them. The answer comes after all that was asked for before, which stays in
// memory.
func (k *sink) askNodes(nodes []*slot) error {
	q, err := k.r.ask(kindGet, nodes, nil)
	if err != nil {
		return err
	}
	if err := k.wait(q); err != nil {
		return err
	}
	for _, s := range nodes {
		if s.err != nil {
			k.giveUp(s.t, s.err)
			continue
		}
		s.t.walk.nodes[s.chunk] = s.data
		k.stats.Chunks++
		k.stats.ChunkBytes += int64(len(s.data.Bytes()))
	}
	return nil
}
