package damage

import (
	"encoding/binary"
	"fmt"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// Offsets in an extension (docs/format.md), with sizes and names.
var extensionFields = []struct {
	off, size int
	name      string
}{
	{9, 1, "log runs"},
	{10, 1, "flags"},
	{11, 1, "freelists"},
	{16, 8, "database"},
	{48, 8, "number"},
	{56, 8, "free pages"},
	{64, 8, "snapshot: page"},
	{72, 4, "snapshot: pages"},
	{76, 4, "snapshot: bytes"},
	{96, 8, "base"},
	{104, 8, "root"},
	{112, 8, "sequence"},
	{120, 8, "high-water mark"},
	{128, 8, "key of pages"},
	{144, 8, "hash of pages"},
	{160, 4, "bytes listed"},
	{168, 8, "first freelist or log run: page"},
	{176, 4, "first freelist or log run: pages"},
	{180, 4, "first log run: bytes"},
	{184, 8, "behind it"},
}

// setExtension sets a field of an extension, which gets a right checksum. What it
// says besides the meta need not be noticed: it costs time, or the newest state,
// as after a power failure.
func setExtension(s *sample, data []byte, c chooser) ([]byte, mutation) {
	slot, f := c.IntN(2), extensionFields[c.IntN(len(extensionFields))]
	buf := data[slot*s.kind.pageSize:][:s.kind.pageSize]
	b := buf[page.ExtensionOffset:]
	end := int64(binary.NativeEndian.Uint32(b[12:])) - int64(len(extension.Hash{}))
	if string(b[:8]) != "HOLDFAST" || end < int64(f.off+f.size) || end > int64(len(b)-len(extension.Hash{})) {
		return flipBit(s, data, c)
	}
	at := slot*s.kind.pageSize + page.ExtensionOffset + f.off
	was := s.get(at, f.size)
	v := s.edge(was, f.size, c)
	set(data[at:], f.size, v)
	if h, err := extension.NewHasher([16]byte(b[32:48])); err == nil {
		sum := h.Sum(extension.OfMeta, 0, buf[:page.ExtensionOffset+end])
		copy(b[end:], sum[:])
	}
	return data, mutation{text: fmt.Sprintf("extension in slot %d: %s %d becomes %d; meta %d wins", slot, f.name, was, v, s.slot)}
}
