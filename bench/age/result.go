package age

import (
	"runtime/debug"
	"slices"
)

// Measure is something that is measured of each peer at the end of each stretch.
type Measure struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Unit  string `json:"unit"` // "ns", "B", or what follows the number
	More  bool   `json:"more"` // more is better
	// Floor is the measure of what it takes without a store, if there is one.
	Floor string `json:"floor,omitempty"`
}

// The measures, by their IDs.
const (
	Open      = "open"
	First     = "first"
	Rate      = "rate"
	P50       = "p50"
	P99       = "p99"
	FloorRate = "floor-rate"
	FloorP50  = "floor-p50"
	FloorP99  = "floor-p99"
	OverFloor = "over-floor"
	Written   = "written"
	Read      = "read"
	Get       = "get"
	Scan      = "scan"
	Size      = "size"
	Memory    = "memory"
	Peak      = "peak"
	AgeRate   = "age-rate"
	AgeWrites = "age-written"
)

// Measures are all, in the order in which they are shown.
var Measures = []Measure{
	{ID: Open, Title: "open, in a new process", Unit: "ns"},
	{ID: First, Title: "first durable commit after it, of one key", Unit: "ns"},
	{ID: Rate, Title: "durable commits of recorded transactions", Unit: "/s", More: true, Floor: FloorRate},
	{ID: P50, Title: "durable commit, median", Unit: "ns", Floor: FloorP50},
	{ID: P99, Title: "durable commit, 99th percentile", Unit: "ns", Floor: FloorP99},
	{ID: OverFloor, Title: "durable commit, median, as a multiple of its floor", Unit: "×"},
	{ID: Written, Title: "bytes written by a durable commit", Unit: "B"},
	{ID: Read, Title: "bytes read by a durable commit, with read calls", Unit: "B"},
	{ID: Get, Title: "read of a random key, in a transaction of its own", Unit: "ns"},
	{ID: Scan, Title: "scan of all keys, for each", Unit: "ns"},
	{ID: Size, Title: "disk space of the files, closed", Unit: "B"},
	{ID: Memory, Title: "memory of the process after the commits, without mapped files", Unit: "B"},
	{ID: Peak, Title: "memory of the process after the commits, at its peak, with mapped files", Unit: "B"},
	{ID: AgeRate, Title: "commits without flushes, while days are replayed, of each day", Unit: "/s", More: true},
	{ID: AgeWrites, Title: "bytes written for a commit while days are replayed, with compaction and all else", Unit: "B"},
}

// Samples are what was measured, by the IDs of measures and of floors: one number for each
// round, process, day or stretch. What a system does not tell is missing.
type Samples map[string][]float64

// Add adds a number.
func (s Samples) Add(id string, value float64) { s[id] = append(s[id], value) }

// Stretch is what was measured of a peer at the end of a day.
type Stretch struct {
	Day     int     `json:"day"`
	Cycles  int     `json:"cycles"` // live ones
	Keys    int     `json:"keys"`   // what About.Keys says, with those that were measured
	Samples Samples `json:"samples"`
}

// PeerLife is the life of a store.
type PeerLife struct {
	Peer      string    `json:"peer"`
	Note      string    `json:"note"`
	Stretches []Stretch `json:"stretches"`
}

// Version is that of a module.
type Version struct {
	Module  string `json:"module"`
	Version string `json:"version"`
}

// About says what a life is of, for the text around its figures.
type About struct {
	Title  string `json:"title,omitempty"`  // such as "The life of embedded stores"
	Story  string `json:"story,omitempty"`  // what a life of this configuration is like, in sentences
	Method string `json:"method,omitempty"` // how it is measured, in sentences
	Peer   string `json:"peer,omitempty"`   // what a peer is, such as "store"
	Cycles string `json:"of,omitempty"`     // what Stretch.Cycles counts, such as "cycles"
	Keys   string `json:"holds,omitempty"`  // what Stretch.Keys counts, such as "keys"
}

// Versions are those of this program: of the modules among the ones that it is built of, of the repository and of Go.
func Versions(modules ...string) (all []Version) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			all = append(all, Version{Module: m.Path, Version: m.Version})
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			all = append(all, Version{Module: "this repository", Version: s.Value})
		}
	}
	return append(all, Version{Module: "go", Version: info.GoVersion})
}

// Result is a run.
type Result struct {
	About    About      `json:"about"`
	Command  string     `json:"command"`
	Date     string     `json:"date"`
	Machine  string     `json:"machine"`
	Load     string     `json:"load"` // before it
	Versions []Version  `json:"versions"`
	Config   Config     `json:"config"`
	Traces   []string   `json:"traces"`
	Measures []Measure  `json:"measures"`
	Lives    []PeerLife `json:"lives"`
}

// Cell are samples in short.
type Cell struct{ Median, Low, High float64 }

// Cell is that of a measure or floor. There may be none.
func (s Samples) Cell(id string) (Cell, bool) {
	all := slices.Sorted(slices.Values(s[id]))
	n := len(all)
	if n == 0 {
		return Cell{}, false
	}
	return Cell{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}, true
}
