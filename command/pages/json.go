package pages

import (
	"fmt"

	"holdfast/command/cli"
	"holdfast/internal/page"
)

// pageReport is a page in JSON, but for what it holds. What does not apply is left out,
// and what is not known is null.
type pageReport struct {
	Page     uint64      `json:"page"`
	Type     string      `json:"type"`
	Pages    uint64      `json:"pages"`
	Offset   uint64      `json:"offset_bytes"`
	Bytes    uint64      `json:"size_bytes"`
	Free     *bool       `json:"free"`
	Past     bool        `json:"past_high_water"`
	Error    string      `json:"error,omitempty"`
	Seal     string      `json:"seal,omitempty"`
	Meta     *metaJSON   `json:"meta,omitempty"`
	Record   *recordJSON `json:"record,omitempty"`
	Elements *uint64     `json:"elements_total,omitempty"`
}

type recordJSON struct {
	Kind     string `json:"kind"`
	Log      int    `json:"log"` // its number, 0 for a snapshot
	MetaPage int    `json:"meta_page"`
	Bytes    uint32 `json:"bytes"`
}

// elementReport is an element of a leaf or a branch page in JSON.
type elementReport struct {
	Item          uint64      `json:"item"`
	Key           string      `json:"key,omitempty"`
	KeyEncoding   string      `json:"key_encoding,omitempty"`
	Page          *uint64     `json:"page,omitempty"` // of a branch: the child
	Bucket        *bucketJSON `json:"bucket,omitempty"`
	Value         *string     `json:"value,omitempty"`
	ValueEncoding string      `json:"value_encoding,omitempty"`
	ValueBytes    *int        `json:"value_bytes,omitempty"`
	Error         string      `json:"error,omitempty"`
}

type bucketJSON struct {
	Root     uint64 `json:"root_page"` // 0: it is inline
	Sequence uint64 `json:"sequence"`
}

type changeJSON struct {
	Change string `json:"change"` // free or taken
	extentJSON
}

// begin begins the output.
func (p *pagePrinter) begin() error {
	if !p.JSON {
		return nil
	}
	name, err := cli.CompactJSON(p.file.path)
	if err == nil {
		_, err = fmt.Fprintf(p.Out, "{\n  \"file\": %s,\n  \"page_size_bytes\": %d,\n  \"high_water_pages\": %d,\n  \"pages\": [",
			name, p.file.pageSize, p.file.highWater)
	}
	return err
}

// end ends the output.
func (p *pagePrinter) end() error {
	if !p.JSON {
		return nil
	}
	last := "]\n}\n"
	if p.n > 0 {
		last = "\n  ]\n}\n"
	}
	_, err := fmt.Fprint(p.Out, last)
	return err
}

// nextJSON begins a page with its report, and leaves the object open.
func (p *pagePrinter) nextJSON(r *pageReport) error {
	text, err := cli.CompactJSON(r)
	if err != nil {
		return err
	}
	separator := ",\n    "
	if p.n++; p.n == 1 {
		separator = "\n    "
	}
	_, err = fmt.Fprintf(p.Out, "%s%s", separator, text[:len(text)-1])
	return err
}

func (p *pagePrinter) printRunJSON(kind string, e page.Extent) error {
	free := true
	r := p.report(kind, e.Start, e.N)
	if kind == kindFree {
		r.Free = &free
	}
	if err := p.nextJSON(r); err != nil {
		return err
	}
	_, err := fmt.Fprint(p.Out, "}")
	return err
}

func (p *pagePrinter) report(kind string, first page.ID, pages uint64) *pageReport {
	pageSize := uint64(p.file.pageSize)
	return &pageReport{Page: uint64(first), Type: kind, Pages: pages, Offset: uint64(first) * pageSize, Bytes: pages * pageSize}
}

func (p *pagePrinter) printPageJSON(v *pageView) error {
	r := p.report(v.kind, v.id, v.pages())
	r.Seal, r.Past = v.seal(), v.id >= p.file.highWater
	if free := v.free.N > 0; p.file.freeKnown && !r.Past || v.kind == kindMeta || v.kind == kindRecord {
		r.Free = &free
	}
	if v.fault != nil {
		r.Error = faultText(v.fault)
	}
	list := ""
	switch {
	case v.record != nil:
		r.Page, r.Offset = uint64(v.record.Start), uint64(v.record.Start)*uint64(p.file.pageSize)
		r.Record = &recordJSON{Kind: v.record.kind(), Log: v.record.log, MetaPage: v.record.slot, Bytes: v.record.Bytes}
		list = "changes"
	case v.kind == kindMeta:
		r.Meta = v.meta.json(p.file.best == int(v.id))
	case v.kind == kindUnknown:
		r.Type = page.TypeName(v.header.Flags)
	case v.kind == kindFreelist:
		r.Elements, list = &v.count, "free_pages"
	default:
		r.Elements, list = &v.count, "elements"
	}
	if err := p.nextJSON(r); err != nil {
		return err
	}
	if list != "" {
		if err := p.listJSON(list, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(p.Out, "}")
	return err
}

// listJSON prints what the page holds.
func (p *pagePrinter) listJSON(name string, v *pageView) error {
	fmt.Fprintf(p.Out, `,"%s":[`, name)
	n := 0
	add := func(item any) error {
		if err := p.Ctx.Err(); err != nil {
			return err
		}
		text, err := cli.CompactJSON(item)
		if err != nil {
			return err
		}
		if n++; n > 1 {
			fmt.Fprint(p.Out, ",")
		}
		_, err = fmt.Fprintf(p.Out, "\n      %s", text)
		return err
	}
	var err error
	switch {
	case v.record != nil && v.fault == nil:
		err = v.changes(func(ch recordChange) error {
			word := "taken"
			if ch.put {
				word = "free"
			}
			return add(changeJSON{word, newExtent(ch.Extent)})
		})
	case v.record != nil:
	default:
		for i := uint64(0); i < v.fits && err == nil; i++ {
			if v.kind == kindFreelist {
				err = add(uint64(v.number(i)))
			} else {
				err = add(v.elementReport(i, "auto", p.format, true, true))
			}
		}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(p.Out, "]")
	return err
}

// elementReport is element i, with its key and its value if they are wanted, each in its format.
func (v *pageView) elementReport(i uint64, keyFormat, format string, withKey, withValue bool) *elementReport {
	r := &elementReport{Item: i}
	e, err := v.element(i)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	if withKey {
		r.Key, r.KeyEncoding = cli.EncodeBytes(e.key, keyFormat)
	}
	if !withValue {
		return r
	}
	switch root, sequence, ok := e.bucketHeader(); {
	case v.kind == kindBranch:
		child := uint64(e.child)
		r.Page = &child
		return r
	case e.bucket && ok:
		r.Bucket = &bucketJSON{uint64(root), sequence}
		return r
	case e.bucket:
		r.Error = e.bucketText()
		return r
	}
	value, length := "", len(e.value)
	value, r.ValueEncoding = cli.EncodeBytes(e.value, format)
	r.Value, r.ValueBytes = &value, &length
	return r
}
