package page

// The pages of a new database.
const (
	firstList ID = 2
	firstRoot ID = 3
	// FirstPages is how many pages a new database has.
	FirstPages = 4
)

// MinNewPageSize is the smallest page size in bytes that a new database gets. With pages
// of 512 bytes a torn first meta leaves nothing that bbolt can open: it looks for the
// second one at 1,024 bytes and more.
const MinNewPageSize = 1024

// NewPageSize is the page size of a new database for which size bytes were asked for: a
// power of two, since neither engine looks for the second meta anywhere else.
func NewPageSize(size int) int {
	n := MinNewPageSize
	for n < size {
		n *= 2
	}
	return n
}

// NewFile is the content of a new database with pages of size bytes, with seals or without.
func NewFile(size int, seal bool) []byte {
	buf := make([]byte, FirstPages*size)
	at := func(id ID) []byte { return buf[int(id)*size:][:size] }
	for slot := ID(0); slot < FirstDataPage; slot++ {
		EncodeMeta(at(slot), slot, Meta{
			PageSize: uint32(size), Root: firstRoot, Freelist: firstList, HighWater: FirstPages, Label: Label(slot),
		}, nil)
	}
	EncodeFreelist(at(firstList), firstList, 0, 0, func(func(Extent) bool) {}, seal)
	leaf := NewLeaf(at(firstRoot), firstRoot, 0, 0)
	leaf.Finish(seal)
	return buf
}
