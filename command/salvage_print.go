package command

import (
	"fmt"
	"strings"

	"holdfast/command/cli"
	"holdfast/internal/salvage"
)

type salvageReport struct {
	File      string  `json:"file"`
	Output    string  `json:"output"`
	OK        bool    `json:"ok"` // nothing is lost
	PageSize  int64   `json:"page_size_bytes"`
	Pages     uint64  `json:"pages"`
	PagesRead uint64  `json:"pages_read"`
	Meta      *int    `json:"meta"` // page; null: none could be used
	Trailing  bool    `json:"meta_trailing"`
	Older     bool    `json:"older_state"`
	Tx        *uint64 `json:"transaction"`
	Root      uint64  `json:"root"` // page of the root bucket; 0: not known
	Free      string  `json:"free_pages_from"`

	Buckets   uint64 `json:"saved_buckets"`
	Keys      uint64 `json:"saved_keys"`
	Found     uint64 `json:"saved_from_orphans"`
	FoundIn   string `json:"lost_and_found_in"` // the bucket at the top level; "" if there is none
	Unplaced  uint64 `json:"lost_and_found"`
	Lost      uint64 `json:"lost_elements"`
	Conflicts uint64 `json:"conflicts"`
	Doubled   uint64 `json:"pages_used_twice"`
	Orphans   uint64 `json:"orphans_left_out"`

	Damage   []faultReport    `json:"damaged_pages"`
	Ranges   []salvageRange   `json:"lost_ranges"`
	Elements []salvageElement `json:"lost_elements_list"`
	Places   []salvageFound   `json:"lost_and_found_buckets"`
	Doubts   []string         `json:"doubts"`
	Notes    []string         `json:"notes"`
	More     bool             `json:"truncated"` // some list is longer than is told
}

// salvageRange is keys that a page was to hold. What has no bound is null. Names and keys
// are hexadecimal if they are no text.
type salvageRange struct {
	Page  uint64   `json:"page"`
	Path  []string `json:"bucket"`
	From  *string  `json:"from_key"`
	To    *string  `json:"to_key"`
	Found uint64   `json:"found_elsewhere"`
}

type salvageElement struct {
	Page   uint64   `json:"page"`
	Path   []string `json:"bucket"`
	Key    *string  `json:"key"`
	Reason string   `json:"reason"`
}

type salvageFound struct {
	Name  string `json:"bucket"`
	Page  uint64 `json:"page"`
	Count uint64 `json:"keys_and_buckets"`
	Why   string `json:"reason"`
}

func newSalvageReport(src, dst string, r *salvage.Report) *salvageReport {
	out := &salvageReport{
		File: src, Output: dst, OK: r.Sound(), PageSize: r.PageSize, Pages: uint64(r.Pages), PagesRead: r.PagesRead,
		Trailing: r.Trailing, Older: r.Older, Root: uint64(r.Root), Free: r.Free, Buckets: r.Buckets, Keys: r.Keys, Found: r.Found, FoundIn: r.FoundIn, Unplaced: r.Unplaced,
		Lost: r.LostElements, Conflicts: r.Conflicts, Doubled: r.Doubled, Orphans: r.Orphans, More: r.More,
		Damage: []faultReport{}, Ranges: []salvageRange{}, Elements: []salvageElement{}, Places: []salvageFound{},
		Doubts: append([]string{}, r.Doubts...), Notes: append([]string{}, r.Notes...),
	}
	if r.Slot >= 0 {
		out.Meta, out.Tx = &r.Slot, &r.Tx
	}
	for _, d := range r.Damage {
		out.Damage = append(out.Damage, faultReport{uint64(d.Page), d.Reason})
	}
	for _, l := range r.Ranges {
		out.Ranges = append(out.Ranges, salvageRange{uint64(l.Page), pathNames(l.Path), keyText(l.From), keyText(l.To), l.Found})
	}
	for _, e := range r.Elements {
		out.Elements = append(out.Elements, salvageElement{uint64(e.Page), pathNames(e.Path), keyText(e.Key), e.Reason})
	}
	for _, p := range r.Places {
		out.Places = append(out.Places, salvageFound{p.Name, uint64(p.Page), p.Count, p.Why})
	}
	return out
}

func keyText(key []byte) *string {
	if key == nil {
		return nil
	}
	s := show(key)
	return &s
}

func (c *call) printSalvage(src string, f salvageFlags, report *salvage.Report) error {
	r := newSalvageReport(src, f.path, report)
	if c.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		c.printSalvageText(r)
	}
	if r.OK {
		return nil
	}
	return &salvageLoss{src, f.path, c.name()}
}

// maxPrinted bounds each list for people.
const maxPrinted = 20

// printList prints the lines of n things as far as somebody may want to read them.
func (c *call) printList(n int, line func(i int) string) {
	for i := range min(n, maxPrinted) {
		fmt.Fprintln(c.out, line(i))
	}
	if n > maxPrinted {
		fmt.Fprintf(c.out, "... and %s; --json lists them\n", count(n-maxPrinted)+" more")
	}
}

func (c *call) printSalvageText(r *salvageReport) {
	state := "no meta page could be used"
	if r.Meta != nil {
		state = fmt.Sprintf("transaction %d, from meta page %d", *r.Tx, *r.Meta)
		if r.Older {
			state += ": an older state, as the root of the newest cannot be used"
		}
	}
	free := "not known"
	if r.Free != "" {
		free = "known from " + r.Free
	}
	rows(c.out,
		[2]string{"State", state},
		[2]string{"Free pages", free},
		[2]string{"Pages", fmt.Sprintf("%s of %s, %s read", count(r.Pages), sizeExactly(r.PageSize), count(r.PagesRead))})
	c.printList(len(r.Doubts), func(i int) string { return c.paint(yellow, "in doubt:") + " " + r.Doubts[i] })
	c.printList(len(r.Notes), func(i int) string { return "note: " + r.Notes[i] })
	c.printList(len(r.Damage), func(i int) string {
		return fmt.Sprintf("%s %s", c.paint(red, fmt.Sprintf("page %d:", r.Damage[i].Page)), r.Damage[i].Reason)
	})
	c.printList(len(r.Ranges), func(i int) string { return c.paint(red, "lost:") + " " + r.Ranges[i].String() })
	c.printList(len(r.Elements), func(i int) string {
		return c.paint(red, "lost:") + " " + r.Elements[i].String()
	})
	c.printList(len(r.Places), func(i int) string {
		p := r.Places[i]
		return fmt.Sprintf("%s/%s: %s of page %d: %s", r.FoundIn, p.Name, cli.PluralOf(p.Count, "key or bucket", "keys and buckets"), p.Page, p.Why)
	})
	c.printSaved(r)
}

func (c *call) printSaved(r *salvageReport) {
	parts := []string{plural(r.Buckets, "bucket") + " and " + plural(r.Keys, "key")}
	if r.Found > 0 {
		parts = append(parts, count(r.Found)+" of them found in pages that nothing sound names")
	}
	if r.Unplaced > 0 {
		parts = append(parts, count(r.Unplaced)+" more in "+r.FoundIn)
	}
	if r.Conflicts > 0 {
		parts = append(parts, cli.PluralOf(r.Conflicts, "key was", "keys were")+" there already with another value and left out")
	}
	if r.Orphans > 0 {
		parts = append(parts, plural(r.Orphans, "page")+" that nothing names left out (--all saves them)")
	}
	fmt.Fprintf(c.out, "saved into %s: %s\n", r.Output, strings.Join(parts, "; "))
	if r.OK {
		fmt.Fprintln(c.out, c.paint(green, "Nothing is lost: the copy holds all that the file does."))
	}
}

func bucketText(path []string) string {
	if len(path) == 0 {
		return "the root bucket"
	}
	return "bucket " + strings.Join(path, "/")
}

// String says what an element is.
func (e salvageElement) String() string {
	key := "an element"
	if e.Key != nil {
		key = *e.Key
	}
	return fmt.Sprintf("%s in %s (page %d): %s", key, bucketText(e.Path), e.Page, e.Reason)
}

// String says what a range is.
func (l salvageRange) String() string {
	keys := "all keys"
	switch {
	case l.From != nil && l.To != nil:
		keys = fmt.Sprintf("keys from %s to before %s", *l.From, *l.To)
	case l.From != nil:
		keys = fmt.Sprintf("keys from %s on", *l.From)
	case l.To != nil:
		keys = fmt.Sprintf("keys before %s", *l.To)
	}
	s := fmt.Sprintf("%s of %s (page %d)", keys, bucketText(l.Path), l.Page)
	if l.Found > 0 {
		s += fmt.Sprintf(", but for %s that were found elsewhere", count(l.Found))
	}
	return s
}
