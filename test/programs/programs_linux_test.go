package programs

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"holdfast/test/cluster"
)

// TestParseLoad reads what benchmark printed, with the puts that failed, and fails where a figure is missing.
func TestParseLoad(t *testing.T) {
	const out = `
Summary:
  Total:	7.0314 secs.
  Slowest:	0.101306126 secs.
  Average:	0.0091 secs.
  Requests/sec:	7029.5

Latency distribution:
  90% in 0.0131 secs.
  99% in 0.0258 secs.
  99.9% in 0.0401 secs.
`
	got, err := parseLoad(out)
	if want := (result{rate: 7029.5, p99: 0.0258, slowest: 0.101306126}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	got, err = parseLoad(out + "\nError distribution:\n  [3]\tetcdserver: request timed out\n  [12]\tanother\n")
	if err != nil || got.failed != 15 {
		t.Errorf("%d puts failed, %v; want 15", got.failed, err)
	}
	if _, err := parseLoad(strings.Replace(out, "  99% in", "  98% in", 1)); err == nil {
		t.Error("no 99th percentile, and no error")
	}
}

// TestHistogram takes the part of a histogram between two looks.
func TestHistogram(t *testing.T) {
	parse := func(counts string) *histogram {
		t.Helper()
		fields := strings.Fields(counts)
		h, err := parseHistogram(`# HELP x_bucket a comment
x_bucket{le="0.001"} `+fields[0]+`
x_bucket{le="0.002"} `+fields[1]+`
x_bucket{le="+Inf"} `+fields[2]+`
x_sum `+fields[3]+`
x_count `+fields[2]+`
other_bucket{le="1"} 7
`, "x")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := parse("60 160 160 0.3")
	h.sub(parse("10 10 10 0.1"))
	if got := h.mean(); math.Abs(got-0.2/150) > 1e-9 {
		t.Errorf("mean %v", got)
	}
	// Of 150 values 50 are below 1 ms; the 100th is in the middle of the other hundred.
	if got := h.quantile(100.0 / 150); math.Abs(got-0.0015) > 1e-9 {
		t.Errorf("quantile %v, want 0.0015", got)
	}
	if got := parse("0 0 5 1").quantile(0.99); got != 0.002 {
		t.Errorf("above all bounds: %v, want the highest of them", got)
	}
	if _, err := parseHistogram("y_sum 1\n", "x"); err == nil {
		t.Error("no histogram, and no error")
	}
}

// TestTable prints medians and gains: of times and bytes less is better, of rates more.
func TestTable(t *testing.T) {
	var table Table
	for _, v := range []float64{3, 1, 2} {
		table.Add(cluster.Stock, "time", Seconds, v/1000)
	}
	table.Add(cluster.Holdfast, "time", Seconds, 0.001)
	table.Add(cluster.Stock, "rate", PerSecond, 100)
	table.Add(cluster.Holdfast, "rate", PerSecond, 150)
	table.Add(cluster.Holdfast, "bytes", Bytes, 3<<20)
	asJSON, err := json.Marshal(&table)
	if err != nil {
		t.Fatal(err)
	}
	table = Table{}
	if err := json.Unmarshal(asJSON, &table); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := table.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	const want = `

| what | bbolt | Holdfast | gain |
| --- | --- | --- | --- |
| time | 2ms (1ms–3ms) | 1ms | 2.00× |
| rate | 100/s | 150/s | 1.50× |
| bytes | – | 3 MiB | – |
`
	if b.String() != want {
		t.Errorf("got %s", b.String())
	}
}
