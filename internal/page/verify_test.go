package page

import (
	"bytes"
	"sync/atomic"
	"testing"
)

// imageOf is an image of 64 pages of 512 bytes with the runs from page 7 on.
func imageOf(v *Verified, runs ...[]byte) Image {
	data := make([]byte, 64*512)
	copy(data[7*512:], bytes.Join(runs, nil))
	return NewImage(data, 512, 64).Verifying(v)
}

func longLeaf(pages int) []byte {
	run := make([]byte, pages*512)
	e := NewLeaf(run, 7, 2, uint32(pages-1))
	e.Leaf(0, []byte("k"), bytes.Repeat([]byte("v"), (pages-1)*512))
	e.Leaf(0, []byte("l"), []byte("short"))
	e.Finish(true)
	return run
}

// A seal is looked at when its page is first read, and not again.
func TestVerifiedOnce(t *testing.T) {
	for name, run := range sealedRuns(512) {
		if name == "freelist" {
			continue
		}
		v := NewVerified(64, nil, new(atomic.Int64))
		m := imageOf(v, run)
		for range 3 {
			if p, err := m.Page(7); err != nil || p.Unverified() {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if v.passes.Load() != 1 {
			t.Errorf("%s: looked at %d times", name, v.passes.Load())
		}
		// A mapping of its own, over the same pages.
		again := NewVerified(100, v, v.passes)
		m = imageOf(again, run)
		if _, err := m.Page(7); err != nil || again.passes.Load() != 1 {
			t.Errorf("%s: mapped again: %v, looked at %d times", name, err, again.passes.Load())
		}
		run[20] ^= 1
		m = imageOf(NewVerified(64, nil, new(atomic.Int64)), run)
		for range 2 { // it stays wrong
			if _, err := m.Page(7); !damaged(err, 7, "holdfast reseal FILE") {
				t.Errorf("%s: a wrong seal: %v", name, err)
			}
		}
		m = imageOf(nil, run)
		if _, err := m.Page(7); err != nil && name == "leaf" {
			t.Errorf("%s: without seals: %v", name, err)
		}
	}
}

// The seal of a long leaf waits for a value to be read; those of others do not.
func TestVerifiedLate(t *testing.T) {
	for pages := maxEagerPages - 1; pages <= maxEagerPages+2; pages++ {
		run := longLeaf(pages)
		v := NewVerified(64, nil, new(atomic.Int64))
		m := imageOf(v, run)
		p, err := m.Page(7)
		if err != nil || p.Unverified() != (pages > maxEagerPages) || v.passes.Load() != int64(min(1, max(0, maxEagerPages+1-pages))) {
			t.Fatalf("%d pages: %v, unverified %t, looked at %d times", pages, err, p.Unverified(), v.passes.Load())
		}
		for range 2 {
			if p, err := m.Verify(p); err != nil || p.Unverified() || v.passes.Load() != 1 {
				t.Errorf("%d pages: %v, unverified %t, looked at %d times", pages, err, p.Unverified(), v.passes.Load())
			}
		}
		if p, err := m.Page(7); err != nil || p.Unverified() {
			t.Errorf("%d pages: read again: %v, unverified %t", pages, err, p.Unverified())
		}
		run[600] ^= 1
		m = imageOf(NewVerified(64, nil, new(atomic.Int64)), run)
		if p, err = m.Page(7); err == nil {
			_, err = m.Verify(p)
		}
		if !damaged(err, 7, "its checksum does not match") {
			t.Errorf("%d pages: a wrong seal: %v", pages, err)
		}
	}
	branch := make([]byte, 20*512)
	e := NewBranch(branch, 7, 2, 19)
	e.Branch([]byte("a"), 100)
	e.Branch(bytes.Repeat([]byte("b"), 19*512), 100)
	e.Finish(true)
	branch[5000] ^= 1
	m := imageOf(NewVerified(64, nil, new(atomic.Int64)), branch)
	if _, err := m.Page(7); !damaged(err, 7, "its checksum does not match") {
		t.Errorf("a long branch: %v", err)
	}
}

// The freelist page is verified when it is read.
func TestVerifiedFreelist(t *testing.T) {
	list := sealedRuns(512)["freelist"]
	m := imageOf(NewVerified(64, nil, new(atomic.Int64)), list)
	if _, _, err := m.Freelist(7); err != nil {
		t.Error(err)
	}
	list[HeaderSize+16]++ // another free page
	m = imageOf(NewVerified(64, nil, new(atomic.Int64)), list)
	if _, _, err := m.Freelist(7); !damaged(err, 7, "its checksum does not match") {
		t.Errorf("a wrong seal: %v", err)
	}
	m = imageOf(nil, list)
	if _, _, err := m.Freelist(7); err != nil {
		t.Errorf("without seals: %v", err)
	}
}
