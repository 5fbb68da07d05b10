package command_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

// entry is what an oracle knows of a key or bucket.
type entry struct {
	value string      // "bucket" and the sequence for a bucket
	pages [][]page.ID // all pages that lead to it from the root, the run of each; the last is the leaf
	// branches of its own tree on that way whose height shows elsewhere: not its root.
	inner map[page.ID]bool
}

// oracle is what a sound file holds, by path.
type oracle map[string]entry

const bucketMark = "bucket "

func pathOf(at string, name []byte) string { return at + "/" + string(name) }

// oracleOf walks the tree of a file that is sound. What it cannot read it leaves out.
func oracleOf(data []byte, pageSize int, root page.ID) oracle {
	image := page.NewImage(data, pageSize, page.ID(len(data)/pageSize))
	o := make(oracle)
	o.walk(&image, "", root, nil, nil, 0)
	return o
}

func (o oracle) walk(image *page.Image, at string, id page.ID, way [][]page.ID, inner []page.ID, depth int) {
	p, err := image.UnsealedPage(id)
	if err != nil || depth > 64 {
		return
	}
	var run []page.ID
	for i := range p.Pages() {
		run = append(run, id+page.ID(i))
	}
	way = append(way[:len(way):len(way)], run)
	if depth > 0 {
		inner = append(inner[:len(inner):len(inner)], id)
	}
	for i := range p.Count() {
		if !p.IsLeaf() {
			o.walk(image, at, p.Child(i), way, inner, depth+1)
			continue
		}
		e, err := p.Leaf(i)
		if err == nil {
			o.leaf(image, at, e, way, inner)
		}
	}
}

func (o oracle) leaf(image *page.Image, at string, e page.Element, way [][]page.ID, inner []page.ID) {
	path := pathOf(at, e.Key)
	known := entry{value: string(e.Value), pages: way, inner: make(map[page.ID]bool)}
	for _, id := range inner {
		known.inner[id] = true
	}
	if !e.IsBucket() {
		o[path] = known
		return
	}
	b, inline, err := page.DecodeBucket(e.Value)
	known.value = fmt.Sprint(bucketMark, b.Sequence)
	o[path] = known
	if b.Root != 0 {
		o.walk(image, path, b.Root, way, nil, 0)
		return
	}
	for i := 0; err == nil && i < inline.Count(); i++ {
		if e, err := inline.Leaf(i); err == nil {
			o.leaf(image, path, e, way, inner)
		}
	}
}

// memory is a sink that keeps all in memory.
type memory map[string]string

func placePath(p *salvage.Place) string {
	return strings.Join(append([]string{""}, names2(p.Path())...), "/")
}

func names2(path [][]byte) (out []string) {
	for _, name := range path {
		out = append(out, string(name))
	}
	return out
}

func (m memory) Begin(int) error { return nil }

func (m memory) Bucket(p *salvage.Place) (bool, error) {
	path := placePath(p)
	if old, ok := m[path]; ok {
		return strings.HasPrefix(old, bucketMark), nil
	}
	m[path] = fmt.Sprint(bucketMark, p.Sequence)
	return true, nil
}

func (m memory) Put(p *salvage.Place, key, value []byte) (salvage.Outcome, error) {
	path := pathOf(placePath(p), key)
	switch old, ok := m[path]; {
	case !ok:
		m[path] = string(value)
		return salvage.Saved, nil
	case old == string(value):
		return salvage.Same, nil
	}
	return salvage.Other, nil
}

func (m memory) Fresh(name string) (string, error) { return name, nil }

// salvaged is what was saved of a damaged file.
type salvaged struct {
	*salvage.Report
	held  memory
	found map[string]bool // name or key, and value, of all in lost+found

	replaced bool // pages were overwritten by others
}

func salvageBytes(data []byte, all bool) (s salvaged, err error) {
	s.held, s.found = make(memory), make(map[string]bool)
	s.Report, err = salvage.Run(context.Background(), bytes.NewReader(data), int64(len(data)), s.held, salvage.Options{All: all})
	for path, value := range s.held {
		if strings.HasPrefix(path, "/lost+found") {
			s.found[path[strings.LastIndex(path, "/"):]+"\x00"+value] = true
			delete(s.held, path)
		}
	}
	return s, err
}

// blind tells whether damage of the entry's leaf may not show: what was put in the
// place of the last of its pages, and so of the seal, has no seal itself.
func (s salvaged) blind(e entry, hit func([]page.ID) bool) bool {
	leaf := e.pages[len(e.pages)-1]
	return s.replaced && len(leaf) > 1 && hit(leaf[len(leaf)-1:])
}

// verify says what is wrong with what was saved of a file whose damaged pages are given.
// sealed: damage within a page shows. lone: it is that of one page, or two that were swapped.
func (s salvaged) verify(want oracle, damaged map[page.ID]bool, sealed, lone bool) (faults []string) {
	fault := func(format string, args ...any) {
		if len(faults) < 5 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	hit := func(run []page.ID) bool {
		for _, id := range run {
			if damaged[id] {
				return true
			}
		}
		return false
	}
	for path, e := range want {
		leaf, way := hit(e.pages[len(e.pages)-1]), false
		for i, run := range e.pages {
			way = way || hit(run) && (i+1 == len(e.pages) || !lone || !e.inner[run[0]])
		}
		got, there := s.held[path]
		switch {
		case there && got == e.value:
		case there && (sealed && !s.blind(e, hit) || !leaf):
			fault("%q is %.40q, and was %.40q", path, got, e.value)
		case there, leaf:
		case !way && sealed:
			fault("%q is not saved, and no page on its way was damaged so that this must be", path)
		case !s.found[path[strings.LastIndex(path, "/"):]+"\x00"+e.value]:
			fault("%q is not saved, and not in lost+found, and its page was not damaged", path)
		}
		if leaf && sealed && s.Sound() && !s.blind(e, hit) {
			fault("%q was in a damaged page, and nothing is lost?", path)
		}
	}
	for path := range s.held {
		if _, was := want[path]; !was && sealed {
			fault("%q was never there", path)
		}
	}
	return faults
}
