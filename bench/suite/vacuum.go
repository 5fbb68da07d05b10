package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holdfast"
)

// Columns of what goes on beside a vacuum.
const (
	withoutVacuum = "without vacuum"
	withVacuum    = "with vacuum"
)

// VacuumGroups are those about vacuum. Each has targets.
var VacuumGroups = []Group{
	{"vacuum-emptied", VacuumEmptied},
	{"vacuum-thinned", VacuumThinned},
	{"vacuum-offline", VacuumOffline},
}

const (
	besideLimit = 2.0       // target for latencies beside a vacuum, of those without
	shrunkLimit = 128 << 10 // target for the size of the emptied file, in bytes
	youngShare  = 0.95      // target for the rate of commits afterwards, of that on a young file

	// stepBytes is what one step writes at most.
	stepBytes = 64 * pageSize
)

// VacuumEmptied measures a vacuum of a file that was emptied beside readers and a writer,
// and commits afterwards.
func VacuumEmptied(c Config) (Table, error) {
	t := vacuumTable(fmt.Sprintf("Vacuum of a file that held %s and was emptied", FormatBytes(float64(c.Emptied))))
	keys, values := hundred()
	file, err := c.fileOf("emptied", 4*c.Emptied)
	if err != nil {
		return t, err
	}
	defer remove(file)
	c.logf("building a file of %s that is emptied", FormatBytes(float64(c.Emptied)))
	if err := BuildEmptied(Holdfast, file, c.Emptied); err != nil {
		return t, err
	}
	v := &besideVacuum{c: c, what: "emptied file", source: file, bucket: bucketName, keys: keys, size: len(values[0])}
	if err := v.run(); err != nil {
		return t, err
	}
	v.rows(&t)
	after := cellOf(v.after)
	t.atMost(v.what+": size after a vacuum beside readers and a writer", FormatBytes(shrunkLimit), after.High, shrunkLimit,
		FormatBytes(after.High)+" at most")
	return t, c.afterVacuum(&t, v.copied)
}

// VacuumThinned measures a vacuum of a file whose keys were deleted at random beside
// readers and a writer. It takes long enough to see many commits.
func VacuumThinned(c Config) (Table, error) {
	t := vacuumTable("")
	file, err := c.fileOf("thinned", 5*c.Thinned/2)
	if err != nil {
		return t, err
	}
	defer remove(file)
	c.logf("building a file of %s with keys that are deleted at random", FormatBytes(float64(c.Thinned)))
	left, err := buildThinned(file, c.Thinned)
	if err != nil {
		return t, err
	}
	v := &besideVacuum{c: c, what: "random deletes", source: file, bucket: bigName, keys: left, size: bigValue}
	if err := v.run(); err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("Vacuum of a file of %s in which four of five keys were deleted at random", FormatBytes(cellOf(v.before).Median))
	v.rows(&t)
	return t, nil
}

func vacuumTable(title string) Table {
	return Table{Title: title, Columns: []string{withoutVacuum, withVacuum}, Peer: withoutVacuum, Ours: withVacuum}
}

// besideVacuum measures vacuums of copies of a file, with traffic beside them.
type besideVacuum struct {
	c      Config
	what   string // the file
	source string
	copied string // the copy that was vacuumed last
	bucket []byte
	keys   [][]byte
	size   int

	alone, beside []latencies // of each round
	// Of each vacuum:
	before, after, grown, took, written, steps, longest []sample
}

func (v *besideVacuum) run() error {
	v.copied = filepath.Join(filepath.Dir(v.source), "work", "db")
	if err := os.Mkdir(filepath.Dir(v.copied), 0o700); err != nil {
		return err
	}
	v.c.logf("measuring: vacuum beside readers and a writer, %s", v.what)
	for range v.c.Rounds {
		var alone, beside latencies
		// One vacuum can be too short for a percentile.
		for vacuums := 0; vacuums == 0 || len(beside.commits) < v.c.Commits; vacuums++ {
			if err := v.once(&alone, &beside); err != nil {
				return fmt.Errorf("%s: %w", v.what, err)
			}
			const most = 50
			if vacuums == most {
				break
			}
		}
		if len(alone.commits)*len(alone.views)*len(beside.commits)*len(beside.views) == 0 {
			return fmt.Errorf("%s: nobody read or committed meanwhile", v.what)
		}
		alone.sort()
		beside.sort()
		v.alone, v.beside = append(v.alone, alone), append(v.beside, beside)
	}
	return nil
}

// once vacuums a new copy of the file.
func (v *besideVacuum) once(alone, beside *latencies) error {
	if err := copyFile(v.copied, v.source); err != nil {
		return err
	}
	db, err := holdfast.Open(v.copied, 0o600, nil)
	if err != nil {
		return err
	}
	t := &traffic{db: db, bucket: v.bucket, keys: v.keys, size: v.size}
	t.start()
	quiet, during, err := v.measure(t)
	if err := errors.Join(err, t.end(), db.Close()); err != nil {
		return err
	}
	alone.gather(t, quiet)
	beside.gather(t, during)
	return nil
}

// measure lets some time pass, and vacuums.
func (v *besideVacuum) measure(t *traffic) (quiet, during interval, err error) {
	time.Sleep(v.c.Time / 4) // the first commits do more than others
	quiet, _ = t.while(func() error {
		time.Sleep(v.c.Time)
		return nil
	})
	disk, err := watchDisk(filepath.Dir(v.copied))
	if err != nil {
		return quiet, during, err
	}
	var r holdfast.VacuumResult
	during, err = t.while(func() (err error) {
		r, err = t.db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		return err
	})
	grown, failed := disk.end()
	for _, s := range []struct {
		to    *[]sample
		value float64
	}{
		{&v.before, float64(r.SizeBefore)}, {&v.after, float64(r.SizeAfter)}, {&v.grown, float64(grown)},
		{&v.took, float64(r.Duration)}, {&v.written, float64(r.PagesWritten * pageSize)},
		{&v.steps, float64(r.Steps)}, {&v.longest, float64(r.LongestStep)},
	} {
		*s.to = append(*s.to, sample{s.value, -1})
	}
	return quiet, during, errors.Join(err, failed)
}

// of gives the same figure of each round.
func of(rounds []latencies, figure func(latencies) float64) (all []sample) {
	for _, l := range rounds {
		all = append(all, sample{figure(l), -1})
	}
	return all
}

func commitAt(permille int) func(latencies) float64 {
	return func(l latencies) float64 { return float64(perMille(l.commits, permille)) }
}

func viewAt(permille int) func(latencies) float64 {
	return func(l latencies) float64 { return float64(perMille(l.views, permille)) }
}

// perMille is the time below which so many of a thousand sorted times are.
func perMille(times []time.Duration, n int) time.Duration { return times[(len(times)-1)*n/1000] }

// rows adds what was measured, and the targets that are those of any file.
func (v *besideVacuum) rows(t *Table) {
	both := func(workload, unit string, figure func(latencies) float64) {
		t.Rows = append(t.Rows, Row{Workload: workload, Unit: unit, More: unit == "/s", Cells: map[string]Cell{
			withoutVacuum: cellOf(of(v.alone, figure)), withVacuum: cellOf(of(v.beside, figure)),
		}})
	}
	both("commits of one writer", "/s", func(l latencies) float64 { return float64(len(l.commits)) / l.lasted.Seconds() })
	both("`Update` of one key, median", "ns", commitAt(500))
	both("`Update` of one key, 99th percentile", "ns", commitAt(990))
	both("`Update` of one key, longest", "ns", commitAt(1000))
	both("`View` with four `Get`s, median", "ns", viewAt(500))
	both("`View` with four `Get`s, 99th percentile", "ns", viewAt(990))
	both("`View` with four `Get`s, 99.9th percentile", "ns", viewAt(999))
	both("`View` with four `Get`s, longest", "ns", viewAt(1000))
	for _, r := range []struct {
		workload, unit string
		samples        []sample
	}{
		{"size of the file before", "B", v.before}, {"size of the file afterwards", "B", v.after},
		{"the most disk it took above that at the start", "B", v.grown},
		{"time", "ns", v.took}, {"bytes of pages written", "B", v.written}, {"steps", "", v.steps}, {"longest step", "ns", v.longest},
	} {
		t.Rows = append(t.Rows, Row{Workload: r.workload, Unit: r.unit, Cells: map[string]Cell{withVacuum: cellOf(r.samples)}})
	}
	t.ratioAtMost(v.what+": 99th percentile of one-key `Update` beside vacuum", withoutVacuum,
		of(v.beside, commitAt(990)), of(v.alone, commitAt(990)), besideLimit)
	t.ratioAtMost(v.what+": 99th percentile of `View` beside vacuum", withoutVacuum,
		of(v.beside, viewAt(990)), of(v.alone, viewAt(990)), besideLimit)
	grown := cellOf(v.grown).High
	t.atMost(v.what+": disk taken during vacuum above that at the start", "one step, "+FormatBytes(stepBytes), grown, stepBytes,
		FormatBytes(grown)+" at most")
}

// afterVacuum measures commits on the file at path beside a young one.
func (c *Config) afterVacuum(t *Table, path string) error {
	young, err := c.fileOf("young", 0)
	if err != nil {
		return err
	}
	defer remove(young)
	if err := BuildEmptied(Holdfast, young, 0); err != nil {
		return err
	}
	var runners []runner
	for _, f := range []struct{ name, path string }{{withoutVacuum, young}, {withVacuum, path}} {
		s, err := Holdfast.Open(f.path, false)
		if err != nil {
			return err
		}
		defer s.Close()
		runners = append(runners, runner{f.name, func() (sample, error) {
			f, err := Commits(s, c.Time)
			return sample{1 / f.Latency.Seconds(), -1}, err
		}})
	}
	rates, err := byTurns(max(c.Rounds, 5), runners)
	if err != nil {
		return err
	}
	t.Rows = append(t.Rows, Row{
		Workload: "one-key commits on a young file, and on this one afterwards", Unit: "/s", More: true, Cells: cellsOf(rates),
	})
	t.ratioAtLeast("emptied file: rate of one-key commits after vacuum", "that on a young file", rates[withVacuum], rates[withoutVacuum], youngShare)
	return nil
}
