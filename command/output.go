package command

import (
	"encoding/json"
	"holdfast/command/internal/hook"
	"io"
	"strings"

	"github.com/fatih/color"

	"holdfast/command/cli"
)

// printJSON prints v, indented.
func (c *call) printJSON(v any) error { return cli.PrintJSON(c.out, v) }

// compactJSON is v as JSON on one line.
func compactJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// What commands have in common with those of other programs of this repository.
func rows(w io.Writer, pairs ...[2]string)                    { cli.Rows(w, pairs...) }
func columns(w io.Writer, lines ...[]string)                  { cli.Columns(w, lines...) }
func size(n int64) string                                     { return cli.Size(n) }
func sizeExactly(n int64) string                              { return cli.SizeExactly(n) }
func count[T int | int64 | uint64](n T) string                { return cli.Count(n) }
func plural[T int | int64 | uint64](n T, thing string) string { return cli.Plural(n, thing) }
func percent(part, whole int64) string                        { return cli.Percent(part, whole) }
func paint(w io.Writer, c color.Attribute, s string) string   { return cli.Paint(w, c, s) }
func hasColour(w io.Writer) bool                              { return cli.HasColour(w) }
func hasUTF8(w io.Writer) bool                                { return cli.HasUTF8(w) }
func terminalWidth(w io.Writer) int                           { return cli.TerminalWidth(w) }
func isTerminal(w io.Writer) bool                             { return cli.IsTerminal(w) }

// Colours of words in messages.
const (
	red    = cli.Red
	green  = cli.Green
	yellow = cli.Yellow
	bold   = cli.Bold
)

// paint colours s if the command's output is a terminal.
func (c *call) paint(a color.Attribute, s string) string {
	return paint(c.cmd.OutOrStdout(), a, s)
}

// progress shows on a terminal that something takes time, until the function
// that it returns is called. done tells how many of total bytes are done; nil
// if that is not known.
func (c *call) progress(what string, total int64, done func() int64) (stop func()) {
	return c.progressOf(what, total, done, done != nil)
}

// progressOf is progress; bytes: of so many a second.
func (c *call) progressOf(what string, total int64, done func() int64, bytes bool) (stop func()) {
	return cli.Progress{Writer: c.cmd.ErrOrStderr(), What: what, Total: total, Done: done, Bytes: bytes, Step: hook.ProgressStep}.Start()
}
