package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
)

// mutate damages the sample as the bytes of recipe say: first how many pages
// are left of it (0: all), then an offset and a value, again and again. Metas and
// extensions whose checksum a change broke get a right one, so that damage gets
// past it. The highest bit of the first two bytes chooses a file that was not
// closed, with a trailing meta.
func mutate(t testing.TB, recipe []byte) []byte {
	s := newSample(t)
	if len(recipe) < 2 {
		return s.data
	}
	all := int(s.meta.HighWater)
	if recipe[1]&0x80 != 0 {
		s.data = slices.Clone(trailingSample(t))
		all = len(s.data) / samplePageSize
	}
	if pages := int(binary.LittleEndian.Uint16(recipe)) % all; pages > 0 {
		s.data = s.data[:pages*samplePageSize]
	}
	for recipe = recipe[2:]; len(recipe) >= 4; recipe = recipe[4:] {
		at := (int(recipe[0]) | int(recipe[1])<<8 | int(recipe[2])<<16) % len(s.data)
		s.data[at] ^= recipe[3]
	}
	for slot := range 2 {
		if at := slot * samplePageSize; len(s.data) >= at+samplePageSize {
			m, _, ok := forceMeta(s.data[at:])
			if ok {
				ext := slices.Clone(s.data[at+page.ExtensionOffset : at+samplePageSize])
				page.EncodeMeta(s.data[at:at+samplePageSize], page.ID(slot), m, ext)
			}
			forceExtension(s.data[at : at+samplePageSize])
		}
	}
	return s.data
}

var (
	trailingOnce sync.Once
	trailingData []byte
)

// trailingSample is a file that was not closed, but for its random key the same
// each time.
func trailingSample(t testing.TB) []byte {
	trailingOnce.Do(func() { trailingData = newTrailed(t, samplePageSize, 40, anyExtension).data })
	return trailingData
}

// forceExtension gives the extension of a meta page, if there is one, a right
// checksum.
func forceExtension(buf []byte) {
	b := buf[page.ExtensionOffset:]
	end := int64(binary.NativeEndian.Uint32(b[12:])) - int64(len(extension.Hash{}))
	if string(b[:8]) != "HOLDFAST" || end < 64 || end > int64(len(b)-len(extension.Hash{})) {
		return
	}
	if h, err := extension.NewHasher([16]byte(b[32:48])); err == nil {
		sum := h.Sum(extension.OfMeta, 0, buf[:page.ExtensionOffset+end])
		copy(b[end:], sum[:])
	}
}

// forceMeta reads a meta whatever its checksum is.
func forceMeta(b []byte) (m page.Meta, raw []byte, ok bool) {
	if _, err := page.DecodeMeta(b); err == nil || err != page.ErrChecksum {
		return m, nil, false
	}
	f := b[page.HeaderSize:]
	order := binary.NativeEndian
	return page.Meta{
		PageSize: order.Uint32(f[8:]), Flags: order.Uint32(f[12:]), Root: page.ID(order.Uint64(f[16:])),
		Sequence: order.Uint64(f[24:]), Freelist: page.ID(order.Uint64(f[32:])),
		HighWater: page.ID(order.Uint64(f[40:])), Label: page.Label(order.Uint64(f[48:])),
	}, f, true
}

// FuzzDamagedFile opens, reads, checks, changes and copies a damaged file: no
// panic, no fault, no hang, no error but damage.
func FuzzDamagedFile(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{5, 0})
	f.Add([]byte{0, 0, 20, 4, 0, 1, 0, 8, 0, 0xFF})
	for i := range 6 { // a bit in the header of each of the first pages
		f.Add([]byte{0, 0, byte(8 + i%8), byte(4 * i), 0, 1 << (i % 8)})
	}
	for i := range 6 { // and in the first elements
		f.Add([]byte{0, 0, byte(16 + i), byte(4 * (i % 30)), byte(i % 2), 0x80 >> (i % 8)})
	}
	for i := range 48 { // and in what a trailing extension says
		field := []int{8, 9, 10, 11, 48, 56, 64, 72, 96, 104, 111, 120, 127, 160, 168, 169, 170, 172, 174, 180}[i%20]
		at := i%2*samplePageSize + page.ExtensionOffset + field
		f.Add([]byte{0, 0x80, byte(at), byte(at >> 8), 0, 1 << (i % 8)})
	}
	f.Fuzz(func(t *testing.T, recipe []byte) {
		data := mutate(t, recipe)
		for _, options := range []holdfast.Options{{ReadOnly: true}, {ReadOnly: true, PreLoadFreelist: true}, {}, {NoFreelistSync: true}} {
			n := allocated(func() {
				must(t, within(t, fmt.Sprint(options.ReadOnly, " ", options.PreLoadFreelist), func() error {
					return useDamaged(data, options)
				}))
			})
			if limit := uint64(allocBase + allocTimes*len(data)); n > limit {
				t.Fatalf("%+v: %d bytes allocated for a file of %d, at most %d are in proportion", options, n, len(data), limit)
			}
		}
	})
}

// What useDamaged may allocate with a file of n bytes: allocBase + allocTimes·n.
// The file is in memory, so that each growth and each mapping is a copy of it.
const (
	allocBase  = 8 << 20
	allocTimes = 32
)

// allocated is how many bytes are allocated while fn runs, by any goroutine.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// useDamaged does everything with a copy of a damaged file and returns an error
// that is not about the damage.
func useDamaged(data []byte, options holdfast.Options) error {
	mem := vfs.NewMem("mem")
	file := mem.Open()
	if _, err := file.WriteAt(data, 0); err != nil {
		return err
	}
	db, err := bridge.Open(exactFile{file}, &options)
	if err != nil {
		return notDamage("open", err)
	}
	for what, use := range map[string]func() error{
		"read":  func() error { return db.View(readAll) },
		"check": func() error { return checkOnly(db) },
		"copy": func() error {
			return db.View(func(tx *holdfast.Tx) error { return tx.Copy(io.Discard) })
		},
		"change and roll back": func() error {
			if err := changeEverything(db); err != holdfast.ErrDatabaseReadOnly {
				return err
			}
			return nil
		},
		"compact": func() error {
			dst, err := bridge.Open(exactFile{vfs.NewMem("copy").Open()}, nil)
			if err != nil {
				return err
			}
			defer dst.Close()
			return holdfast.Compact(dst, db, 10_000)
		},
	} {
		if err := notDamage(what, use()); err != nil {
			return err
		}
	}
	for i := range 3 {
		if db.IsReadOnly() {
			break
		}
		if err := notDamage("change", db.Update(func(tx *holdfast.Tx) error { return changeSome(tx, i) })); err != nil {
			return err
		}
	}
	return notDamage("close", db.Close())
}

// changeSome puts and deletes here and there, without a look at what is there.
func changeSome(tx *holdfast.Tx, i int) error {
	if b := tx.Bucket([]byte("keys")); b != nil {
		for k := i; k < 3000; k += 97 {
			if err := b.Put(sampleKey(k), make([]byte, 10*k%3000)); err != nil && err != holdfast.ErrIncompatibleValue {
				return err
			}
			if err := b.Delete(sampleKey(k + 1)); err != nil && err != holdfast.ErrIncompatibleValue {
				return err
			}
		}
	}
	for _, name := range []string{"nest", "big", "small"}[i:] {
		if err := tx.DeleteBucket([]byte(name)); err != nil && err != holdfast.ErrBucketNotFound && err != holdfast.ErrIncompatibleValue {
			return err
		}
	}
	return nil
}

// notDamage is an error that a damaged file does not explain.
func notDamage(what string, err error) error {
	var damage *holdfast.CorruptError
	switch {
	case err == nil, errors.As(err, &damage), errors.Is(err, holdfast.ErrInvalid),
		errors.Is(err, holdfast.ErrVersionMismatch), err == holdfast.ErrChecksum:
		return nil
	case what == "compact": // it may find a key where only buckets can be
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// readAll reads in every way, whatever there is.
func readAll(tx *holdfast.Tx) error {
	r := reader{tx: tx}
	for c, k := topLevel(tx); k != nil; k, _ = c.Next() {
		r.bucket(tx.Bucket(k), 0)
	}
	tx.Inspect()
	for id := range 200 {
		if _, err := tx.Page(id); err != nil && err != holdfast.ErrFreePagesNotLoaded {
			return err
		}
	}
	return nil
}

// The meta that wins gives another page size than the first meta, by which the
// file is read. It is refused, also where the file is long enough for both.
func TestMetasOfDifferentPageSizes(t *testing.T) {
	s := newSample(t)
	m := s.meta
	m.PageSize = samplePageSize / 2
	m.Label = (m.Label + 1) | 1 // which wins, in slot 1
	page.EncodeMeta(s.data[samplePageSize:][:samplePageSize], 1, m, nil)
	for _, options := range []holdfast.Options{{ReadOnly: true}, {}} {
		mem := vfs.NewMem("mem")
		file := mem.Open()
		_, err := file.WriteAt(s.data, 0)
		must(t, err)
		db, err := bridge.Open(exactFile{file}, &options)
		var damage *holdfast.CorruptError
		if err == nil {
			db.Close()
		}
		if !errors.As(err, &damage) || damage.Page != 1 {
			t.Errorf("read-only %t: %v, want damage on page 1", options.ReadOnly, err)
		}
	}
}

// A freelist that names the root page is refused before anybody writes there.
func TestRootListedAsFree(t *testing.T) {
	s := newSample(t)
	setFreelist(s, func(ids []page.ID) []page.ID { return append(ids, s.meta.Root) })
	file := vfs.NewMem("mem").Open()
	_, err := file.WriteAt(s.data, 0)
	must(t, err)
	db, err := bridge.Open(exactFile{file}, &holdfast.Options{})
	var damage *holdfast.CorruptError
	if err == nil {
		db.Close()
	}
	if !errors.As(err, &damage) || damage.Page != s.meta.Root {
		t.Errorf("%v, want damage on page %d", err, s.meta.Root)
	}
}
