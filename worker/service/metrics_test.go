package service

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"holdfast"
)

// TestDashboard: each figure that the dashboard shows is one that the daemon has, and each that the daemon has is shown but for
// those that are there to be joined.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../dashboards/holdfastd.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Fatal("the dashboard is no JSON")
	}
	has := map[string]bool{}
	for _, d := range descs {
		has[regexp.MustCompile(`fqName: "([a-z_]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	shown := 0
	for _, name := range regexp.MustCompile(`holdfast_[a-z_]+`).FindAllString(string(b), -1) {
		if !has[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("the dashboard shows %s, which there is not", name)
		}
		shown++
	}
	if shown < 15 || len(has) != len(descs) {
		t.Errorf("%d names in the dashboard, %d figures of %d", shown, len(has), len(descs))
	}
}

// TestLatency: the buckets of the engine become cumulative ones.
func TestLatency(t *testing.T) {
	var h holdfast.Histogram
	h.Buckets[0], h.Buckets[3], h.Buckets[len(h.Buckets)-1] = 5, 2, 1
	var m dto.Metric
	if err := latency(&h, "x").Write(&m); err != nil {
		t.Fatal(err)
	}
	got := m.GetHistogram()
	if got.GetSampleCount() != 8 || len(got.Bucket) != len(h.Buckets)-1 {
		t.Fatalf("%v", got)
	}
	for _, b := range got.Bucket {
		want := uint64(5)
		if b.GetUpperBound() >= (8 * time.Microsecond).Seconds() {
			want = 7
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("up to %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
		}
	}
	if got.GetSampleSum() <= 0 {
		t.Error(got.GetSampleSum())
	}
	var _ prometheus.Collector = &Service{}
}
