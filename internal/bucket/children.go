package bucket

import (
	"bytes"
	"slices"
)

// children are the opened buckets in a bucket, by name. Most transactions open one
// or two; for these a list is smaller than a map, and faster. nil has none.
type children struct {
	few   []child
	one   [1]child           // memory of the first
	many  map[string]*Bucket // all of them, if there are more than maxFew
	names []byte             // of few
	room  [32]byte           // memory of the first names
}

type child struct {
	name   []byte // stays as it is
	bucket *Bucket
}

const maxFew = 8

func (c *children) at(name []byte) int {
	return slices.IndexFunc(c.few, func(e child) bool { return bytes.Equal(e.name, name) })
}

// get is the child name, nil if it is not there.
func (c *children) get(name []byte) *Bucket {
	if c == nil {
		return nil
	}
	if c.many != nil {
		return c.many[string(name)]
	}
	if i := c.at(name); i >= 0 {
		return c.few[i].bucket
	}
	return nil
}

// set adds or replaces a child.
func (c *children) set(name []byte, b *Bucket) {
	if c.few == nil {
		c.few, c.names = c.one[:0], c.room[:0]
	}
	switch i := c.at(name); {
	case c.many != nil:
		c.many[string(name)] = b
	case i >= 0:
		c.few[i].bucket = b
	case len(c.few) < maxFew:
		if len(c.few) == cap(c.few) {
			c.few = append(make([]child, 0, maxFew), c.few...)
		}
		at := len(c.names)
		c.names = append(c.names, name...) // those before stay where they are
		c.few = append(c.few, child{c.names[at:len(c.names):len(c.names)], b})
	default:
		c.many = make(map[string]*Bucket)
		for _, e := range c.few {
			c.many[string(e.name)] = e.bucket
		}
		c.many[string(name)] = b
		c.few = nil
	}
}

// remove forgets a child, if it is there.
func (c *children) remove(name []byte) {
	if c == nil {
		return
	}
	delete(c.many, string(name))
	if i := c.at(name); i >= 0 {
		c.few = slices.Delete(c.few, i, i+1)
	}
}

// list are the children in any order, to be read only.
func (c *children) list() []child {
	if c == nil {
		return nil
	}
	if c.many == nil {
		return c.few
	}
	list := make([]child, 0, len(c.many))
	for name, b := range c.many {
		list = append(list, child{[]byte(name), b})
	}
	return list
}

// sorted are the children in the order of their names, to be read only.
func (c *children) sorted() []child {
	list := c.list()
	slices.SortFunc(list, func(a, b child) int { return bytes.Compare(a.name, b.name) })
	return list
}
