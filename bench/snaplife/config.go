package snaplife

import (
	"fmt"

	"holdfast/bench/age"
)

// Config is what a life is like, and how much is measured. A cycle of the Schedule is a build.
type Config struct {
	age.Schedule
	Steps int // and cycles, and removals, in a round
}

// Quick is a run of two or three minutes, Full one of half an hour or more.
var (
	Quick = Config{age.Schedule{Days: 40, Stretches: 4, Cycles: 10, Retention: 100, Prune: 10, Opens: 5, Rounds: 5}, 20}
	Full  = Config{age.Schedule{Days: 1000, Stretches: 20, Cycles: 10, Retention: 100, Prune: 50, Opens: 9, Rounds: 7}, 50}
)

// Flags are the numbers of the configuration.
func (c *Config) Flags() []age.Flag {
	return append(c.Schedule.Flags(), age.Flag{Name: "steps", Usage: "steps, cycles and removals in a round", Value: &c.Steps})
}

// Check says what is wrong with the configuration.
func (c *Config) Check() error { return c.Schedule.Check(c.Flags()) }

// The measures, by their IDs.
const (
	Open     = "open"
	Step     = "step"
	Prepare  = "prepare"
	Commit   = "commit"
	Cycle    = "cycle"
	Remove   = "remove"
	Prune    = "prune"
	Stat     = "stat"
	Usage    = "usage"
	Walk     = "walk"
	Metadata = "metadata"
	Size     = "size"
	AgeRate  = "age-rate"
	Floor    = "floor"
)

// Measures are all, in the order in which they are shown.
var Measures = []age.Measure{
	{ID: Open, Title: "open, until a snapshot is found", Unit: "ns"},
	{ID: Step, Title: "step: prepare, mount, write files, unmount, commit; median", Unit: "ns", Floor: Floor},
	{ID: Prepare, Title: "prepare in a step, median", Unit: "ns", Floor: Floor},
	{ID: Commit, Title: "commit in a step, median", Unit: "ns", Floor: Floor},
	{ID: Cycle, Title: "cycle: prepare, mounts, remove; median", Unit: "ns", Floor: Floor},
	{ID: Remove, Title: "remove of a committed snapshot, median", Unit: "ns", Floor: Floor},
	{ID: Prune, Title: "pruning, for each snapshot: remove, and what was put off", Unit: "ns"},
	{ID: Stat, Title: "stat of a random snapshot", Unit: "ns"},
	{ID: Usage, Title: "usage of a random committed snapshot", Unit: "ns"},
	{ID: Walk, Title: "walk, for each snapshot", Unit: "ns"},
	{ID: Metadata, Title: "disk space of the file of the metadata", Unit: "B"},
	{ID: Size, Title: "disk space of all files", Unit: "B"},
	{ID: AgeRate, Title: "operations while days are replayed, of each day", Unit: "/s", More: true},
}

// looked is how many committed snapshots are looked into, besides an active one.
const looked = 5

func about(c *Config) age.About {
	return age.About{
		Title: "The life of snapshots", Peer: "snapshotter", Cycles: "builds", Keys: "snapshots",
		Story: fmt.Sprintf("%d days. On each an image of %d layers is pulled, and %d builds of %d steps, %d cycles, a container and a view are made on it; "+
			"%d builds are live at most, and every %d days all but %d are removed.",
			c.Days, imageLayers, c.Cycles, buildSteps, buildCycles, c.Retention, c.Prune, c.Keep()),
		Method: fmt.Sprintf("Each step writes %d files of at most %d KiB, replaces one and removes one. All snapshotters stand in one directory, in one process, and "+
			"are measured one after the other, in %d rounds of %d steps, cycles and removals; the file system is flushed between them. Of the metadata each call "+
			"of each of them is on the disk when it returns; the floor is one write of a page, and one flush, before each round. Dots are medians of rounds; in brackets are the lowest and the highest round. Before and after it was "+
			"measured each was compared with a model: all names, kinds, parents and labels, and the files of %d snapshots through a mount.",
			layerFiles, largestFile>>10, c.Rounds, c.Steps, looked+1),
	}
}
