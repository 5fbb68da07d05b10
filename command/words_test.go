package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command"
)

// leaves calls fn with all commands that do something, and the words that call them.
func leaves(cmd *cobra.Command, words []string, fn func(cmd *cobra.Command, words []string)) {
	for _, child := range cmd.Commands() {
		if child.Name() == "completion" || child.Name() == "help" {
			continue
		}
		below := append(words[:len(words):len(words)], child.Name())
		if child.HasSubCommands() {
			leaves(child, below, fn)
		} else {
			fn(child, below)
		}
	}
}

// notPlain is what people need not know: of cobra, of pflag, and of Go's functions.
var notPlain = regexp.MustCompile(`arg\(s\)|invalid argument|strconv|parsing "|invalid syntax|unknown shorthand|flag needs|time: |humanize|%!`)

// "--cpus two" was answered with strconv.ParseFloat, too many arguments with "accepts 1 arg(s)", and of a flag that
// does not exist nothing said which may have been meant: of all commands and all flags.
func TestPlainWords(t *testing.T) {
	workdir(t)
	wrong := func(words []string, says string) {
		t.Helper()
		r := run(t, words...)
		if r.code != command.ExitUsage || !strings.Contains(r.errOut, says) || notPlain.MatchString(r.errOut) {
			t.Errorf("%s: %s\nwant %q", words, r, says)
		}
	}
	leaves(newRoot(), nil, func(cmd *cobra.Command, words []string) {
		with := func(more ...string) []string { return append(words[:len(words):len(words)], more...) }
		wrong(with("--jsn"), "unknown flag --jsn; similar: --json")
		wrong(with("--timeout", "5x"), "--timeout 5x: not a duration")
		if cmd.Args != nil && cmd.Args(cmd, nil) != nil {
			wrong(with(), " is missing")
		}
		if many := strings.Fields("x x x x x x x x"); cmd.Args != nil && cmd.Args(cmd, many) != nil {
			wrong(with(many...), `unexpected argument "x"`)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "string", "stringSlice", "stringArray":
			case "bool":
				wrong(with("--"+f.Name+"=two"), "--"+f.Name+" two: neither true nor false")
			default:
				wrong(with("--"+f.Name, "two"), "--"+f.Name+" two: not a ")
				wrong(with("--"+f.Name), "--"+f.Name+" needs a value")
			}
		})
	})
	wrong([]string{"chek"}, `unknown command "chek" for "holdfast"; similar: check`)
	wrong([]string{"surgery", "clear-pgae"}, `unknown command "clear-pgae" for "holdfast surgery"; similar: clear-page`)
}

// Every flag that is a number of bytes, or a time, takes what all others take.
func TestSizesAndDurations(t *testing.T) {
	sizes := regexp.MustCompile(`\b(bytes|size of|page size|longest line|length of)\b`)
	leaves(newRoot(), nil, func(cmd *cobra.Command, words []string) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if sizes.MatchString(f.Usage) && !strings.Contains(f.Usage, "|bytes") && !strings.Contains(f.Usage, "bytes|") && kind != "size" && kind != "bool" {
				t.Errorf("%s --%s is a size, and a flag of the type %s", words, f.Name, kind)
			}
			if strings.Contains(f.Usage, "how long") && kind != "duration" {
				t.Errorf("%s --%s is a duration, and a flag of the type %s", words, f.Name, kind)
			}
			var good []string
			switch kind {
			case "size":
				good = []string{"4096", "4KiB", "4096B"}
			case "duration":
				good = []string{"5", "5s", "5000ms", "0.5"}
			}
			for _, text := range good {
				if err := f.Value.Set(text); err != nil && !strings.Contains(err.Error(), "outside of") {
					t.Errorf("%s --%s %s: %v", words, f.Name, text, err)
				}
			}
		})
	})
}

// With --json an error was text only, which a program had to guess at.
func TestErrorsAsJSON(t *testing.T) {
	withSample(t)
	for _, c := range []struct {
		args, kind string
		code       int
		message    string
		file, next bool
	}{
		{"check gone.db", "failed", 1, "gone.db: no such file", true, false},
		{"check simple.db", "failed", 1, "simple.db: no such file; there is sample.db", true, true},
		{"get sample.db alpha nothing", "failed", 1, "sample.db: no key nothing in bucket alpha", true, true},
		{"check", "usage", 2, "FILE is missing", false, false},
		{"check sample.db --quik", "usage", 2, "unknown flag --quik; similar: --quick", false, false},
		{"check sample.db --timeout 5x", "usage", 2, "--timeout 5x: not a duration", false, false},
		{"diff gone.db sample.db", "failed", 2, "gone.db: no such file", true, false},
	} {
		r := run(t, append([]string{"--json"}, strings.Fields(c.args)...)...)
		var got struct {
			Error struct {
				Message, Kind, File, Next, Usage string
				ExitCode                         int `json:"exit_code"`
			}
		}
		if err := json.Unmarshal([]byte(r.errOut), &got); err != nil || strings.Count(r.errOut, "\n") != 1 {
			t.Errorf("%s: no line of JSON: %s", c.args, r)
			continue
		}
		e := got.Error
		if r.code != c.code || e.ExitCode != c.code || e.Kind != c.kind || !strings.HasPrefix(e.Message, c.message) ||
			(e.File != "") != c.file || (e.Next != "") != c.next || (e.Usage != "") != (c.kind == "usage") {
			t.Errorf("%s: %s", c.args, r)
		}
	}
	must(t, "put", "other.db", "b", "k", "v", "--create")
	wantIn(t, run(t, "--json", "diff", "sample.db", "other.db"), command.ExitDifferent, `"equal": false`, "")
	r := execute(command.NewBboltCommand(), "", "check", "gone.db", "--json")
	if !json.Valid([]byte(r.errOut)) || r.code != command.ExitFailed {
		t.Errorf("in bbolt's shape: %s", r)
	}
}

// surgery meta update on two zeroed metas ended with 0 and a file that nothing opens.
func TestMetaUpdateOfZeroedMetas(t *testing.T) {
	withSample(t)
	data, err := os.ReadFile("sample.db")
	check(t, err)
	clear(data[:2*samplePage])
	check(t, os.WriteFile("sample.db", data, 0o600))
	for _, fields := range []string{"", "root:3", "pageSize:1024", "pageSize:1024,root:3", "pageSize:1000,root:3,pgid:30"} {
		args := []string{"surgery", "meta", "update", "sample.db", "-o", "out.db"}
		if fields != "" {
			args = append(args, "--fields", fields)
		}
		r := run(t, args...)
		wantIn(t, r, command.ExitFailed, "", "neither meta page can be opened")
		wantIn(t, r, command.ExitFailed, "", "give all that is missing at once, as --fields root:")
		wantIn(t, run(t, "info", "out.db"), command.ExitFailed, "", "out.db: no such file")
	}
	whole := fmt.Sprintf("pageSize:%d,root:11,pgid:32", samplePage)
	must(t, "surgery", "meta", "update", "sample.db", "-o", "out.db", "--fields", whole)
	must(t, "info", "out.db")
}
