package inspect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fatih/color"

	"holdfast/command/cli"
)

// Verdicts on a database, of check and doctor.
const (
	verdictSound   = "sound"
	verdictDamaged = "damaged"
	verdictBloated = "bloated" // much of the file is not needed: of doctor
	verdictUnknown = "unknown" // it cannot be looked at: of one of several
)

// finding is what was found out about a file.
type finding struct {
	verdict string
	report  any    // for JSON
	print   func() // for people
}

// failedReport stands in JSON for the report on a file that cannot be looked at.
type failedReport struct {
	File    string `json:"file"`
	Verdict string `json:"verdict"`
	Error   string `json:"error"`
}

// verdictsReport is what is told of several files.
type verdictsReport struct {
	Files    []any          `json:"files"`    // in the order of the command line
	Verdicts map[string]int `json:"verdicts"` // how many files have which
}

// eachFile looks at all files that are given, prints what look has found out about each, and gives an error with
// the exit code of the worst.
func eachFile(c *cli.Call, look func(file string) (finding, error)) error {
	r := verdictsReport{Verdicts: map[string]int{}}
	var worst error
	for i, file := range c.Args {
		f, err := look(file)
		if err != nil {
			f = failed(c, file, err)
		}
		if f.verdict == verdictDamaged {
			worst = &verdictError{cli.ErrDamaged, &r}
		} else if f.verdict == verdictUnknown && worst == nil {
			worst = &verdictError{err, &r}
		}
		r.Files = append(r.Files, f.report)
		r.Verdicts[f.verdict]++
		if c.JSON {
			continue
		}
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintf(c.Out, "%s: %s\n", file, c.Paint(verdictColour(f.verdict), f.verdict))
		f.print()
		if err := c.Out.Flush(); err != nil { // before what stands on standard error of the next
			return err
		}
	}
	if c.JSON {
		if err := c.PrintJSON(r); err != nil {
			return err
		}
	}
	return worst
}

func verdictColour(verdict string) color.Attribute {
	switch verdict {
	case verdictSound:
		return cli.Green
	case verdictDamaged:
		return cli.Red
	}
	return cli.Yellow
}

// failed is the finding on a file that cannot be looked at because of err, which is damage or something else.
func failed(c *cli.Call, file string, err error) finding {
	verdict := verdictUnknown
	if cli.IsDamage(err) {
		verdict = verdictDamaged
	}
	text := strings.TrimPrefix(err.Error(), file+": ")
	return finding{verdict, failedReport{file, verdict, text}, func() { fmt.Fprintln(c.Out, text) }}
}

// verdictError is the error of the worst of several files.
type verdictError struct {
	err error
	r   *verdictsReport
}

func (e *verdictError) Error() string {
	var parts []string
	for _, verdict := range []string{verdictDamaged, verdictUnknown, verdictBloated, verdictSound} {
		if n := e.r.Verdicts[verdict]; n > 0 {
			parts = append(parts, cli.Count(n)+" "+verdict)
		}
	}
	s := fmt.Sprintf("of %s %s", cli.Plural(len(e.r.Files), "file"), strings.Join(parts, ", "))
	if errors.Is(e.err, cli.ErrDamaged) {
		s += "; keep copies of those that are damaged as they are, before anything writes to them again (docs/recovering.md)"
	}
	return s
}

func (e *verdictError) Unwrap() error { return e.err }
