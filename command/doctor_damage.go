package command

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"holdfast/command/cli"
	"holdfast/internal/salvage"
)

// damageReport is what doctor tells of a damaged file: what salvage would save of it, and
// what not.
type damageReport struct {
	File     string           `json:"file"`
	Verdict  string           `json:"verdict"` // damaged
	Damaged  bool             `json:"damaged"` // always true: the report of a sound file is another one
	Met      string           `json:"met"`     // the damage that was met first
	Keys     uint64           `json:"sound_keys"`
	Nested   uint64           `json:"sound_buckets"` // with those in buckets
	Unplaced uint64           `json:"without_place"` // keys and buckets of which it is not known where they belong
	Buckets  []bucketHealth   `json:"buckets"`       // at the top level
	Damage   []faultReport    `json:"damaged_pages"`
	Ranges   []salvageRange   `json:"lost_ranges"`
	Elements []salvageElement `json:"lost_elements"`
	Doubts   []string         `json:"doubts"`
	Notes    []string         `json:"notes"`
	More     bool             `json:"truncated"` // some list is longer than is told
	Next     []string         `json:"next"`      // command lines, one after the other

	onlyFree bool // only what is recorded of free pages is damaged
}

// bucketHealth is a bucket at the top level.
type bucketHealth struct {
	Name   string `json:"bucket"`
	Keys   uint64 `json:"sound_keys"` // with those in buckets in it
	AtRisk bool   `json:"at_risk"`    // something in it is damaged
}

// surveySink counts what can be saved, and keeps nothing.
type surveySink struct {
	buckets map[string]*bucketHealth
	names   []string
}

// Begin does nothing.
func (s *surveySink) Begin(int) error { return nil }

// Fresh is a name that no bucket has.
func (s *surveySink) Fresh(name string) (string, error) {
	free := name
	for i := 2; s.buckets[free] != nil; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free, nil
}

// Bucket notes a bucket at the top level.
func (s *surveySink) Bucket(p *salvage.Place) (bool, error) {
	if p.Parent.Parent != nil {
		p.Handle = p.Parent.Handle
		return true, nil
	}
	name := string(p.Name)
	if s.buckets[name] == nil {
		s.buckets[name] = &bucketHealth{Name: show(p.Name)}
		s.names = append(s.names, name)
	}
	p.Handle = s.buckets[name]
	return true, nil
}

// Put counts a key.
func (s *surveySink) Put(p *salvage.Place, _, _ []byte) (salvage.Outcome, error) {
	if b, ok := p.Handle.(*bucketHealth); ok {
		b.Keys++
	}
	return salvage.Saved, nil
}

// doctorDamaged tells of a file in which met was met what is sound, which buckets are at risk, and
// what to do. It gives met back if nothing can be told.
func (c *call) doctorDamaged(path string, met error) error {
	r, err := c.survey(path, met)
	if err != nil {
		return err
	}
	if c.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		c.printDamage(r)
	}
	return &checkFailure{path, max(len(r.Damage)+len(r.Elements), 1), c.name()}
}

// damaged is the finding of doctor on one of several files, in which met was met.
func (c *call) damaged(path string, met error) (finding, error) {
	r, err := c.survey(path, met)
	if err != nil {
		return finding{}, err
	}
	return finding{r.Verdict, r, func() { c.printDamage(r) }}, nil
}

// survey finds out what of a file is sound in which met was met. It gives met back if nothing can
// be told.
func (c *call) survey(path string, met error) (*damageReport, error) {
	file, err := c.openRaw(path, true)
	if err != nil {
		return nil, met
	}
	defer file.Close()
	sink := &surveySink{buckets: make(map[string]*bucketHealth)}
	var read atomic.Int64 // pages
	stop := c.progressOf("looking for what is sound, pages read", 0, read.Load, false)
	report, err := salvage.Run(c.ctx, file, file.size, sink, salvage.Options{Progress: func(pages uint64) { read.Store(int64(pages)) }})
	stop()
	if errors.Is(err, salvage.ErrNone) {
		return nil, met
	}
	if err != nil {
		return nil, c.explain(path, err)
	}
	return c.newDamageReport(path, met, report, sink), nil
}

func (c *call) newDamageReport(path string, met error, report *salvage.Report, sink *surveySink) *damageReport {
	all := newSalvageReport(path, "", report)
	r := &damageReport{
		File: path, Verdict: verdictDamaged, Damaged: true, Met: c.metText(met), Keys: all.Keys, Nested: all.Buckets, Unplaced: all.Unplaced,
		Buckets: []bucketHealth{}, Damage: all.Damage, Ranges: all.Ranges, Elements: all.Elements,
		Doubts: all.Doubts, Notes: all.Notes, More: all.More,
	}
	risk := make(map[string]bool)
	for _, l := range report.Ranges {
		risk[topName(l.Path)] = true
	}
	for _, e := range report.Elements {
		risk[topName(append(e.Path[:len(e.Path):len(e.Path)], e.Key))] = true
	}
	for _, name := range sink.names {
		if name == report.FoundIn {
			continue
		}
		b := *sink.buckets[name]
		b.AtRisk = risk[name]
		r.Buckets = append(r.Buckets, b)
	}
	file, found := shellQuote(path), metByCheck{}
	r.onlyFree = !errors.As(met, &found) && len(r.Damage)+len(r.Ranges)+len(r.Elements)+len(r.Doubts) == 0
	r.Next = append(r.Next, fmt.Sprintf("cp --sparse=always %s %s", file, shellQuote(path+".damaged")), c.name()+" check "+file)
	if r.onlyFree {
		r.Next = append(r.Next, fmt.Sprintf("%s compact -o OUT %s", c.name(), file))
	} else {
		r.Next = append(r.Next, fmt.Sprintf("%s salvage -o OUT %s", c.name(), file))
	}
	return r
}

// metText is the text of damage that was met, without the file's name and the next step.
func (c *call) metText(met error) string {
	if explained := (*fileError)(nil); errors.As(met, &explained) {
		return strings.TrimPrefix(explained.what, "damaged: ")
	}
	return c.plain(met)
}

// topName is the first name of a path; "" for none.
func topName(path [][]byte) string {
	if len(path) == 0 {
		return ""
	}
	return string(path[0])
}

func (c *call) printDamage(r *damageReport) {
	fmt.Fprintln(c.out, c.paint(bold, r.File))
	fmt.Fprintf(c.out, "%s %s\n\n", c.paint(red, "Damaged:"), r.Met)
	sound := plural(r.Keys, "key") + " in " + plural(r.Nested, "bucket")
	if r.Unplaced > 0 {
		sound += ", and " + cli.PluralOf(r.Unplaced, "key or bucket", "keys and buckets") + " of which it is not known where they belong"
	}
	fmt.Fprintf(c.out, "%s %s\n", c.paint(bold, "Sound:"), sound)
	if len(r.Buckets) > 0 {
		lines := [][]string{{"  BUCKET", "SOUND KEYS", ""}}
		for _, b := range r.Buckets[:min(len(r.Buckets), maxPrinted)] {
			health := "sound"
			if b.AtRisk {
				health = "at risk: not all of it can be read"
			}
			lines = append(lines, []string{"  " + b.Name, count(b.Keys), health})
		}
		columns(c.out, lines...)
	}
	if n := len(r.Buckets) - maxPrinted; n > 0 {
		fmt.Fprintf(c.out, "  ... and %s more; --json lists them\n", count(n))
	}
	c.printAtRisk(r)
	fmt.Fprintln(c.out, "\nNext: stop the program that uses the file, keep a copy, and look at all faults")
	for _, line := range r.Next[:len(r.Next)-1] {
		fmt.Fprintln(c.out, "  "+line)
	}
	fmt.Fprintf(c.out, "then restore a backup, or save what is sound (docs/recovering.md)\n  %s\n", r.Next[len(r.Next)-1])
}

// printAtRisk prints what is lost.
func (c *call) printAtRisk(r *damageReport) {
	switch {
	case r.onlyFree:
		fmt.Fprintln(c.out, "No key is lost: only what is recorded of free pages is damaged.")
	case len(r.Ranges)+len(r.Elements)+len(r.Damage)+len(r.Doubts) == 0:
		fmt.Fprintln(c.out, "All pages can be read, but they do not fit together: what they hold can be saved, and may be wrong there.")
	}
	c.printList(len(r.Ranges), func(i int) string { return c.paint(red, "at risk:") + " " + r.Ranges[i].String() })
	c.printList(len(r.Elements), func(i int) string { return c.paint(red, "at risk:") + " " + r.Elements[i].String() })
	c.printList(len(r.Damage), func(i int) string {
		return fmt.Sprintf("%s %s", c.paint(red, fmt.Sprintf("page %d:", r.Damage[i].Page)), r.Damage[i].Reason)
	})
	c.printList(len(r.Doubts), func(i int) string { return c.paint(yellow, "in doubt:") + " " + r.Doubts[i] })
	c.printList(len(r.Notes), func(i int) string { return "note: " + r.Notes[i] })
}
