package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"holdfast/command/cli"
	"holdfast/internal/extension"
	"holdfast/internal/page"
)

// metaPage is what stands in a meta page, right or wrong.
type metaPage struct {
	page.Meta
	magicRight bool
	version    uint32
	checksum   uint64 // as it stands there
	computed   uint64 // what it should be
	err        error  // why the meta does not count
	ext        *extension.Extension
	extErr     error // why there is no ext: extension.ErrNone if it has none
}

// Where the fields of a meta stand, in bytes after the page's header.
const (
	metaMagic = 0xED0CDAED

	atMetaVersion = 4
	atMetaSum     = 56
)

// readMeta reads a meta page from its beginning, which may be cut off anywhere.
func readMeta(buf []byte) metaPage {
	m := metaPage{extErr: extension.ErrNone}
	if len(buf) < page.ExtensionOffset {
		m.err = page.ErrInvalid
		return m
	}
	b, order := buf[page.HeaderSize:], binary.NativeEndian
	m.Meta = page.MetaFields(buf)
	m.magicRight = order.Uint32(b) == metaMagic
	m.version, m.checksum = order.Uint32(b[atMetaVersion:]), order.Uint64(b[atMetaSum:])
	sum := fnv.New64a()
	_, _ = sum.Write(b[:atMetaSum])
	m.computed = sum.Sum64()
	_, m.err = page.DecodeMeta(buf)
	m.ext, m.extErr = extension.Decode(buf)
	return m
}

// printStock prints the lines of bbolt.
func (m *metaPage) printStock(w io.Writer) {
	fmt.Fprintf(w, "Version:    %d\n", m.version)
	fmt.Fprintf(w, "Page Size:  %d bytes\n", m.PageSize)
	fmt.Fprintf(w, "Flags:      %08x\n", m.Flags)
	fmt.Fprintf(w, "Root:       <pgid=%d>\n", m.Root)
	fmt.Fprintf(w, "Freelist:   <pgid=%d>\n", m.Freelist)
	fmt.Fprintf(w, "HWM:        <pgid=%d>\n", m.HighWater)
	fmt.Fprintf(w, "Txn ID:     %d\n", m.Label)
	fmt.Fprintf(w, "Checksum:   %016x\n\n", m.checksum)
}

// metaJSON is a meta page in JSON.
type metaJSON struct {
	Current    bool           `json:"current"` // the one that bbolt opens
	Valid      bool           `json:"valid"`
	Error      string         `json:"error,omitempty"`
	Version    uint32         `json:"version"`
	PageSize   uint32         `json:"page_size_bytes"`
	Flags      uint32         `json:"flags"`
	Root       uint64         `json:"root_page"`
	Sequence   uint64         `json:"root_sequence"`
	Freelist   *uint64        `json:"freelist_page"`
	HighWater  uint64         `json:"high_water_pages"`
	TxID       uint64         `json:"txid"`
	Checksum   string         `json:"checksum"`
	Computed   string         `json:"checksum_computed"`
	Extension  *extensionJSON `json:"extension"`
	ExtensionE string         `json:"extension_error,omitempty"`
}

// extensionJSON is what Holdfast has in a meta page.
type extensionJSON struct {
	Kind        string        `json:"kind"` // plain or trailing
	Transaction uint64        `json:"transaction"`
	SealSum     *string       `json:"seal_sum"` // null: not recorded
	Trailing    *trailingJSON `json:"trailing"`
	FreePages   *uint64       `json:"free_pages"` // null: not recorded
	InlineBytes int           `json:"inline_bytes"`
	Runs        []runJSON     `json:"record_runs"`
	Freelists   []extentJSON  `json:"freelists"`
}

type trailingJSON struct {
	Base      uint64       `json:"base_transaction"`
	Root      uint64       `json:"root_page"`
	Sequence  uint64       `json:"root_sequence"`
	HighWater uint64       `json:"high_water_pages"`
	Extents   []extentJSON `json:"written"`
}

type runJSON struct {
	Kind  string `json:"kind"` // snapshot or log
	Page  uint64 `json:"page"`
	Pages uint32 `json:"pages"`
	Bytes uint32 `json:"bytes"`
}

type extentJSON struct {
	Page  uint64 `json:"page"`
	Pages uint64 `json:"pages"`
}

func newExtent(e page.Extent) extentJSON { return extentJSON{uint64(e.Start), e.N} }

func (m *metaPage) json(current bool) *metaJSON {
	j := &metaJSON{
		Current: current, Valid: m.err == nil, Version: m.version, PageSize: m.PageSize, Flags: m.Flags,
		Root: uint64(m.Root), Sequence: m.Sequence, HighWater: uint64(m.HighWater), TxID: uint64(m.Label),
		Checksum: fmt.Sprintf("%016x", m.checksum), Computed: fmt.Sprintf("%016x", m.computed),
	}
	if m.err != nil {
		j.Error = m.err.Error()
	}
	if id := uint64(m.Freelist); m.Freelist != page.NoFreelist {
		j.Freelist = &id
	}
	if m.ext == nil {
		if !errors.Is(m.extErr, extension.ErrNone) {
			j.ExtensionE = m.extErr.Error()
		}
		return j
	}
	j.Extension = m.extensionJSON()
	return j
}

func (m *metaPage) extensionJSON() *extensionJSON {
	e := &extensionJSON{Kind: "plain", Transaction: uint64(m.ext.Tx), Runs: []runJSON{}, Freelists: []extentJSON{}}
	if m.ext.Sum.Known {
		sum := fmt.Sprintf("%016x", m.ext.Sum.N)
		e.SealSum = &sum
	}
	if t := m.ext.Trailing; t != nil {
		e.Kind = "trailing"
		e.Trailing = &trailingJSON{Base: uint64(t.Base), Root: uint64(t.Root), Sequence: t.Sequence, HighWater: uint64(t.HighWater), Extents: []extentJSON{}}
		_ = extension.Extents(t.Written, t.HighWater, func(x page.Extent) error { // as far as it can be read
			e.Trailing.Extents = append(e.Trailing.Extents, newExtent(x))
			return nil
		})
	}
	for _, l := range m.ext.Lists {
		e.Freelists = append(e.Freelists, newExtent(l))
	}
	if m.ext.Free != nil {
		e.FreePages, e.InlineBytes = &m.ext.Free.Count, len(m.ext.Free.Inline)
		for _, r := range recordsOf(0, m.ext) {
			e.Runs = append(e.Runs, runJSON{Kind: r.kind(), Page: uint64(r.Start), Pages: r.Pages, Bytes: r.Bytes})
		}
	}
	return e
}

// kind names what the record is.
func (r *recordRun) kind() string {
	if r.log > 0 {
		return "log"
	}
	return "snapshot"
}

// rows are the lines that describe a meta page.
func (m *metaPage) rows(c *cli.Call, current bool) [][2]string {
	state := "older than the other"
	switch {
	case m.err != nil:
		state = c.Paint(cli.Yellow, "damaged: "+m.err.Error())
	case current:
		state = "the one that bbolt opens"
	}
	sum := fmt.Sprintf("%016x", m.checksum)
	if m.checksum == m.computed {
		sum += ", right"
	} else {
		sum += fmt.Sprintf(", wrong: the meta's is %016x", m.computed)
	}
	freelist := fmt.Sprintf("page %d", m.Freelist)
	if m.Freelist == page.NoFreelist {
		freelist = "none"
	}
	lines := [][2]string{
		{"State", state},
		{"Version", fmt.Sprint(m.version)},
		{"Page size", fmt.Sprintf("%d bytes", m.PageSize)},
		{"Flags", fmt.Sprintf("%08x", m.Flags)},
		{"Root bucket", fmt.Sprintf("page %d, sequence %d", m.Root, m.Sequence)},
		{"Freelist", freelist},
		{"High water", fmt.Sprintf("page %d", m.HighWater)},
		{"Transaction", fmt.Sprintf("%d (bbolt's transaction id)", m.Label)},
		{"Checksum", sum},
	}
	return append(lines, m.extensionRows(c)...)
}

func (m *metaPage) extensionRows(c *cli.Call) (lines [][2]string) {
	add := func(name, format string, args ...any) {
		lines = append(lines, [2]string{name, fmt.Sprintf(format, args...)})
	}
	switch {
	case errors.Is(m.extErr, extension.ErrNone):
		add("Holdfast", "nothing of Holdfast's is after the meta")
		return lines
	case m.extErr != nil:
		add("Holdfast", "%s", c.Paint(cli.Yellow, "not to be believed: "+m.extErr.Error()))
		return lines
	}
	if t := m.ext.Trailing; t != nil {
		add("Holdfast", "transaction %d, newer than this meta's, which is %d: it counts if its pages are whole", m.ext.Tx, t.Base)
		add("  root bucket", "page %d, sequence %d", t.Root, t.Sequence)
		add("  high water", "page %d", t.HighWater)
	} else {
		add("Holdfast", "transaction %d, the state of this meta", m.ext.Tx)
	}
	if m.ext.Sum.Known {
		add("  tree sum", "%016x", m.ext.Sum.N)
	} else {
		add("  tree sum", "not recorded")
	}
	if m.ext.Free == nil {
		add("  free pages", "not recorded")
	} else {
		add("  free pages", "%s recorded, %d bytes of changes in this page", cli.Count(m.ext.Free.Count), len(m.ext.Free.Inline))
	}
	for _, r := range recordsOf(0, m.ext) {
		add("  "+r.kind(), "page %d, %s, %d bytes", r.Start, cli.Plural(uint64(r.Pages), "page"), r.Bytes)
	}
	for _, l := range m.ext.Lists {
		add("  freelist", "page %d, %s", l.Start, cli.Plural(l.N, "page"))
	}
	return lines
}
