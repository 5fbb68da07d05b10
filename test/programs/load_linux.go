package programs

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"holdfast/test/cluster"
)

// load is what etcd's own tool benchmark is told to put.
type load struct {
	clients, total, size int
	keys                 int // of how many different keys
	inOrder              bool
	rate                 int // puts a second at most; 0: any number
	mayFail              bool
}

// result is what it measured, times in seconds.
type result struct {
	rate, p99, slowest float64
	failed             int // puts that were refused or timed out
}

// load has it put. Puts that fail are an error only where all must succeed.
func (x *Etcd) load(ctx context.Context, m *cluster.Member, l load) (result, error) {
	args := []string{
		"--endpoints", strings.TrimPrefix(m.URL(), "http://"), "--precise", "--clients", fmt.Sprint(l.clients), "--conns", fmt.Sprint(min(l.clients, 8)),
		"put", "--total", fmt.Sprint(l.total), "--val-size", fmt.Sprint(l.size), "--key-size", "16",
		"--key-space-size", fmt.Sprint(l.keys), "--rate", fmt.Sprint(l.rate),
	}
	if l.inOrder {
		args = append(args, "--sequential-keys")
	}
	out, err := exec.CommandContext(ctx, x.Load, args...).CombinedOutput()
	if err != nil {
		return result{}, fmt.Errorf("benchmark %s: %w: %s", strings.Join(args, " "), err, out)
	}
	r, err := parseLoad(string(out))
	if err == nil && r.failed > 0 && !l.mayFail {
		err = fmt.Errorf("benchmark: %s", loadErrors.FindString(string(out)))
	}
	return r, err
}

var (
	loadRate    = regexp.MustCompile(`Requests/sec:\s+(\S+)`)
	loadSlowest = regexp.MustCompile(`Slowest:\s+(\S+) secs`)
	loadP99     = regexp.MustCompile(`99% in (\S+) secs`)
	loadErrors  = regexp.MustCompile(`(?s)Error distribution:.*`)
	loadFailed  = regexp.MustCompile(`(?m)^\s+\[(\d+)\]`)
)

// parseLoad reads what it prints.
func parseLoad(out string) (r result, err error) {
	for _, failed := range loadFailed.FindAllStringSubmatch(loadErrors.FindString(out), -1) {
		n, err := strconv.Atoi(failed[1])
		if err != nil {
			return r, fmt.Errorf("benchmark: %w", err)
		}
		r.failed += n
	}
	for _, field := range []struct {
		pattern *regexp.Regexp
		to      *float64
	}{{loadRate, &r.rate}, {loadSlowest, &r.slowest}, {loadP99, &r.p99}} {
		found := field.pattern.FindStringSubmatch(out)
		if found == nil {
			return r, fmt.Errorf("benchmark printed no %v: %s", field.pattern, out)
		}
		if *field.to, err = strconv.ParseFloat(found[1], 64); err != nil {
			return r, fmt.Errorf("benchmark: %w", err)
		}
	}
	return r, nil
}

// A histogram is one of Prometheus: how many were at most as long as each bound, in seconds.
type histogram struct {
	bounds []float64 // the last is infinite
	counts []float64
	sum    float64
}

// commitTimes are those of etcd's commits to its database since it was started.
func commitTimes(ctx context.Context, m *cluster.Member) (*histogram, error) {
	text, err := m.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	return parseHistogram(text, "etcd_disk_backend_commit_duration_seconds")
}

func parseHistogram(text, name string) (*histogram, error) {
	h := &histogram{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"_")
		if !ok {
			continue
		}
		label, number, _ := strings.Cut(strings.TrimSpace(rest), " ")
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if label == "sum" {
			h.sum = value
		}
		if bound, ok := strings.CutPrefix(label, `bucket{le="`); ok {
			at, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			h.bounds, h.counts = append(h.bounds, at), append(h.counts, value)
		}
	}
	if len(h.bounds) == 0 || !math.IsInf(h.bounds[len(h.bounds)-1], 1) {
		return nil, fmt.Errorf("there is no histogram %s", name)
	}
	return h, nil
}

// sub takes away what was counted before.
func (h *histogram) sub(before *histogram) {
	for i := range h.counts {
		h.counts[i] -= before.counts[i]
	}
	h.sum -= before.sum
}

func (h *histogram) mean() float64 {
	if n := h.counts[len(h.counts)-1]; n > 0 {
		return h.sum / n
	}
	return 0
}

// quantile is as Prometheus has it: values lie evenly between two bounds.
func (h *histogram) quantile(q float64) float64 {
	want := q * h.counts[len(h.counts)-1]
	var lower, below float64
	for i, n := range h.counts {
		if n >= want && n > below {
			if math.IsInf(h.bounds[i], 1) {
				return lower
			}
			return lower + (h.bounds[i]-lower)*(want-below)/(n-below)
		}
		lower, below = h.bounds[i], n
	}
	return 0
}
