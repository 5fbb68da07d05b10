package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UsageError is an error of the command line.
type UsageError struct{ Err error }

// Error is the text of Err.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes an error of the command line.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// IsUsage tells whether err is one of the command line.
func IsUsage(err error) bool {
	var usage *UsageError
	return errors.As(err, &usage)
}

// OutputError is an error of writing to standard output.
type OutputError struct{ Err error }

// Error says that it is of the output.
func (e *OutputError) Error() string { return "write the output: " + e.Err.Error() }

// Unwrap is Err.
func (e *OutputError) Unwrap() error { return e.Err }

// Output writes to W, and its errors are OutputErrors: not of a file.
type Output struct{ W io.Writer }

// Write writes b. If the system cannot read b, which is then of a mapped file that was shortened, neither can
// Write, and it panics as reading b does: the View that b is from makes an error of that.
func (o Output) Write(b []byte) (int, error) {
	n, err := o.W.Write(b)
	if errors.Is(err, syscall.EFAULT) {
		sum := byte(0)
		for _, c := range b {
			sum += c
		}
		runtime.KeepAlive(sum)
	}
	if err != nil {
		err = &OutputError{err}
	}
	return n, err
}

// IsClosedPipe tells whether err is that the output has no reader any more.
func IsClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// Flushed writes what out still holds when a command has ended with err, and gives the error of both. A reader that has
// closed the pipe that it was written to has seen enough: that is none.
func Flushed(out *bufio.Writer, err error) error {
	if flushErr := out.Flush(); flushErr != nil && !IsClosedPipe(flushErr) && err == nil {
		err = flushErr
	}
	if IsClosedPipe(err) {
		return nil
	}
	return err
}

// Failure is an error as it is printed: for people, or with --json as one line of JSON, which is an object with
// it as "error".
type Failure struct {
	Message  string `json:"message"`         // all of it
	Kind     string `json:"kind"`            // usage, failed, damaged or interrupted
	ExitCode int    `json:"exit_code"`       // of the process
	File     string `json:"file,omitempty"`  // of which the error is
	Next     string `json:"next,omitempty"`  // the next step
	Usage    string `json:"usage,omitempty"` // how the command is called, if its command line is wrong
}

// Kinds of Failure.
const (
	KindUsage       = "usage"
	KindFailed      = "failed"
	KindDamaged     = "damaged"
	KindInterrupted = "interrupted"
)

// Print prints f, of cmd below root.
func (f Failure) Print(root, cmd *cobra.Command) {
	w := root.ErrOrStderr()
	if f.Kind == KindUsage {
		f.Usage = cmd.UseLine()
	}
	if WantsJSON(root) {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		_ = e.Encode(map[string]Failure{"error": f})
		return
	}
	keep := "\n" // errors that are joined have a line each
	if f.Kind == KindUsage {
		keep = ""
	}
	fmt.Fprintf(w, "%s %s\n", Paint(w, Red, root.Name()+":"), escape(f.Message, keep))
	if f.Usage != "" {
		fmt.Fprintf(w, "Usage: %s\nMore: %s --help\n", f.Usage, cmd.CommandPath())
	}
}

// OneLine is s, a name that may come from an untrusted source, as it can be shown: what is not text stands
// there as in a string of Go, so that a terminal does nothing but show it.
func OneLine(s string) string { return escape(s, "") }

// escape writes what is not text in s, but for the characters in keep, as in a string of Go.
func escape(s, keep string) string {
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) {
			quoted := strconv.Quote(s[:n])
			out.WriteString(quoted[1 : len(quoted)-1])
		} else {
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
	return out.String()
}

// valuesAtEnd are the values of a flag where what --help says of it ends with them.
var valuesAtEnd = regexp.MustCompile(`: ([a-z-]+(?:\|[a-z-]+)+)$`)

// PrepareCompletion has a shell complete what flags can be set to, if cmd, which is about to run below root, is what the shell
// calls for that. Not before: cobra keeps the functions of all flags, by flag, for as long as the process lives.
func PrepareCompletion(root, cmd *cobra.Command) {
	if cmd.Name() == cobra.ShellCompRequestCmd {
		completeValues(root)
	}
}

func completeValues(cmd *cobra.Command) {
	for _, child := range cmd.Commands() {
		completeValues(child)
	}
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if m := valuesAtEnd.FindStringSubmatch(flag.Usage); m != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, FlagValues(strings.Split(m[1], "|"))) // which has none yet
		}
	})
}

// FlagValues offers values, also after others and a comma, for flags that take several.
func FlagValues(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (offered []string, _ cobra.ShellCompDirective) {
		before := begun[:strings.LastIndexByte(begun, ',')+1]
		for _, v := range values {
			if strings.HasPrefix(before+v, begun) {
				offered = append(offered, before+v)
			}
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}
