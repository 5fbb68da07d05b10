package programs

import (
	"bytes"
	"testing"
)

// TestDamages sees that each damage changes a file, stays within it, and is the same each time.
func TestDamages(t *testing.T) {
	whole := bytes.Repeat([]byte{0x5a}, 8*damagedPage)
	list := damages(len(whole))
	if len(list) != 11+4*6 {
		t.Errorf("%d damages", len(list))
	}
	names := map[string]bool{}
	for _, d := range list {
		got, again := d.do(bytes.Clone(whole)), d.do(bytes.Clone(whole))
		if bytes.Equal(got, whole) || len(got) > len(whole) || !bytes.Equal(got, again) || names[d.name] {
			t.Errorf("%s: %d bytes, the same again: %v", d.name, len(got), bytes.Equal(got, again))
		}
		names[d.name] = true
	}
}
