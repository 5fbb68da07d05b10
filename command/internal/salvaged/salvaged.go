// Package salvaged is what salvage has saved of a damaged database and what is lost, as the commands
// salvage and doctor tell it.
package salvaged

import (
	"fmt"
	"strings"

	"holdfast/command/cli"
	"holdfast/internal/salvage"
)

// Report is what salvage has saved and what not.
type Report struct {
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

	Damage   []cli.FaultReport `json:"damaged_pages"`
	Ranges   []Range           `json:"lost_ranges"`
	Elements []Element         `json:"lost_elements_list"`
	Places   []Found           `json:"lost_and_found_buckets"`
	Doubts   []string          `json:"doubts"`
	Notes    []string          `json:"notes"`
	More     bool              `json:"truncated"` // some list is longer than is told
}

// Range is keys that a page was to hold. What has no bound is null. Names and keys
// are hexadecimal if they are not text.
type Range struct {
	Page  uint64   `json:"page"`
	Path  []string `json:"bucket"`
	From  *string  `json:"from_key"`
	To    *string  `json:"to_key"`
	Found uint64   `json:"found_elsewhere"`
}

// Element is one that could not be read.
type Element struct {
	Page   uint64   `json:"page"`
	Path   []string `json:"bucket"`
	Key    *string  `json:"key"`
	Reason string   `json:"reason"`
}

// Found is a bucket of what was found and belongs to no other.
type Found struct {
	Name  string `json:"bucket"`
	Page  uint64 `json:"page"`
	Count uint64 `json:"keys_and_buckets"`
	Why   string `json:"reason"`
}

// New is r as a Report, of saving src in dst.
func New(src, dst string, r *salvage.Report) *Report {
	out := &Report{
		File: src, Output: dst, OK: r.Sound(), PageSize: r.PageSize, Pages: uint64(r.Pages), PagesRead: r.PagesRead,
		Trailing: r.Trailing, Older: r.Older, Root: uint64(r.Root), Free: r.Free, Buckets: r.Buckets, Keys: r.Keys, Found: r.Found, FoundIn: r.FoundIn, Unplaced: r.Unplaced,
		Lost: r.LostElements, Conflicts: r.Conflicts, Doubled: r.Doubled, Orphans: r.Orphans, More: r.More,
		Damage: []cli.FaultReport{}, Ranges: []Range{}, Elements: []Element{}, Places: []Found{},
		Doubts: append([]string{}, r.Doubts...), Notes: append([]string{}, r.Notes...),
	}
	if r.Slot >= 0 {
		out.Meta, out.Tx = &r.Slot, &r.Tx
	}
	for _, d := range r.Damage {
		out.Damage = append(out.Damage, cli.FaultReport{Page: uint64(d.Page), Reason: d.Reason})
	}
	for _, l := range r.Ranges {
		out.Ranges = append(out.Ranges, Range{uint64(l.Page), cli.PathNames(l.Path), keyText(l.From), keyText(l.To), l.Found})
	}
	for _, e := range r.Elements {
		out.Elements = append(out.Elements, Element{uint64(e.Page), cli.PathNames(e.Path), keyText(e.Key), e.Reason})
	}
	for _, p := range r.Places {
		out.Places = append(out.Places, Found{p.Name, uint64(p.Page), p.Count, p.Why})
	}
	return out
}

func keyText(key []byte) *string {
	if key == nil {
		return nil
	}
	s := cli.Show(key)
	return &s
}

func bucketText(path []string) string {
	if len(path) == 0 {
		return "the root bucket"
	}
	return "bucket " + strings.Join(path, "/")
}

// String says what an element is.
func (e Element) String() string {
	key := "an element"
	if e.Key != nil {
		key = *e.Key
	}
	return fmt.Sprintf("%s in %s (page %d): %s", key, bucketText(e.Path), e.Page, e.Reason)
}

// String says what a range is.
func (l Range) String() string {
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
		s += fmt.Sprintf(", but for %s that were found elsewhere", cli.Count(l.Found))
	}
	return s
}
