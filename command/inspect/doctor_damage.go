package inspect

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"holdfast/command/cli"
	"holdfast/command/internal/salvaged"
	"holdfast/internal/salvage"
)

// damageReport is what doctor tells of a damaged file: what salvage would save of it, and
// what not.
type damageReport struct {
	File     string             `json:"file"`
	Verdict  string             `json:"verdict"` // damaged
	Damaged  bool               `json:"damaged"` // always true: the report of a sound file is another one
	Met      string             `json:"met"`     // the damage that was met first
	Keys     uint64             `json:"sound_keys"`
	Nested   uint64             `json:"sound_buckets"` // with those in buckets
	Unplaced uint64             `json:"without_place"` // keys and buckets of which it is not known where they belong
	Buckets  []bucketHealth     `json:"buckets"`       // at the top level
	Damage   []cli.FaultReport  `json:"damaged_pages"`
	Ranges   []salvaged.Range   `json:"lost_ranges"`
	Elements []salvaged.Element `json:"lost_elements"`
	Doubts   []string           `json:"doubts"`
	Notes    []string           `json:"notes"`
	More     bool               `json:"truncated"` // some list is longer than is told
	Next     []string           `json:"next"`      // command lines, one after the other

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
		s.buckets[name] = &bucketHealth{Name: cli.Show(p.Name)}
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
func doctorDamaged(c *cli.Call, path string, met error) error {
	r, err := survey(c, path, met)
	if err != nil {
		return err
	}
	if err := c.Report(r, func() { printDamage(c, r) }); err != nil {
		return err
	}
	return &cli.CheckFailure{File: path, Faults: max(len(r.Damage)+len(r.Elements), 1), Command: c.Name()}
}

// damaged is the finding of doctor on one of several files, in which met was met.
func damaged(c *cli.Call, path string, met error) (finding, error) {
	r, err := survey(c, path, met)
	if err != nil {
		return finding{}, err
	}
	return finding{r.Verdict, r, func() { printDamage(c, r) }}, nil
}

// survey finds out what of a file is sound in which met was met. It gives met back if nothing can
// be told.
func survey(c *cli.Call, path string, met error) (*damageReport, error) {
	file, err := c.OpenRaw(path, true)
	if err != nil {
		return nil, met
	}
	defer file.Close()
	sink := &surveySink{buckets: make(map[string]*bucketHealth)}
	var read atomic.Int64 // pages
	stop := c.ProgressOf("looking for what is sound, pages read", 0, read.Load, false)
	report, err := salvage.Run(c.Ctx, file, file.Size, sink, salvage.Options{Progress: func(pages uint64) { read.Store(int64(pages)) }})
	stop()
	if errors.Is(err, salvage.ErrNone) {
		return nil, met
	}
	if err != nil {
		return nil, c.Explain(path, err)
	}
	return newDamageReport(c, path, met, report, sink), nil
}

func newDamageReport(c *cli.Call, path string, met error, report *salvage.Report, sink *surveySink) *damageReport {
	all := salvaged.New(path, "", report)
	r := &damageReport{
		File: path, Verdict: verdictDamaged, Damaged: true, Met: metText(c, met), Keys: all.Keys, Nested: all.Buckets, Unplaced: all.Unplaced,
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
	file, found := cli.ShellWord(path), metByCheck{}
	r.onlyFree = !errors.As(met, &found) && len(r.Damage)+len(r.Ranges)+len(r.Elements)+len(r.Doubts) == 0
	r.Next = append(r.Next, fmt.Sprintf("cp --sparse=always %s %s", file, cli.ShellWord(path+".damaged")), c.Name()+" check "+file)
	if r.onlyFree {
		r.Next = append(r.Next, fmt.Sprintf("%s compact -o OUT %s", c.Name(), file))
	} else {
		r.Next = append(r.Next, fmt.Sprintf("%s salvage -o OUT %s", c.Name(), file))
	}
	return r
}

// metText is the text of damage that was met, without the file's name and the next step.
func metText(c *cli.Call, met error) string {
	if explained := (*cli.FileError)(nil); errors.As(met, &explained) {
		return strings.TrimPrefix(explained.What, "damaged: ")
	}
	return c.Plain(met)
}

// topName is the first name of a path; "" for none.
func topName(path [][]byte) string {
	if len(path) == 0 {
		return ""
	}
	return string(path[0])
}

func printDamage(c *cli.Call, r *damageReport) {
	fmt.Fprintln(c.Out, c.Paint(cli.Bold, r.File))
	fmt.Fprintf(c.Out, "%s %s\n\n", c.Paint(cli.Red, "Damaged:"), r.Met)
	sound := cli.Plural(r.Keys, "key") + " in " + cli.Plural(r.Nested, "bucket")
	if r.Unplaced > 0 {
		sound += ", and " + cli.PluralOf(r.Unplaced, "key or bucket", "keys and buckets") + " of which it is not known where they belong"
	}
	fmt.Fprintf(c.Out, "%s %s\n", c.Paint(cli.Bold, "Sound:"), sound)
	if len(r.Buckets) > 0 {
		lines := [][]string{{"  BUCKET", "SOUND KEYS", ""}}
		for _, b := range r.Buckets[:min(len(r.Buckets), cli.MaxPrinted)] {
			health := "sound"
			if b.AtRisk {
				health = "at risk: not all of it can be read"
			}
			lines = append(lines, []string{"  " + b.Name, cli.Count(b.Keys), health})
		}
		cli.Columns(c.Out, lines...)
	}
	if n := len(r.Buckets) - cli.MaxPrinted; n > 0 {
		fmt.Fprintf(c.Out, "  ... and %s more; --json lists them\n", cli.Count(n))
	}
	printAtRisk(c, r)
	fmt.Fprintln(c.Out, "\nNext: stop the program that uses the file, keep a copy, and look at all faults")
	for _, line := range r.Next[:len(r.Next)-1] {
		fmt.Fprintln(c.Out, "  "+line)
	}
	fmt.Fprintf(c.Out, "then restore a backup, or save what is sound (docs/recovering.md)\n  %s\n", r.Next[len(r.Next)-1])
}

// printAtRisk prints what is lost.
func printAtRisk(c *cli.Call, r *damageReport) {
	switch {
	case r.onlyFree:
		fmt.Fprintln(c.Out, "No key is lost: only what is recorded of free pages is damaged.")
	case len(r.Ranges)+len(r.Elements)+len(r.Damage)+len(r.Doubts) == 0:
		fmt.Fprintln(c.Out, "All pages can be read, but they do not fit together: what they hold can be saved, and may be wrong there.")
	}
	c.PrintList(len(r.Ranges), func(i int) string { return c.Paint(cli.Red, "at risk:") + " " + r.Ranges[i].String() })
	c.PrintList(len(r.Elements), func(i int) string { return c.Paint(cli.Red, "at risk:") + " " + r.Elements[i].String() })
	c.PrintList(len(r.Damage), func(i int) string {
		return fmt.Sprintf("%s %s", c.Paint(cli.Red, fmt.Sprintf("page %d:", r.Damage[i].Page)), r.Damage[i].Reason)
	})
	c.PrintList(len(r.Doubts), func(i int) string { return c.Paint(cli.Yellow, "in doubt:") + " " + r.Doubts[i] })
	c.PrintList(len(r.Notes), func(i int) string { return "note: " + r.Notes[i] })
}
