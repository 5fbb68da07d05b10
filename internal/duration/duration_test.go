package duration_test

import (
	"testing"
	"time"

	"holdfast/internal/duration"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "5": 5 * time.Second, "0.5": time.Second / 2, "500ms": time.Second / 2, "1m30s": 90 * time.Second, "7d": 7 * day, "1d12h": 36 * time.Hour, "-1s": -time.Second, "-1": -time.Second,
		"": -99, "x": -99, "5x": -99, "d": -99, "-1d": -99, "1d-2h": -99, "1d+2h": -99, "1dd": -99, "1e3": -99, "NaN": -99, "0x5": -99, "1_0": -99, "200000d": -99, "106751d24h": -99, "9223372037": -99, "0.0s": 0, "1ns": 1,
		// These were taken for 0, which stands for "for ever", and for 1, as no other number is.
		"0.1ns": -99, "0.0000000001": -99, "-0.1ns": -99, "+1": -99, "+1s": -99, "5 s": -99,
	} {
		got, err := duration.Parse(text)
		if (err != nil) != (want == -99) || err == nil && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
