package pager_test

import (
	"bytes"
	"slices"
	"testing"

	"holdfast/internal/page"
	"holdfast/internal/pager"
)

// A database of another version or byte order in which nothing is stored yet
// was taken for one whose creation a crash had cut short, and was overwritten
// by a new one.
func TestOtherVersionIsNotInterrupted(t *testing.T) {
	const magic, version, checksum = page.HeaderSize, page.HeaderSize + 4, page.HeaderSize + 40
	newer := func(meta []byte) { meta[version] = 3 }
	torn := func(meta []byte) { meta[checksum] ^= 1 }
	zero := func(meta []byte) { clear(meta) }
	swapped := func(meta []byte) { slices.Reverse(meta[magic : magic+4]) }
	for name, damage := range map[string][2]func([]byte){
		"both newer":         {newer, newer},
		"newer, then torn":   {newer, torn},
		"torn, then newer":   {torn, newer},
		"newer, then zeros":  {newer, zero},
		"zeros, then newer":  {zero, newer},
		"both swapped":       {swapped, swapped},
		"torn, then swapped": {torn, swapped},
	} {
		e := newEnv(t)
		e.close()
		data := e.mem.Bytes()
		for slot := range 2 {
			damage[slot](data[slot*pageSize:][:pageSize])
		}
		f := e.mem.Open()
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if err := e.tryOpen(pager.Options{}); err == nil {
			t.Errorf("%s: the file is opened", name)
			e.close()
		}
		if !bytes.Equal(e.mem.Bytes(), data) {
			t.Errorf("%s: the file was overwritten", name)
		}
	}
}
