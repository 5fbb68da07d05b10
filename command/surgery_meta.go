package command

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/internal/extension"
	"holdfast/internal/page"
)

const revertHelp = `Go back to the state before the newest one: both meta pages get to describe that.
The pages of that state are all still there, as long as nothing was committed since.

Which state that is depends on how the file was left. In mid use it is the one before
the last flush. A file that bbolt has closed goes back by its last transaction. One
that Holdfast has closed often has the same state in both meta pages, and then there is
nothing to go back to.`

const metaUpdateHelp = `Change fields of a meta page, and make it whole: its magic, version and checksum
are written anew, whatever was wrong with them.

--fields takes pairs as root:16,freelist:8 and can be given more than once. The
fields are root (page of the root bucket), freelist (its page; 18446744073709551615 for
none), pgid (the high-water mark: first page never used) and pageSize. If root or pgid
is given and freelist is not, the meta names no freelist any more: the old
one is that of another tree.`

// Fields that can be updated.
const (
	fieldPageSize = "pageSize"
	fieldRoot     = "root"
	fieldFreelist = "freelist"
	fieldPgid     = "pgid"
)

func (a *app) newRevertMetaPage() *cobra.Command {
	return a.newOperation(operation{
		use: "revert-meta-page", short: "Go back to the state before the newest", long: revertHelp,
		look:  func(_ *call, p *patient) error { return p.err },
		raw:   true,
		do:    (*surgeon).revert,
		stock: func(s *surgeon) { fmt.Fprintln(s.out, "The meta page is reverted.") },
	})
}

// revert makes both slots describe the state before the newest.
func (s *surgeon) revert() error {
	if err := s.needState(); err != nil {
		return err
	}
	ext, err := s.extension()
	if err != nil {
		return err
	}
	from := 1 - s.best
	if ext != nil && ext.Trailing != nil && s.isBehind() {
		// The newest state is the extension's. The one before is that of the meta
		// itself, and not the other slot's, which is older still.
		from = s.best
		s.r.did("the file was left in mid use: its newest state, which bbolt does not see, is given up")
	}
	older, newer := s.slots.Meta[from], s.slots.Meta[s.best]
	switch {
	case s.slots.Err[from] != nil:
		return &fileError{
			file: s.r.File, what: fmt.Sprintf("meta page %d is not whole (%s): there is no state to go back to", from, s.slots.Err[from]),
			next: "restore a copy of it", err: s.slots.Err[from],
		}
	case older.Check(s.size) != nil:
		return older.Check(s.size)
	case from != s.best && sameState(older, newer) && !s.stock:
		return &fileError{
			file: s.r.File, what: "both meta pages describe the same state: there is none to go back to", next: "restore a copy of it", err: errNothingBefore,
		}
	}
	for slot := range s.slots.Meta {
		if err := s.putMeta(slot, older); err != nil {
			return err
		}
	}
	s.r.did("both meta pages describe transaction %d, as bbolt counts, with page %d as root", older.Label, older.Root)
	if from != s.best && older.Root == newer.Root && older.Sequence == newer.Sequence {
		s.r.warn("that is the root of the newest state too: the buckets hold the same")
	}
	return nil
}

var (
	errNothingBefore = errors.New("no state before")
	errNoFreelist    = errors.New("no freelist page")
)

// sameState tells whether two metas differ at most in their labels.
func sameState(a, b page.Meta) bool {
	a.Label = b.Label
	return a == b
}

// isBehind tells whether the copy's newest state is one that bbolt does not find.
func (s *surgeon) isBehind() bool {
	d, err := s.read(s.file.Name(), false)
	if err != nil {
		return false
	}
	defer d.Close()
	return d.FileState().BboltBehind
}

// copyMeta makes a slot describe what the other does.
func (s *surgeon) copyMeta(from, to int) error {
	if err := s.needState(); err != nil {
		return err
	}
	if err := s.slots.Err[from]; err != nil {
		return &fileError{
			file: s.r.File, what: fmt.Sprintf("meta page %d is not whole (%s), and the other one is better", from, err),
			next: fmt.Sprintf("%s surgery meta validate shows both", s.name()), err: err,
		}
	}
	m := s.slots.Meta[from]
	for _, slot := range []int{from, to} { // so that nothing of Holdfast's is behind either
		if err := s.putMeta(slot, m); err != nil {
			return err
		}
	}
	s.r.did("meta page %d was copied to meta page %d", from, to)
	return nil
}

func (a *app) newMetaUpdate() *cobra.Command {
	var fields []string
	var slot uint32
	var values map[string]uint64
	cmd := a.newOperation(operation{
		use: "update", short: "Change fields of a meta page", long: metaUpdateHelp,
		look: func(_ *call, p *patient) (err error) {
			if slot > 1 {
				return usagef("--%s: the meta pages are 0 and 1, not %d", flagMetaPage, slot)
			}
			values, err = parseFields(fields)
			return err
		},
		do: func(s *surgeon) error { return s.updateMeta(int(slot), values) },
		stock: func(s *surgeon) {
			if s.r.Changed {
				fmt.Fprintf(s.out, "The meta page %d has been updated!\n", slot)
			} else {
				fmt.Fprintln(s.out, "Nothing changed!")
			}
		},
	})
	cmd.Flags().StringSliceVar(&fields, flagFields, nil, "what to change, as root:16,freelist:8; of root, freelist, pgid and pageSize")
	cmd.Flags().Uint32Var(&slot, flagMetaPage, 0, "the meta page to change, 0 or 1")
	return cmd
}

// parseFields reads what --fields has.
func parseFields(fields []string) (map[string]uint64, error) {
	values := map[string]uint64{}
	for _, field := range fields {
		name, text, ok := strings.Cut(field, ":")
		if !ok || strings.Contains(text, ":") {
			return nil, usagef("--%s: invalid key-value pair: %s; give it as root:16", flagFields, field)
		}
		if known := []string{fieldRoot, fieldFreelist, fieldPgid, fieldPageSize}; !slices.Contains(known, name) {
			return nil, usagef("--%s: field %q isn't allowed to be updated; there are %s", flagFields, name, strings.Join(known, ", "))
		}
		value, err := strconv.ParseUint(text, 10, 64)
		if err != nil || name == fieldPageSize && value > math.MaxUint32 {
			return nil, usagef("--%s: invalid value %q for field %q", flagFields, text, name)
		}
		values[name] = value
	}
	return values, nil
}

// updateMeta changes fields of a meta and makes it whole.
func (s *surgeon) updateMeta(slot int, values map[string]uint64) error {
	if slot == 1 && s.pageSize == 0 {
		return &fileError{file: s.r.File, what: "its page size cannot be told, so neither where meta page 1 is", next: "give meta page 0 its pageSize first", err: page.ErrInvalid}
	}
	buf, err := s.metaPage(slot)
	if err != nil {
		return err
	}
	old, err := page.DecodeMeta(buf)
	if errors.Is(err, page.ErrInvalid) && err != page.ErrInvalid { // the other byte order
		return err
	}
	wasWhole := err == nil
	if !wasWhole {
		old = page.MetaFields(buf)
	}
	m := updated(old, values)
	if wasWhole && m == old {
		return nil
	}
	if m.Freelist != old.Freelist {
		s.r.FreelistAbandoned = m.Freelist == page.NoFreelist
	}
	if err := s.forgetExtensions(); err != nil {
		return err
	}
	if err := s.putMeta(slot, m); err != nil {
		return err
	}
	s.r.did("meta page %d: %s", slot, changesOf(old, m, wasWhole))
	return s.judgeMetas(slot)
}

// updated is old with the fields that are given.
func updated(old page.Meta, values map[string]uint64) page.Meta {
	m := old
	for name, value := range values {
		switch name {
		case fieldPageSize:
			m.PageSize = uint32(value)
		case fieldRoot:
			m.Root = page.ID(value)
		case fieldFreelist:
			m.Freelist = page.ID(value)
		case fieldPgid:
			m.HighWater = page.ID(value)
		}
	}
	if _, given := values[fieldFreelist]; !given && (m.Root != old.Root || m.HighWater != old.HighWater) {
		m.Freelist = page.NoFreelist
	}
	return m
}

// changesOf says what was changed.
func changesOf(old, m page.Meta, wasWhole bool) string {
	var parts []string
	note := func(name string, old, value uint64) {
		if old != value {
			parts = append(parts, fmt.Sprintf("%s %s -> %s", name, metaNumber(old), metaNumber(value)))
		}
	}
	note(fieldPageSize, uint64(old.PageSize), uint64(m.PageSize))
	note(fieldRoot, uint64(old.Root), uint64(m.Root))
	note(fieldFreelist, uint64(old.Freelist), uint64(m.Freelist))
	note(fieldPgid, uint64(old.HighWater), uint64(m.HighWater))
	if !wasWhole {
		parts = append(parts, "magic, version and checksum are right now")
	}
	return strings.Join(parts, ", ")
}

func metaNumber(v uint64) string {
	if v == uint64(page.NoFreelist) {
		return "none"
	}
	return strconv.FormatUint(v, 10)
}

// forgetExtensions zeroes what Holdfast has added to the metas.
func (s *surgeon) forgetExtensions() error {
	for slot, m := range s.slots.Meta {
		if s.slots.Err[slot] == nil {
			if err := s.putMeta(slot, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeMetas looks at the metas of the copy and warns of what is wrong with them.
func (s *surgeon) judgeMetas(changed int) (err error) {
	if s.patient, err = examine(s.file); err != nil {
		return err
	}
	for slot, m := range s.slots.Meta {
		if err := s.slots.Err[slot]; err != nil {
			s.r.warn("meta page %d is not whole: %s", slot, err)
		} else if err := m.Check(s.size); err != nil {
			s.r.warn("meta page %d cannot be opened: %s", slot, s.plain(err))
		}
	}
	switch {
	case s.err != nil:
		s.r.warn("no meta page can be opened yet: %s", s.err)
	case s.best != changed:
		s.r.warn("meta page %d is the one that is opened, not page %d", s.best, changed)
	}
	return nil
}

// metaVerdict is what meta validate says of a meta page.
type metaVerdict struct {
	Slot      int     `json:"slot"`
	Valid     bool    `json:"valid"`   // magic, version and checksum are right
	Sound     bool    `json:"sound"`   // and its numbers can be right
	Current   bool    `json:"current"` // it is the one that is opened
	Error     string  `json:"error,omitempty"`
	PageSize  uint32  `json:"page_size_bytes"`
	Root      uint64  `json:"root_page"`
	Freelist  *uint64 `json:"freelist_page"`
	HighWater uint64  `json:"high_water_pages"`
	TxID      uint64  `json:"txid"`
	Extension string  `json:"extension"`
}

type metaReports struct {
	File     string        `json:"file"`
	PageSize int64         `json:"page_size_bytes"` // 0: it cannot be told
	Metas    []metaVerdict `json:"metas"`
}

func (a *app) newMetaValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Say what is right or wrong with each meta page",
		Long:  "Say what is right or wrong with each meta page. Nothing is changed. The exit code\nis 3 if one of them is not valid.",
		Args:  cobra.ExactArgs(1),
		RunE:  a.action((*call).validateMetas),
	}
}

func (c *call) validateMetas() error {
	path := c.args[0]
	if _, err := c.look(path); err != nil {
		return err
	}
	src, err := c.openRaw(path)
	if err != nil {
		return c.explain(path, err)
	}
	defer src.Close()
	p, err := examine(src.File)
	if err != nil {
		return c.explain(path, err)
	}
	r := metaReports{File: path, PageSize: p.pageSize}
	faults := 0
	for slot := range p.slots.Meta {
		v, err := p.verdict(slot)
		if err != nil {
			return c.explain(path, err)
		}
		if !v.Sound {
			faults++
		}
		r.Metas = append(r.Metas, v)
	}
	if c.json {
		err = c.printJSON(r)
	} else {
		c.printVerdicts(&r)
	}
	if err == nil && faults > 0 && !c.stock {
		return &checkFailure{file: path, faults: faults}
	}
	return err
}

// verdict looks at a meta page.
func (p *patient) verdict(slot int) (metaVerdict, error) {
	v := metaVerdict{Slot: slot, Current: p.err == nil && slot == p.best, Extension: "none"}
	if slot == 1 && p.pageSize == 0 {
		v.Error = "the page size cannot be told, so neither where the page is"
		return v, nil
	}
	buf, err := p.metaPage(slot)
	if err != nil {
		return v, err
	}
	m := page.MetaFields(buf)
	v.PageSize, v.Root, v.HighWater, v.TxID = m.PageSize, uint64(m.Root), uint64(m.HighWater), uint64(m.Label)
	if m.Freelist != page.NoFreelist {
		id := uint64(m.Freelist)
		v.Freelist = &id
	}
	if err = p.slots.Err[slot]; err == nil {
		v.Valid = true
		err = m.Check(p.size)
	}
	if err != nil {
		v.Error = reason(err)
	}
	v.Sound = err == nil
	v.Extension = extensionKind(buf)
	return v, nil
}

// reason is the text of err without the page's number.
func reason(err error) string {
	if damage := (*page.CorruptError)(nil); errors.As(err, &damage) {
		return damage.Reason
	}
	return err.Error()
}

// extensionKind says what Holdfast has added to a meta page.
func extensionKind(buf []byte) string {
	ext, err := extension.Decode(buf)
	switch {
	case errors.Is(err, extension.ErrNone) && len(strings.Trim(string(page.Extension(buf)), "\x00")) > 0:
		return "unreadable"
	case errors.Is(err, extension.ErrNone):
		return "none"
	case err != nil:
		return "unreadable"
	case ext.Trailing != nil:
		return "trailing"
	}
	return "plain"
}

// printVerdicts prints what was found for people, or what bbolt prints.
func (c *call) printVerdicts(r *metaReports) {
	for _, v := range r.Metas {
		if c.stock {
			if v.Valid {
				fmt.Fprintf(c.out, "The meta page %d is valid!\n", v.Slot)
			} else {
				fmt.Fprintf(c.out, "WARNING: The meta page %d isn't valid: %s!\n", v.Slot, v.Error)
			}
			continue
		}
		c.printVerdict(v)
	}
}

var extensionTexts = map[string]string{
	"none":       "nothing",
	"plain":      "what it knows of this state: its number, its free pages",
	"trailing":   "a newer state than this, left in mid use",
	"unreadable": "something that cannot be read",
}

func (c *call) printVerdict(v metaVerdict) {
	state := c.paint(green, "valid")
	switch {
	case !v.Valid:
		state = c.paint(red, "not valid") + ": " + v.Error
	case !v.Sound:
		state = c.paint(red, "cannot be opened") + ": " + v.Error
	case v.Current:
		state += ", current"
	}
	list := uint64(page.NoFreelist)
	if v.Freelist != nil {
		list = *v.Freelist
	}
	rows(c.out,
		[2]string{fmt.Sprintf("Meta page %d", v.Slot), state},
		[2]string{"  page size", strconv.FormatUint(uint64(v.PageSize), 10)},
		[2]string{"  root", strconv.FormatUint(v.Root, 10)},
		[2]string{"  freelist", metaNumber(list)},
		[2]string{"  high-water mark", strconv.FormatUint(v.HighWater, 10)},
		[2]string{"  transaction id", strconv.FormatUint(v.TxID, 10)},
		[2]string{"  Holdfast added", extensionTexts[v.Extension]},
	)
}
