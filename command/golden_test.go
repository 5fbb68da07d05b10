package command_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/command"
)

// reading are calls of all commands that read the sample database, with the
// names of the files that hold what they print.
var reading = []struct {
	name string
	args []string
}{
	{"info", []string{"info", "sample.db"}},
	{"check", []string{"check", "sample.db"}},
	{"check-from-page", []string{"check", "sample.db", "--from-page", "3"}},
	{"check-quick", []string{"check", "sample.db", "--quick"}},
	{"stats", []string{"stats", "sample.db"}},
	{"stats-prefix", []string{"stats", "sample.db", "n"}},
	{"pages", []string{"pages", "sample.db"}},
	{"pages-free", []string{"pages", "sample.db", "--type", "free,freelist"}},
	{"pages-none", []string{"pages", "sample.db", "--type", "damaged"}},
	{"pages-map", []string{"pages", "sample.db", "--map"}},
	{"pages-map-small", []string{"pages", "sample.db", "--map", "--width", "10", "--rows", "1"}},
	{"env", []string{"env"}},
	{"doctor", []string{"doctor", "sample.db"}},
	{"buckets", []string{"buckets", "sample.db"}},
	{"buckets-nested", []string{"buckets", "sample.db", "nested"}},
	{"buckets-none", []string{"buckets", "sample.db", "alpha"}},
	{"buckets-hex", []string{"buckets", "sample.db", "--format", "hex"}},
	{"keys", []string{"keys", "sample.db", "alpha"}},
	{"keys-nested", []string{"keys", "sample.db", "nested", "inner", "deep"}},
	{"keys-binary", []string{"keys", "sample.db", "--bucket-format", "hex", "0001feff"}},
	{"keys-binary-ascii", []string{"keys", "sample.db", "--bucket-format", "hex", "0001feff", "-f", "ascii-encoded"}},
	{"keys-binary-bytes", []string{"keys", "sample.db", "--bucket-format", "hex", "0001feff", "-f", "bytes"}},
	{"keys-binary-hex", []string{"keys", "sample.db", "--bucket-format", "hex", "0001feff", "-f", "hex"}},
	{"keys-redacted", []string{"keys", "sample.db", "alpha", "-f", "redacted"}},
	{"surgery-meta-validate", []string{"surgery", "meta", "validate", "sample.db"}},
	{"get", []string{"get", "sample.db", "alpha", "key-1"}},
	{"get-empty", []string{"get", "sample.db", "alpha", "empty"}},
	{"get-unprintable", []string{"get", "sample.db", "nested", "plain"}},
	{"get-bytes", []string{"get", "sample.db", "nested", "plain", "--format", "bytes"}},
	{"get-binary", []string{"get", "sample.db", "--bucket-format", "hex", "--parse-format", "hex", "0001feff", "0001feff"}},
	{"get-binary-bytes", []string{"get", "sample.db", "--bucket-format", "hex", "--parse-format", "hex", "0001feff", "0001feff", "--format", "bytes"}},
	{"get-redacted", []string{"get", "sample.db", "nested", "long", "--format", "redacted"}},
	{"page-meta", []string{"page", "sample.db", "0", "1"}},
	{"page-all", []string{"page", "sample.db", "--all"}},
	{"page-free", []string{"page", "sample.db", "12", "28", "31"}},
	{"page-redacted", []string{"page", "sample.db", "6", "--value-format", "redacted"}},
	{"page-item", []string{"page-item", "sample.db", "2", "0"}},
	{"page-item-branch", []string{"page-item", "sample.db", "9", "1"}},
	{"page-item-bucket", []string{"page-item", "sample.db", "11", "2"}},
	{"page-item-key", []string{"page-item", "sample.db", "11", "0", "--key-only", "--format", "ascii-encoded"}},
	{"page-item-value", []string{"page-item", "sample.db", "6", "1", "--value-only", "--format", "bytes"}},
	{"dump", []string{"dump", "sample.db", "0", "4"}},
	{"inspect", []string{"inspect", "sample.db"}},
}

// TestReading runs every command that reads, for people and as JSON. None of
// them changes a byte, a time or a name.
func TestReading(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	if *update {
		makeSample(t, samplePath)
	}
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, c := range reading {
		t.Run(c.name, func(t *testing.T) {
			golden(t, here, c.name+".golden", must(t, c.args...))
			out := must(t, append(c.args, "--json")...)
			golden(t, here, c.name+".json.golden", out)
			if !json.Valid([]byte(out)) {
				t.Errorf("not JSON: %s", out)
			}
		})
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("reading changed files: before\n%s\nafter\n%s", before, after)
	}
}

// TestStockShape runs the commands that bbolt has, in its shape.  What page,
// page-item, pages, dump and inspect print was compared with the output of bbolt itself.
func TestStockShape(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := withSample(t)
	before := snapshot(t, dir)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"bbolt-info", []string{"info", "sample.db"}},
		{"bbolt-check", []string{"check", "sample.db"}},
		{"bbolt-stats", []string{"stats", "sample.db"}},
		{"bbolt-buckets", []string{"buckets", "sample.db"}},
		{"bbolt-keys", []string{"keys", "sample.db", "alpha", "--format", "hex"}},
		{"bbolt-get", []string{"get", "sample.db", "alpha", "key-1"}},
		{"bbolt-page", []string{"page", "sample.db", "--all"}},
		{"bbolt-page-hex", []string{"page", "sample.db", "6", "11", "99", "--format-value", "hex"}},
		{"bbolt-page-item", []string{"page-item", "sample.db", "11", "0"}},
		{"bbolt-pages", []string{"pages", "sample.db"}},
		{"bbolt-dump", []string{"dump", "sample.db", "0", "1", "31"}},
		{"bbolt-inspect", []string{"inspect", "sample.db"}},
		{"bbolt-surgery-meta-validate", []string{"surgery", "meta", "validate", "sample.db"}},
	} {
		r := execute(command.NewBboltCommand(), "", c.args...)
		if r.code != 0 || r.errOut != "" {
			t.Errorf("%s: %s", c.name, r)
		}
		golden(t, here, c.name+".golden", r.out)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("reading changed files: before\n%s\nafter\n%s", before, after)
	}
	for _, c := range []struct {
		args        string
		code        int
		out, errOut string
	}{
		{"check sample.db --from-page 1", command.ExitDamaged, "page ID (1) out of range [2, ", "Error: invalid value\n"},
		{"info", command.ExitUsage, "", "accepts 1 arg(s), received 0"},
		{"keys", command.ExitUsage, "", "requires at least 2 arg(s), only received 0"},
		{"get", command.ExitUsage, "", "requires at least 3 arg(s), only received 0"},
		{"stats", command.ExitUsage, "", "accepts between 1 and 2 arg(s), received 0"},
		{"compact", command.ExitUsage, "", "requires at least 1 arg(s), only received 0"},
		{"compact sample.db", command.ExitUsage, "", `required flag(s) "output" not set`},
		{"buckets gone.db", command.ExitFailed, "", "gone.db: no such file"},
		{"version", command.ExitOK, "bbolt Version: 1.5.0\nGo Version: go", ""},
		{"--version", command.ExitOK, "1.5.0", ""},
	} {
		r := execute(command.NewBboltCommand(), "", strings.Fields(c.args)...)
		wantIn(t, r, c.code, c.out, c.errOut)
	}
}

// TestHelp sees that every command has help and that the exit codes are told.
func TestHelp(t *testing.T) {
	root := command.NewRootCommand()
	for _, cmd := range root.Commands() {
		if cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.Name())
		}
		wantIn(t, run(t, cmd.Name(), "--help"), 0, "Usage:\n  holdfast "+cmd.Name(), "")
	}
	wantIn(t, run(t, "--help"), 0, "Exit codes: 0 done, 1 the operation failed, 2 the command line is wrong", "")
	wantIn(t, run(t, "completion", "bash"), 0, "complete", "")
}

func TestVersion(t *testing.T) {
	wantIn(t, run(t, "version"), 0, "Interface and file of bbolt  1.5.0", "")
	var v map[string]string
	check(t, json.Unmarshal([]byte(must(t, "version", "--json")), &v))
	if len(v) != 5 || v["bbolt_version"] != "1.5.0" || v["version"] == "" || v["go_version"] == "" || v["os"] == "" || v["arch"] == "" {
		t.Errorf("got %v", v)
	}
}
