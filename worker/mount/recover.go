package mount

import "strings"

// Recovery is what Open has found of earlier runs in the same directory.
type Recovery struct {
	Runs      int       // runs that were not closed
	Ended     []int     // processes that were killed
	Unmounted []string  // paths at which something was still attached
	Foreign   []Foreign // overlays that others hold; their directories are refused
}

// Foreign is an overlay of an earlier run that other processes hold, as a service does that
// has copied the host's mount namespace while the overlay was attached there.
type Foreign struct {
	Upper string // its upper directory, if that is known
	Pids  []int  // processes in whose namespaces it is
}

// Recovered tells what Open has found.
func (m *Manager) Recovered() Recovery { return m.found }

// runOf takes the name of a mount apart: the run that has made it, and the rest. ok is
// false for what no manager has named.
func runOf(name string) (run, rest string, ok bool) {
	after, found := strings.CutPrefix(name, "holdfast-")
	if !found || len(after) < runLength+2 || after[runLength] != '-' {
		return "", "", false
	}
	run, rest = after[:runLength], after[runLength+1:]
	return run, rest, strings.Trim(run, "0123456789abcdef") == ""
}

// runLength is how many hexadecimal digits name a run.
const runLength = 16
