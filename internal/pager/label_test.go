package pager_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// A file whose metas give a transaction id near 2^64 was opened, and the next
// commit counted on from zero: its meta was the older one, so the commit was
// lost, or a panic said that states do not go back.
func TestLabelBounds(t *testing.T) {
	for label, sound := range map[page.Label]bool{
		1 << 40:        true,
		1 << 62:        true,
		1 << 63:        false,
		math.MaxUint64: false, math.MaxUint64 - 1: false,
	} {
		e := newEnv(t)
		e.mustCommit("before", 1)
		e.close()
		slots := e.slots()
		best, _ := slots.Best()
		m := slots.Meta[best]
		m.Label = label + page.Label(best) // each slot has numbers of its own parity
		if !sound && m.Label < label {
			m.Label = label - 1
		}
		buf := make([]byte, pageSize)
		page.EncodeMeta(buf, page.ID(best), m, nil)
		f := e.mem.Open()
		if _, err := f.WriteAt(buf, int64(best)*pageSize); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		before := e.mem.Bytes()
		err := e.tryOpen(pager.Options{})
		if !sound {
			var damage *page.CorruptError
			if !errors.As(err, &damage) || !bytes.Equal(before, e.mem.Bytes()) {
				t.Errorf("label %d: %v", uint64(m.Label), err)
			}
			continue
		}
		if err != nil {
			t.Errorf("label %d: %v", uint64(m.Label), err)
			continue
		}
		e.mustCommit("after", 1)
		e.close()
		e.open(pager.Options{})
		if e.read() != "after" {
			t.Errorf("label %d: a commit was lost", uint64(m.Label))
		}
	}
}
