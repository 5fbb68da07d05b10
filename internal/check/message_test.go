package check_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"holdfast/internal/page"
)

// Elements of a damaged page can share their bytes, so that a page of 4 KiB
// holds thousands of keys and values of 4 KiB each. That they overlap was not
// reported, and each of them was believed.
func TestOverlapIsReported(t *testing.T) {
	f := newFile(4)
	f.leaf(2, nested("b", 3))
	f.leaf(3, kv("a"), kv("b"), element{key: "c", value: strings.Repeat("v", 200)})
	if faults := f.run(); len(faults) > 0 {
		t.Fatal(faults)
	}
	// The second key is, from "b" on, all that lies behind it: still in order.
	at := page.HeaderSize + page.LeafElementSize
	f.set32(3, at+8, 200)
	f.set32(3, at+12, 1)
	f.set32(3, page.HeaderSize+8, 202)
	want := "page 3: element 1 of 3 begins at byte "
	faults := f.run()
	if len(faults) != 1 || !strings.HasPrefix(faults[0], want) {
		t.Errorf("got %q, want one %q", faults, want)
	}
}

// Each message about keys out of order carried them whole, in hexadecimal: two
// thousand messages of 128 KB each from a file of 128 KB, and all of them are
// kept until somebody reads them. Keys, and the path of a bucket, are cut.
func TestMessagesAreShort(t *testing.T) {
	const pages, count = 16, 200
	f := newFile(2 + pages)
	buf := f.at(2)
	page.EncodeHeader(buf, page.Header{ID: 2, Flags: page.FlagLeaf, Count: count, Overflow: pages - 1})
	keys := page.HeaderSize + count*page.LeafElementSize
	for i := range count { // each the same key
		e := page.HeaderSize + i*page.LeafElementSize
		binary.NativeEndian.PutUint32(buf[e+4:], uint32(keys-e))
		binary.NativeEndian.PutUint32(buf[e+8:], uint32(len(buf)-keys))
	}
	f.in.Accounted = false
	faults := f.run()
	if len(faults) == 0 {
		t.Fatal("no fault is reported")
	}
	for _, text := range faults {
		if len(text) > 1500 {
			t.Fatalf("a message of %d bytes: %.200s", len(text), text)
		}
	}
	if !strings.Contains(faults[0], "... (4976 bytes)") {
		t.Errorf("the length of the key is not in %s", faults[0])
	}

	f = newFile(60)
	for id := page.ID(2); id < 59; id++ {
		f.leaf(id, nested(strings.Repeat("n", 100), id+1))
	}
	f.leaf(59, kv("b"), kv("a"))
	f.in.Accounted = false
	faults = f.run()
	if len(faults) != 1 || len(faults[0]) > 2000 || !strings.Contains(faults[0], "(in bucket .../") {
		t.Errorf("%d faults: %.3000q", len(faults), faults)
	}
}

// A key that is longer than any that can be put was not reported.
func TestKeyLengthIsReported(t *testing.T) {
	const pages = 80
	f := newFile(3 + pages)
	f.leaf(2, nested("b", 3))
	f.leaf(3, element{key: strings.Repeat("k", page.MaxKeySize)})
	f.in.Accounted = false
	if faults := f.run(); len(faults) > 0 {
		t.Errorf("the longest key: %.300q", faults)
	}
	f.leaf(3, element{key: strings.Repeat("k", page.MaxKeySize+1)})
	if faults := f.run(); len(faults) != 1 || !strings.Contains(faults[0], "element 0 has a key of 32769 bytes") {
		t.Errorf("one byte more: %.300q", faults)
	}
}

// Many elements of a damaged leaf can share one inline bucket, which was checked
// for each of them. Where elements are not packed nothing inline is looked at.
func TestInlineOfUnpackedLeaf(t *testing.T) {
	f := newFile(4)
	bad := func(name string) element { return inline(name, kv("y"), kv("x")) }
	f.leaf(2, nested("b", 3))
	f.leaf(3, bad("a"), bad("b"), element{key: "c", value: "zz"})
	expect(t, f.run(), []string{`page 3: key "x" of element 1 is not above`, `page 3: key "x" of element 1 is not above`})

	third := page.HeaderSize + 2*page.LeafElementSize
	pos := binary.NativeEndian.Uint32(f.at(3)[third+4:])
	f.set32(3, third+4, pos+1) // the key is "z" now, behind a gap
	f.set32(3, third+12, 1)
	expect(t, f.run(), []string{"page 3: element 2 of 3 begins at byte "})
}
