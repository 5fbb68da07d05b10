// Package cli is what the commands of this repository have in common: how they print for people and as
// JSON, how they end early, and how they say what is wrong with a command line; and what those on a database
// have in common: how it is opened and changed, how buckets and keys are named, and how a new file is made.
package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
	"golang.org/x/term"
)

// PrintJSON prints v, indented.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Rows prints pairs of a name and a value in two columns.
func Rows(w io.Writer, pairs ...[2]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range pairs {
		fmt.Fprintf(t, "%s\t%s\n", p[0], p[1])
	}
	_ = t.Flush() // an error shows when w is flushed
}

// Columns prints lines of columns.
func Columns(w io.Writer, lines ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	_ = t.Flush() // an error shows when w is flushed
}

// Size writes a number of bytes for people.
func Size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// SizeExactly writes a number of bytes for people and in full.
func SizeExactly(n int64) string {
	if n < 1024 {
		return Plural(int(n), "byte")
	}
	return fmt.Sprintf("%s (%s bytes)", Size(n), humanize.Comma(n))
}

// Count writes a number for people.
func Count[T int | int64 | uint64](n T) string { return humanize.Comma(int64(n)) }

// Plural writes n things.
func Plural[T int | int64 | uint64](n T, thing string) string {
	return PluralOf(n, thing, thing+"s")
}

// PluralOf writes n things whose plural is not just one with an s.
func PluralOf[T int | int64 | uint64](n T, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Percent writes part of whole.
func Percent(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	share := float64(part) * 100 / float64(whole)
	if share > 99.99 && share < 100 {
		return "more than 99.99%"
	}
	if share > 0 && share < 1 || share > 99 && share < 100 {
		return fmt.Sprintf("%.2f%%", share)
	}
	return fmt.Sprintf("%.0f%%", share)
}

// Colours of words in messages.
const (
	Red    = color.FgRed
	Green  = color.FgGreen
	Yellow = color.FgYellow
	Bold   = color.Bold
)

// Paint colours s if w is a terminal.
func Paint(w io.Writer, c color.Attribute, s string) string {
	p := color.New(c)
	if HasColour(w) {
		p.EnableColor()
	} else {
		p.DisableColor()
	}
	return p.Sprint(s)
}

// HasColour tells whether colours are used on w.
func HasColour(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// HasUTF8 tells whether characters beyond ASCII can be shown on w.
func HasUTF8(w io.Writer) bool {
	if !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return false // who reads it is not known, nor in which locale
	}
	if runtime.GOOS == "windows" {
		return true // there is no such variable, and its terminals can
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first that is set counts
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// TerminalWidth is how many columns w has; 0 if it is not a terminal.
func TerminalWidth(w io.Writer) int {
	width, _ := TerminalSize(w)
	return width
}

// TerminalSize is how many columns and lines w has; 0 if it is not a terminal.
func TerminalSize(w io.Writer) (width, height int) {
	if !IsTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// IsTerminal tells whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}
