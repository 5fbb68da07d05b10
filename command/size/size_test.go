package size_test

import (
	"testing"

	"holdfast/command/size"
)

// Some commands took a bare number as bytes and others refused it, and --timeout 5 was refused everywhere.
func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "20": 20, "65536": 65536, "20MiB": 20 << 20, "20mib": 20 << 20, "64 KiB": 64 << 10, "1.5GiB": 3 << 29,
		"10kB": 10_000, "1MB": 1_000_000, "2K": 2000, "7B": 7, "9223372036854775807": 1<<63 - 1, "7EiB": 7 << 60,
		"": -1, "x": -1, "-1": -1, "-1MiB": -1, "1.5": -1, "1q": -1, "MiB": -1, "+5": -1, "0x10": -1, "1e3": -1, "9223372036854775808": -1, "8EiB": -1, "16EiB": -1, "NaN": -1, "Inf": -1, "1,000": -1,
		"1,5GiB": -1, "1,000MiB": -1, "1152921504606846975B": 1<<60 - 1, "1152921504606846kB": 1152921504606846000, // they were 15 GiB and 1000 MiB: where a comma stands for the point, ten times as much
	} {
		got, err := size.Parse(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if err == nil {
			if again, err := size.Parse(size.Text(got)); err != nil || again != got {
				t.Errorf("%q is written as %q, which is read as %d, %v", text, size.Text(got), again, err)
			}
		}
	}
}
