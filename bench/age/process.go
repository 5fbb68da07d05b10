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
			s.add(id, kib*1024)
		}
	}
}

// traffic is what this process has handed to write calls, and was given by read calls.
type traffic struct {
	known         bool
	written, read int64
}

func trafficNow() (t traffic) {
	var errs [2]error
	t.written, errs[0] = suite.Counter("wchar")
	t.read, errs[1] = suite.Counter("rchar")
	t.known = errs[0] == nil && errs[1] == nil
	return t
}
