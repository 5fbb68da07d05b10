package age

import (
	"os"
	"strconv"
	"strings"

	"holdfast/bench/suite"
)

// memory adds what the system tells of the memory of this process.
func memory(s Samples) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return // not Linux
	}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		id, ok := map[string]string{"RssAnon": Memory, "VmHWM": Peak}[name]
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if kib, err := strconv.ParseFloat(fields[0], 64); err == nil {
			s.Add(id, kib*1024)
		}
	}
}

// traffic is what this process has handed to write calls, and was given by read calls.
type traffic struct{ written, read float64 }

// trafficOf runs fn and says what it wrote and read, if the system tells that.
func trafficOf(fn func() error) (t traffic, known bool, err error) {
	first, ok := trafficNow()
	before, _ := trafficNow()
	if err := fn(); err != nil {
		return t, false, err
	}
	after, _ := trafficNow()
	t = traffic{after.written - before.written, after.read - before.read}
	t.read -= before.read - first.read // to look at the counters is to read
	if t.read < 100 {                  // they have become some digits longer
		t.read = 0
	}
	return t, ok, nil
}

func trafficNow() (traffic, bool) {
	written, err := suite.Counter("wchar")
	if err != nil {
		return traffic{}, false
	}
	read, err := suite.Counter("rchar")
	return traffic{float64(written), float64(read)}, err == nil
}
