package blob

// treeBuilder makes the nodes of one blob after the other, from the leaves up. It
// keeps one unfinished node for each level.
type treeBuilder struct {
	s      *Store
	shape  shape
	levels []nodeBuilder // those of which the children have the level of the index
}

// push appends a chunk of the level, which the caller holds as its parent.
func (t *treeBuilder) push(k chunkKey, size int64) error {
	for level := k.level; ; level++ {
		if level == maxLevel {
			return errTooLarge
		}
		for int(level) >= len(t.levels) {
			t.grow()
		}
		nb := &t.levels[level]
		if err := nb.add(t.shape, &k, size); err != nil {
			return err
		}
		if nb.n < t.shape.fanout() {
			return nil
		}
		var err error
		if k, size, err = t.node(level); err != nil {
			return err
		}
	}
}

// grow adds a level, with the memory that it had in an earlier blob.
func (t *treeBuilder) grow() {
	n := len(t.levels)
	if n == cap(t.levels) {
		t.levels = append(t.levels, nodeBuilder{})
		return
	}
	t.levels = t.levels[:n+1]
	t.levels[n].reset()
}

// finish gives the root of all that was pushed, which is held as by a parent.
func (t *treeBuilder) finish() (k chunkKey, size int64, err error) {
	below := false // k is the end of the content, and less high than what comes next
	for level := range t.levels {
		nb := &t.levels[level]
		switch {
		case nb.n == 0:
			continue
		case nb.n == 1 && !below: // a node has two children or more
			k, size = nb.child(t.shape, 0, uint8(level)), nb.size
			nb.reset()
			below = true
			continue
		case below:
			if err := nb.add(t.shape, &k, size); err != nil {
				return k, size, err
			}
		}
		if k, size, err = t.node(uint8(level)); err != nil {
			return k, size, err
		}
		below = true
	}
	return k, size, nil
}

// node makes a node of the children gathered at the level, and holds it in place of them: its
// children have been counted as such since they were pushed. If it is there already it has
// counted them, and they are given up.
func (t *treeBuilder) node(level uint8) (chunkKey, int64, error) {
	nb := &t.levels[level]
	b := nb.finish(t.shape, level+1)
	n, err := parseNode(b, level+1, t.shape)
	if err != nil {
		return chunkKey{}, 0, err
	}
	k := chunkKey{t.s.options.sum(b), level + 1}
	fresh, err := t.s.add(&k, b, nil, asParent)
	if err != nil {
		return chunkKey{}, 0, err
	}
	if !fresh {
		// One whose bytes have not come is in the store.
		stored := t.s.batch.find(&k).state&hasBytes == 0
		if err := t.s.giveUpChildren(b, level+1, stored); err != nil {
			return chunkKey{}, 0, err
		}
	}
	nb.reset()
	return k, n.size, nil
}

// abort gives up what was pushed.
func (t *treeBuilder) abort() {
	for level := range t.levels {
		nb := &t.levels[level]
		for i := range nb.n {
			k := nb.child(t.shape, i, uint8(level))
			if t.s.adjust(&k, -1, 0) != nil {
				break // and the transaction cannot commit
			}
		}
		nb.reset()
	}
}
