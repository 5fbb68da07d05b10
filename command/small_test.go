package command_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"holdfast/command"
)

// TestEmptyFlagValues: a flag with an empty value, as of a variable of a shell that is not set, was as if it were not
// given: export -o "" wrote to standard output, and blob put --into "" stored a blob without its row.
func TestEmptyFlagValues(t *testing.T) {
	dir := withSample(t)
	check(t, os.WriteFile("f", []byte("x"), 0o600))
	before := snapshot(t, dir)
	for _, args := range [][]string{
		{"export", "sample.db", "-o", ""}, {"blob", "put", "sample.db", "st", "f", "--create", "--into", ""},
		{"blob", "put", "sample.db", "st", "f", "--create", "--into", "b", "--name", ""}, {"blob", "put", "sample.db", "st", "f", "--create", "--resume", ""},
		{"import", "sample.db", "-i", ""}, {"put", "sample.db", "alpha", "k", "v", "--value-file", ""},
	} {
		if r := run(t, args...); r.code != command.ExitUsage || r.out != "" || !strings.Contains(r.errOut, " is given with an empty value\n") {
			t.Errorf("%q: %s", args, r)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestOutputDash: -o - made a file that is called -, where other programs take that for standard output.
func TestOutputDash(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, args := range []string{"export sample.db -o -", "compact sample.db -o -", "salvage sample.db -o -"} {
		r := run(t, strings.Fields(args)...)
		wantIn(t, r, command.ExitUsage, "", "holdfast: - is not taken for a file to write; give ./- for one of that name\n")
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	must(t, "compact", "sample.db", "-o", "./-")
}

// TestEscapesInErrors: the bytes of file names, of unknown flags and of values of flags went to the terminal as they
// are in errors, which could clear it, or look like lines of the command.
func TestEscapesInErrors(t *testing.T) {
	withSample(t)
	odd := "a\x1b[2Jb\nholdfast: c\xff"
	if err := os.WriteFile(odd+".db", []byte("no database"), 0o600); runtime.GOOS != "windows" { // which has no such names
		check(t, err)
	}
	for _, args := range [][]string{
		{"check", odd}, {"check", odd + ".db"}, {"info", odd + ".db"}, {"get", "sample.db", "alpha", "key-1", "--" + odd},
		{"get", "sample.db", "alpha", "key-1", "--format", odd}, {"export", "sample.db", "-o", odd + "/x"}, {"--" + odd}, {odd},
	} {
		r := run(t, args...)
		text := strings.ReplaceAll(r.errOut, "\n", "")
		if r.code == 0 || !printable(text) || strings.Contains(r.errOut, "\nholdfast: c") {
			t.Errorf("%q: %q", args, r.errOut)
		}
	}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' })
}

// TestPlainNumbers: of numbers and of hexadecimal the errors were those of Go's functions.
func TestPlainNumbers(t *testing.T) {
	withSample(t)
	for args, says := range map[string]string{
		"page-item sample.db 11 18446744073709551616": `"18446744073709551616" is not an element number`,
		"page sample.db 18446744073709551616":         `"18446744073709551616" is not a page number`,
		"keys sample.db --bucket-format hex 0":        `bucket "0" is not hexadecimal: two digits for each byte`,
		"keys sample.db --bucket-format hex zz":       `bucket "zz" is not hexadecimal: two digits for each byte`,
		"put sample.db alpha k x --value-format hex":  `value "x" is not hexadecimal: two digits for each byte`,
		"man nosuch":                      "no command nosuch; holdfast --help lists them",
		"check sample.db --timeout 0.1ns": "--timeout 0.1ns: not a duration",
		"check sample.db --timeout +1":    "--timeout +1: not a duration",
	} {
		r := run(t, strings.Fields(args)...)
		if r.code != command.ExitUsage || !strings.Contains(r.errOut, says+"\n") && !strings.Contains(r.errOut, says+":") || strings.Contains(r.errOut, "strconv") || strings.Contains(r.errOut, "encoding/") {
			t.Errorf("%s: %s", args, r)
		}
	}
}
