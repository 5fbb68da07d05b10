package cli_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"holdfast/command/cli"
)

// What the help shows as the default is what the flag takes.
func TestValuesInHelp(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	var size, none, all int64
	var small int
	var wait time.Duration
	cli.SizeVar(flags, &size, "size", 64<<20, "size of it")
	cli.SizeRangeVar(flags, &none, "none", -1, 0, 9, "not given")
	cli.SizeRangeVar(flags, &all, "all", -1, -1, 9, "all")
	cli.SizeIntVar(flags, &small, "small", 4096, "small one")
	cli.DurationVar(flags, &wait, "wait", time.Second, "how long")
	help := flags.FlagUsages()
	for _, want := range []string{"--size size       size of it (default 64MiB)\n", "--none size       not given\n", "--all size        all (default -1)\n", "small one (default 4KiB)", "--wait duration   how long (default 1s)"} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in\n%s", want, help)
		}
	}
	if err := flags.Parse(strings.Fields("--size 5 --none 9 --all -1 --small 1KiB --wait 2")); err != nil || size != 5 || none != 9 || all != -1 || small != 1024 || wait != 2*time.Second {
		t.Errorf("%d, %d, %d, %d, %v: %v", size, none, all, small, wait, err)
	}
	// Of a size that is too small "outside of 1MiB to 9223372036854775807" was said.
	cli.SizeRangeVar(flags, &all, "least", 0, 1<<20, math.MaxInt64, "with a least")
	for wrong, says := range map[string]string{
		"--none -1": "negative: ", "--none 10": "outside of 0 to 9", "--all -2": "negative: ", "--wait -1s": "negative: ", "--size -5": "negative: ",
		"--size +5": "not a size: ", "--least 20": "less than 1MiB: give more, or leave the flag out",
	} {
		if err := flags.Parse(strings.Fields(wrong)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", wrong, err, says)
		}
	}
}

// The default of prune's --caches was 336h0m0s, and that of a time without a limit 0s.
func TestDurationText(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"14d": 336 * time.Hour, "1h": time.Hour, "1m": time.Minute, "1m30s": 90 * time.Second, "36h": 36 * time.Hour, "10s": 10 * time.Second, "500ms": 500 * time.Millisecond,
		"1h0m1s": time.Hour + time.Second, "20m": 20 * time.Minute, "10h": 10 * time.Hour, "0s": 0,
	} {
		if got := cli.DurationText(d); got != text {
			t.Errorf("%v is %q, and should be %q", d, got, text)
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		var read time.Duration
		cli.DurationVar(flags, &read, "for", d, "how long")
		if shown := strings.Contains(flags.FlagUsages(), "(default "+text+")"); shown != (d != 0) {
			t.Errorf("%v: the help is %q", d, flags.FlagUsages())
		}
		if err := flags.Parse([]string{"--for", text}); err != nil || read != d {
			t.Errorf("%s is read as %v, %v", text, read, err)
		}
	}
}

// Progress showed 3.2 TB/s: what is done had jumped at the beginning, when no time had passed.
func TestSpeed(t *testing.T) {
	begin := time.Unix(1000, 0)
	s := cli.Speed{Total: 100 << 30}
	for _, c := range []struct {
		after time.Duration
		done  int64
		want  string
	}{
		{0, 0, "0 B of 100 GiB"},
		{time.Microsecond, 3 << 30, "3.0 GiB of 100 GiB"},
		{900 * time.Millisecond, 4 << 30, "4.0 GiB of 100 GiB"},
		{2 * time.Second, 5 << 30, "5.0 GiB of 100 GiB, 2.5 GiB/s, 38s left"},
		{20 * time.Second, 5 << 30, "5.0 GiB of 100 GiB"}, // and no rate of zero
		{21 * time.Second, 6 << 30, "6.0 GiB of 100 GiB, 1.0 GiB/s, 1m34s left"},
		{22 * time.Second, 100 << 30, "100 GiB of 100 GiB, 48 GiB/s"},
	} {
		if got := s.Text(begin.Add(c.after), c.done); got != c.want {
			t.Errorf("after %v: %s, want %s", c.after, got, c.want)
		}
	}
}

// A file name with a newline and an escape went to the terminal as it is, in the command lines that messages give.
func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"a.db": "a.db", "": "''", "-x": "'-x'", "a b": "'a b'", "it's": `'it'\''s'`, "a\n\x1b[2J": `$'a\n\x1b[2J'`, "\\'\x00": `$'\\\'\x00'`, "\xff": `$'\xff'`, "é": "é",
	} {
		if got := cli.ShellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
