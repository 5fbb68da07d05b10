package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// printJSON prints v, indented.
func (c *call) printJSON(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// compactJSON is v as JSON on one line.
func compactJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// rows prints pairs of a name and a value in two columns.
func rows(w io.Writer, pairs ...[2]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range pairs {
		fmt.Fprintf(t, "%s\t%s\n", p[0], p[1])
	}
	_ = t.Flush() // an error shows when w is flushed
}

// columns prints lines of columns.
func columns(w io.Writer, lines ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	_ = t.Flush() // an error shows when w is flushed
}

// size writes a number of bytes for people.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// sizeExactly writes a number of bytes for people and in full.
func sizeExactly(n int64) string {
	if n < 1024 {
		return plural(int(n), "byte")
	}
	return fmt.Sprintf("%s (%s bytes)", size(n), humanize.Comma(n))
}

// count writes a number for people.
func count[T int | int64 | uint64](n T) string { return humanize.Comma(int64(n)) }

// plural writes n things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

// percent writes part of whole.
func percent(part, whole int64) string {
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
	red    = color.FgRed
	green  = color.FgGreen
	yellow = color.FgYellow
	bold   = color.Bold
)

// paint colours s if w is a terminal.
func paint(w io.Writer, c color.Attribute, s string) string {
	p := color.New(c)
	if hasColour(w) {
		p.EnableColor()
	} else {
		p.DisableColor()
	}
	return p.Sprint(s)
}

// hasColour tells whether colours are used on w.
func hasColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// hasUTF8 tells whether characters beyond ASCII can be shown on w.
func hasUTF8(w io.Writer) bool {
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
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

// terminalWidth is how many columns w has; 0 if it is no terminal.
func terminalWidth(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// paint colours s if the command's output is a terminal.
func (c *call) paint(a color.Attribute, s string) string {
	return paint(c.cmd.OutOrStdout(), a, s)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// progressStep is how often progress is drawn; 0, in tests: at once, too.
var progressStep = 100 * time.Millisecond

// progress shows on a terminal that something takes time, until the function
// that it returns is called. done tells how many of total bytes are done; nil
// if that is not known.
func (c *call) progress(what string, total int64, done func() int64) (stop func()) {
	return c.progressOf(what, total, done, done != nil)
}

// progressOf is progress; bytes: of so many a second.
func (c *call) progressOf(what string, total int64, done func() int64, bytes bool) (stop func()) {
	w := c.cmd.ErrOrStderr()
	if !isTerminal(w) {
		return func() {}
	}
	if done == nil {
		total = -1
	}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(20),
		progressbar.OptionShowBytes(bytes), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(bytes), progressbar.OptionSetPredictTime(bytes), progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0)) // drawn below, and by no goroutine of its own
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		draw := func() {
			if done == nil {
				_ = bar.Add(1)
			} else {
				_ = bar.Set64(min(done(), total))
			}
		}
		if progressStep == 0 {
			_ = bar.RenderBlank()
		}
		tick := time.NewTicker(max(progressStep, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-quit:
				_ = bar.Exit()
				_ = bar.Clear()
				return
			case <-tick.C:
				draw()
			}
		}
	}()
	return func() { close(quit); <-ended }
}
