package suite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// memoryVariable tells a child, in its environment, what to import into which file.
const memoryVariable = "HOLDFAST_BENCH_MEMORY"

const (
	memoryOnce  = "half of that"
	memoryFour  = "twice that"
	memoryLimit = 1.25 // target for the memory of four times as much
	memoryBlob  = "one blob in one transaction"
	memoryParts = "one blob in an ingest"
)

// BlobMemory measures the memory that imports take, each in a process of its own.
func BlobMemory(c Config) (Table, error) {
	t := Table{
		Title:   "Most anonymous memory of a process that imports rows with two blob columns out of line, or one blob",
		Columns: []string{memoryOnce, memoryFour}, Peer: memoryOnce, Ours: memoryFour,
	}
	type work struct {
		name, kind string
		n          int64
	}
	var all []work
	for _, k := range rowKinds {
		n := k.rows(&c.Blobs)
		all = append(all, work{fmt.Sprintf("%d rows, values of %s", n, k.name), k.name, int64(n)})
	}
	for _, kind := range []string{memoryBlob, memoryParts} {
		all = append(all, work{kind + " of " + wholeBytes(c.Blobs.Large), kind, c.Blobs.Large})
	}
	for _, w := range all {
		var runners []runner
		for _, part := range []struct {
			name string
			n    int64
		}{{memoryOnce, w.n / 2}, {memoryFour, w.n * 2}} {
			runners = append(runners, runner{part.name, func() (sample, error) {
				peak, err := c.memoryOf(w.kind, part.n)
				return sample{float64(peak), -1}, err
			}})
		}
		c.logf("measuring: memory of %s", w.name)
		samples, err := byTurns(c.Rounds, runners)
		if err != nil {
			return t, fmt.Errorf("%s: %w", w.name, err)
		}
		t.Rows = append(t.Rows, Row{Workload: w.name, Unit: "B", Cells: cellsOf(samples)})
		t.ratioAtMost("memory: "+w.name, "a quarter of as much", samples[memoryFour], samples[memoryOnce], memoryLimit)
	}
	return t, nil
}

// memoryOf is the most memory that a process takes which imports so much.
func (c *Config) memoryOf(kind string, n int64) (int64, error) {
	path, err := c.path("memory", "holdfast")
	if err != nil {
		return 0, err
	}
	defer remove(path)
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s\n%d\n%s", memoryVariable, kind, n, path))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("a process that imports: %w", err)
	}
	return strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
}

// memoryChild imports what the variable says, and prints the most memory it took.
func memoryChild(job string) error {
	parts := strings.SplitN(job, "\n", 3)
	if len(parts) != 3 {
		return fmt.Errorf("%q is not a known job", job)
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return err
	}
	stop, peak := make(chan struct{}), make(chan int64)
	go watchMemory(stop, peak)
	err = memoryWork(parts[0], n, parts[2])
	close(stop)
	most := <-peak
	if err == nil && most == 0 {
		err = errors.New("the memory of the process is not known")
	}
	if err == nil {
		_, err = fmt.Println(most)
	}
	return err
}

func memoryWork(kind string, n int64, path string) error {
	switch kind {
	case memoryBlob:
		return buildLargeBlob(path, n)
	case memoryParts:
		return buildIngested(path, n)
	}
	for _, k := range rowKinds {
		if k.name == kind {
			to, err := openBlobRows(path, false)
			if err != nil {
				return err
			}
			_, err = importRows(to, &k, int(n), 2, ourMost)
			return errors.Join(err, to.close())
		}
	}
	return fmt.Errorf("there are no rows with values of %q", kind)
}

// watchMemory sends the most anonymous memory that was seen until stop.
func watchMemory(stop <-chan struct{}, peak chan<- int64) {
	var most int64
	for tick := time.NewTicker(time.Millisecond); ; {
		most = max(most, anonymousMemory())
		select {
		case <-tick.C:
		case <-stop:
			peak <- most
			return
		}
	}
}

// anonymousMemory is what the process takes that is not of a file, 0 if that is not known.
func anonymousMemory() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}
