package repair

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
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

func newRevertMetaPage(a *cli.App) *cobra.Command {
	return newOperation(a, operation{
		use: "revert-meta-page", short: "Go back to the state before the newest", long: revertHelp,
		look:  needState,
		raw:   true,
		do:    (*surgeon).revert,
		stock: func(s *surgeon) { fmt.Fprintln(s.Out, "The meta page is reverted.") },
	})
}

// revert makes both slots describe the state before the newest.
func (s *surgeon) revert() error {
	if err := needState(s.Call, s.patient); err != nil {
		return err
	}
	ext, err := s.extension()
	if err != nil {
		return err
	}
	from := 1 - s.best
	left := s.leftAs()
	if left.Unfinished {
		s.r.warn("the last flush was cut short, and the state that is opened was the one before it already: this goes back by one more, whose commits had returned, and the flush may have written over its pages")
	}
	if ext != nil && ext.Trailing != nil && left.BboltBehind {
		// The newest state is the extension's. The one before is that of the meta
		// itself, and not the other slot's, which is older still.
		from = s.best
		s.r.did("the file was left in mid use: its newest state, which bbolt does not see, is given up")
	}
	older, newer := s.slots.Meta[from], s.slots.Meta[s.best]
	switch {
	case s.slots.Err[from] != nil:
		return &cli.FileError{
			File: s.r.File, What: fmt.Sprintf("meta page %d is not whole (%s): there is no state to go back to", from, s.slots.Err[from]),
			Next: "restore a copy of it", Err: s.slots.Err[from],
		}
	case older.Check(s.size) != nil:
		return older.Check(s.size)
	case from != s.best && sameState(older, newer) && !s.Stock:
		return &cli.FileError{
			File: s.r.File, What: "both meta pages describe the same state: there is none to go back to", Next: "restore a copy of it", Err: errNothingBefore,
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

// leftAs is how the file was left, as far as it can be opened.
func (s *surgeon) leftAs() holdfast.FileState {
	d, err := s.OpenMade(s.file.Name(), s.r.Output, &holdfast.Options{ReadOnly: true})
	if err != nil {
		return holdfast.FileState{}
	}
	defer d.Close()
	return d.FileState()
}

// copyMeta makes a slot describe what the other does.
func (s *surgeon) copyMeta(from, to int) error {
	if err := needState(s.Call, s.patient); err != nil {
		return err
	}
	if err := s.slots.Err[from]; err != nil {
		return &cli.FileError{
			File: s.r.File, What: fmt.Sprintf("meta page %d is not whole (%s), and the other one is better", from, err),
			Next: fmt.Sprintf("%s surgery meta validate shows both", s.Name()), Err: err,
		}
	}
	m := s.slots.Meta[from]
	for _, slot := range []int{from, to} { // so that nothing of Holdfast's is after either
		if err := s.putMeta(slot, m); err != nil {
			return err
		}
	}
	s.r.did("meta page %d was copied to meta page %d", from, to)
	return nil
}

func newMetaUpdate(a *cli.App) *cobra.Command {
	var fields []string
	var slot uint32
	var values map[string]uint64
	cmd := newOperation(a, operation{
		use: "update", short: "Change fields of a meta page", long: metaUpdateHelp,
		look: func(_ *cli.Call, p *patient) (err error) {
			if slot > 1 {
				return cli.Usagef("--%s: the meta pages are 0 and 1, not %d", flagMetaPage, slot)
			}
			values, err = parseFields(fields)
			return err
		},
		do: func(s *surgeon) error { return s.updateMeta(int(slot), values) },
		stock: func(s *surgeon) {
			if s.r.Changed {
				fmt.Fprintf(s.Out, "The meta page %d has been updated!\n", slot)
			} else {
				fmt.Fprintln(s.Out, "Nothing changed!")
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
			return nil, cli.Usagef("--%s: invalid key-value pair: %s; give it as root:16", flagFields, field)
		}
		if known := []string{fieldRoot, fieldFreelist, fieldPgid, fieldPageSize}; !slices.Contains(known, name) {
			return nil, cli.Usagef("--%s: field %q isn't allowed to be updated; there are %s", flagFields, name, strings.Join(known, ", "))
		}
		value, err := strconv.ParseUint(text, 10, 64)
		if err != nil || name == fieldPageSize && value > math.MaxUint32 {
			return nil, cli.Usagef("--%s: invalid value %q for field %q", flagFields, text, name)
		}
		values[name] = value
	}
	return values, nil
}

// updateMeta changes fields of a meta and makes it whole.
func (s *surgeon) updateMeta(slot int, values map[string]uint64) error {
	if slot == 1 && s.pageSize == 0 {
		return &cli.FileError{File: s.r.File, What: "its page size cannot be told, so neither where meta page 1 is", Next: "give meta page 0 its pageSize first", Err: page.ErrInvalid}
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
	if err := s.examineMetas(slot); err != nil || s.Stock || s.best != slot || m.Freelist == old.Freelist || m.Freelist == page.NoFreelist {
		return err
	}
	return s.tryFreelist()
}

// tryFreelist opens the copy as for writing, which reads the freelist.
func (s *surgeon) tryFreelist() error {
	d, err := s.OpenMade(s.file.Name(), s.r.Output, &holdfast.Options{ReadOnly: true, PreLoadFreelist: true})
	if err == nil {
		return d.Close()
	}
	if !cli.IsDamage(err) {
		return err
	}
	return &cli.FileError{
		File: s.r.File, What: "with this freelist the file cannot be opened for writing: " + s.Plain(err), Err: err,
		Next: "nothing was written: leave freelist out, and the list is made anew; or give --fields freelist:" + strconv.FormatUint(uint64(page.NoFreelist), 10),
	}
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

// examineMetas looks at the metas of the copy and warns of what is wrong with them.
func (s *surgeon) examineMetas(changed int) (err error) {
	if s.patient, err = examine(s.file); err != nil {
		return err
	}
	for slot, m := range s.slots.Meta {
		if err := s.slots.Err[slot]; err != nil {
			s.r.warn("meta page %d is not whole: %s", slot, err)
		} else if err := m.Check(s.size); err != nil {
			s.r.warn("meta page %d cannot be opened: %s", slot, s.Plain(err))
		}
	}
	slot, refused := s.refused()
	switch {
	case s.err != nil && s.Stock:
		s.r.warn("no meta page can be opened yet: %s", s.err)
	case refused != nil && !s.Stock:
		what, next := "neither meta page can be opened", "give all that is missing at once, as --fields root:16,pgid:32,pageSize:4096"
		if s.fit(1-slot) == nil {
			what = fmt.Sprintf("the file cannot be opened, as meta page %d is the one that is taken", slot)
			if slot != changed {
				next = fmt.Sprintf("change that one, with --%s %d", flagMetaPage, slot)
			}
		}
		return &cli.FileError{
			File: s.r.File, What: fmt.Sprintf("with these fields %s: %s", what, s.Plain(refused)), Err: refused,
			Next: "nothing was written: " + next,
		}
	case s.best != changed:
		s.r.warn("meta page %d is the one that is opened, not page %d", s.best, changed)
	}
	return nil
}

// fit is why a meta page cannot be opened; nil: it can be, if opening takes it.
func (p *patient) fit(slot int) error {
	m := p.slots.Meta[slot]
	switch {
	case p.slots.Err[slot] != nil:
		return p.slots.Err[slot]
	case m.PageSize&(m.PageSize-1) != 0:
		return page.Corruptf(page.ID(slot), "the meta page gives a page size of %d bytes, which is not a power of two", m.PageSize)
	}
	return m.Check(p.size)
}

// refused is the meta page that opening takes, and why it does not open the file; nil: it does, as far as the
// meta pages are concerned. A meta with a right checksum is taken also if it gives a page size that it is not
// found with: the first, which says where the second is, or a newer second one.
func (p *patient) refused() (slot int, err error) {
	if p.err != nil {
		return 0, p.err
	}
	var corrupt *page.CorruptError
	for slot, m := range p.slots.Meta {
		if errors.As(p.slots.Err[slot], &corrupt) && (slot == 0 || m.Label > p.slots.Meta[p.best].Label) {
			return slot, p.slots.Err[slot]
		}
	}
	return p.best, p.fit(p.best)
}
