package vfs

import (
	"bytes"
	"errors"
	"testing"
)

// What was cut off and has grown again is zero for those who go on, and zeros, what was
// there, or garbage behind a power failure: the file may be long or short then.
func TestCrashCutOff(t *testing.T) {
	c := NewCrash("db", fill('0', 8*512), nil)
	f := c.Open()
	if err := f.Truncate(2 * 512); err != nil {
		t.Fatal(err)
	}
	sizes := map[int]bool{}
	for _, d := range disks(c, 1, 100) {
		sizes[len(d)] = true
		if !bytes.Equal(d[:2*512], fill('0', 2*512)) {
			t.Fatal("what was not cut off has changed")
		}
	}
	if !sizes[2*512] || !sizes[8*512] || len(sizes) != 2 {
		t.Errorf("disks of sizes %v", sizes)
	}
	if err := f.Grow(8 * 512); err != nil {
		t.Fatal(err)
	}
	put(t, f, 4*512, fill('1', 512))
	var zero, old, garbage, short, mixed bool
	for seed := range uint64(50) {
		for _, d := range disks(c, seed, 50) {
			if short = short || len(d) == 2*512; len(d) < 8*512 {
				continue
			}
			hasZero, hasOld := bytes.Contains(d[2*512:], make([]byte, 512)), bytes.Contains(d[2*512:], fill('0', 512))
			zero, old, mixed = zero || hasZero, old || hasOld, mixed || hasZero && hasOld
			garbage = garbage || d[7*512] != 0 && d[7*512] != '0'
		}
	}
	if !zero || !old || !garbage || !short || !mixed {
		t.Errorf("among all disks: zeros %t, what was there %t, both %t, garbage %t, a short one %t", zero, old, mixed, garbage, short)
	}
	flush(t, f)
	want := append(fill('0', 2*512), make([]byte, 6*512)...)
	copy(want[4*512:], fill('1', 512))
	if d := disks(c, 1, 10); len(d) != 1 || !bytes.Equal(d[0], want) || !bytes.Equal(c.Bytes(), want) {
		t.Error("flushed, the disk is not what was written")
	}
}

// Of few blocks all combinations are tried, each with the file long or short.
func TestCrashCutOffEnumerates(t *testing.T) {
	c := NewCrash("db", fill('0', 4*4096), nil)
	f := c.Open()
	put(t, f, 0, fill('1', 4096))
	if err := f.Truncate(3 * 4096); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		for _, d := range disks(c, seed, 0) {
			seen[string([]byte{d[0], byte('0' + len(d)/4096)})] = true
		}
	}
	for _, want := range []string{"04", "03", "14", "13"} {
		if !seen[want] {
			t.Errorf("no disk that begins with %c and has %c blocks", want[0], want[1])
		}
	}
}

// A file that is cut off below a mapping shows there what nobody wrote, and zeros when
// it has grown again.
func TestCrashOpenAhead(t *testing.T) {
	c := NewCrash("db", fill('0', 4096), nil)
	if c.Open().MapBeyondEnd() {
		t.Error("a handle maps beyond the end")
	}
	f := c.OpenAhead(8192)
	m, err := f.Map(1<<40, MapOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !f.MapBeyondEnd() || len(m.Data()) != 4096+8192 {
		t.Errorf("%d bytes are mapped", len(m.Data()))
	}
	if err := errors.Join(f.Truncate(1024), f.Grow(1024)); err != nil {
		t.Fatal(err)
	}
	if m.Data()[1023] != '0' || m.Data()[1024] == '0' || m.Data()[1024] == 0 {
		t.Error("what was cut off can still be read")
	}
	put(t, f, 2048, fill('2', 512))
	if want := append(append(fill('0', 1024), make([]byte, 1024)...), fill('2', 512)...); !bytes.Equal(m.Data()[:2560], want) {
		t.Error("behind a growth the mapping shows something else than the file")
	}
}
