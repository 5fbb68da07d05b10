package suite

import (
	"fmt"
	"io"
)

// Target is a promise about what is measured, and whether it was kept.
type Target struct {
	Name     string `json:"name"`
	Wanted   string `json:"wanted"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
}

// atMost is the target that value, written as text, is at most limit.
func (t *Table) atMost(name, wanted string, value, limit float64, text string) {
	t.Targets = append(t.Targets, Target{Name: name, Wanted: "≤ " + wanted, Measured: text, Met: value <= limit})
}

// ratioAtLeast is the target that the samples are at least limit times those of
// the peer, which wanted names. What counts is the median of the ratios of each
// round, because a disk changes its pace between rounds.
func (t *Table) ratioAtLeast(name, wanted string, ours, peer []sample, limit float64) {
	c := ratios(ours, peer)
	t.Targets = append(t.Targets, Target{
		Name: name, Wanted: "≥ " + times(limit) + wanted, Measured: ratioText(c), Met: c.Median >= limit,
	})
}

// ratioAtMost is the target that the samples are at most limit times the peer's.
func (t *Table) ratioAtMost(name, wanted string, ours, peer []sample, limit float64) {
	c := ratios(ours, peer)
	t.Targets = append(t.Targets, Target{
		Name: name, Wanted: "≤ " + times(limit) + wanted, Measured: ratioText(c), Met: c.Median <= limit,
	})
}

// ratios are those of samples that were taken in the same round.
func ratios(ours, peer []sample) Cell {
	all := make([]sample, min(len(ours), len(peer)))
	for i := range all {
		all[i] = sample{ours[i].value / peer[i].value, -1}
	}
	return cellOf(all)
}

func times(factor float64) string {
	if factor == 1 {
		return ""
	}
	return fmt.Sprintf("%.4g × ", factor)
}

func ratioText(c Cell) string {
	if c.Low == c.High {
		return fmt.Sprintf("%.3f×", c.Median)
	}
	return fmt.Sprintf("%.3f× (%.3f×–%.3f×)", c.Median, c.Low, c.High)
}

// PrintTargets writes a list of targets as Markdown.
func PrintTargets(w io.Writer, targets []Target) {
	fmt.Fprint(w, "\n| target | wanted | measured | |\n| --- | --- | --- | --- |\n")
	for _, t := range targets {
		met := "met"
		if !t.Met {
			met = "**NOT met**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", t.Name, t.Wanted, t.Measured, met)
	}
}
