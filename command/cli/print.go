package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fatih/color"

	"holdfast/command/internal/hook"
)

// PrintJSON prints v, indented.
func (c *Call) PrintJSON(v any) error { return PrintJSON(c.Out, v) }

// Report prints v, with --json; otherwise text prints what v says for people. An error of theirs shows when the
// command's output is flushed.
func (c *Call) Report(v any, text func()) error {
	if c.JSON {
		return c.PrintJSON(v)
	}
	text()
	return nil
}

// CompactJSON is v as JSON on one line.
func CompactJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Paint colours s if the command's output is a terminal.
func (c *Call) Paint(a color.Attribute, s string) string {
	return Paint(c.Cmd.OutOrStdout(), a, s)
}

// Progress shows on a terminal that something takes time, until the function
// that it returns is called. done tells how many of total bytes are done; nil
// if that is not known.
func (c *Call) Progress(what string, total int64, done func() int64) (stop func()) {
	return c.ProgressOf(what, total, done, done != nil)
}

// ProgressOf is progress; bytes: of so many a second.
func (c *Call) ProgressOf(what string, total int64, done func() int64, bytes bool) (stop func()) {
	return Progress{Writer: c.Cmd.ErrOrStderr(), What: what, Total: total, Done: done, Bytes: bytes, Step: hook.ProgressStep}.Start()
}

// Briefly is a duration for people.
func Briefly(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// ListJSON prints what there is of some kind in the bucket at path, and how many, one by one, so that any number does.
func (c *Call) ListJSON(in string, path [][]byte, kind string, each func(add func(any) error) error) error {
	file, err := CompactJSON(c.Args[0])
	if err != nil {
		return err
	}
	names, err := CompactJSON(PathNames(path))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "{\n  \"file\": %s,\n  %q: %s,\n  %q: [", file, in, names, kind)
	n := 0
	err = each(func(entry any) error {
		line, err := CompactJSON(entry)
		if err != nil {
			return err
		}
		separator := ",\n    "
		if n == 0 {
			separator = "\n    "
		}
		n++
		_, err = fmt.Fprintf(c.Out, "%s%s", separator, line)
		return err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Out, "\n  ],\n  \"count\": %d\n}\n", n)
	return err
}

// MaxPrinted bounds each list for people.
const MaxPrinted = 20

// PrintList prints the lines of n things as far as a reader may want them.
func (c *Call) PrintList(n int, line func(i int) string) {
	for i := range min(n, MaxPrinted) {
		fmt.Fprintln(c.Out, line(i))
	}
	if n > MaxPrinted {
		fmt.Fprintf(c.Out, "... and %s; --json lists them\n", Count(n-MaxPrinted)+" more")
	}
}
