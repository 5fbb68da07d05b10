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

// Columns of what goes on during a vacuum.
const (
	withoutVacuum = "without vacuum"
	withVacuum    = "with vacuum"
)

const (
	besideLimit = 2.0       // target for latencies during a vacuum, of those without
	shrunkLimit = 128 << 10 // target for the size of the emptied file, in bytes
	youngShare  = 0.95      // target for the rate of commits afterwards, of that on a young file

	// stepBytes is what one step writes at most.
	stepBytes = 64 * pageSize
)

// VacuumEmptied measures a vacuum, during reads and writes, of a file that was emptied,
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
	if err := c.afterVacuum(&t, v.copied); err != nil {
		return t, err
	}
	alone, err := v.sizesAlone()
	if err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, Row{
		Workload: "size of the file afterwards, if nobody else is at work", Unit: "B", Cells: map[string]Cell{withVacuum: cellOf(alone)},
	})
	for _, s := range []struct {
		who   string
		sizes []sample
	}{{"beside readers and a writer", v.after}, {"with nobody else at work", alone}} {
		most := cellOf(s.sizes).High
		t.atMost(v.what+": size after a vacuum "+s.who, FormatBytes(shrunkLimit), most, shrunkLimit, FormatBytes(most)+" at most")
	}
	return t, nil
}

// besideTraffic bounds the files that are vacuumed together with a writer that never rests: vacuum
// leaves it so much time that a GiB takes minutes.
const besideTraffic = 640 << 20

// VacuumThinned measures a vacuum, during reads and writes, of a file whose keys were
// deleted at random. It takes long enough to see many commits.
func VacuumThinned(c Config) (Table, error) {
	return c.vacuumLarge("random deletes", "in which four of five keys were deleted at random", min(c.Thinned, besideTraffic), bigValue, buildThinned)
}

// VacuumLoose does the same with a file in which next to no page is free to begin with.
func VacuumLoose(c Config) (Table, error) {
	return c.vacuumLarge("half full pages", "whose pages are half full, and few free", min(c.Thinned/4, besideTraffic/2), looseValue, buildLoose)
}

// vacuumLarge measures vacuums of a file that build makes, which returns its keys.
func (c *Config) vacuumLarge(what, title string, size int64, value int, build func(string, int64) ([][]byte, error)) (Table, error) {
	t := vacuumTable("")
	file, err := c.fileOf("large", 5*size/2)
	if err != nil {
		return t, err
	}
	defer remove(file)
	c.logf("building a file of %s %s", FormatBytes(float64(size)), title)
	keys, err := build(file, size)
	if err != nil {
		return t, err
	}
	v := &besideVacuum{c: *c, what: what, source: file, bucket: bigName, keys: keys, size: value}
	if err := v.run(); err != nil {
		return t, err
	}
	t.Title = fmt.Sprintf("Vacuum of a file of %s %s", FormatBytes(cellOf(v.before).Median), title)
	v.rows(&t)
	return t, nil
}

func vacuumTable(title string) Table {
	return Table{Title: title, Columns: []string{withoutVacuum, withVacuum}, Peer: withoutVacuum, Ours: withVacuum}
}

// besideVacuum measures vacuums of copies of a file, with traffic meanwhile.
type besideVacuum struct {
	c      Config
	what   string // the file
	source string
	copied string // the copy that was vacuumed last
	bucket []byte
	keys   [][]byte
	size   int

	alone, beside []latencies // of each round
	flushes       []sample    // bare ones, before each round
	// Of each vacuum:
	before, free, after, grown, took, written, steps, longest []sample
}

func (v *besideVacuum) run() error {
	v.copied = filepath.Join(filepath.Dir(v.source), "work", "db")
	if err := os.Mkdir(filepath.Dir(v.copied), 0o700); err != nil {
		return err
	}
	v.c.logf("measuring: vacuum beside readers and a writer, %s", v.what)
	for round := range v.c.Rounds {
		flush, err := bareFlush(v.c.Dir)
		if err != nil {
			return err
		}
		v.flushes = append(v.flushes, sample{float64(flush), -1})
		var alone, beside latencies
		const most = 50
		// One vacuum can be too short for a percentile.
		for vacuums := 0; vacuums == 0 || vacuums < most && len(beside.commits) < v.c.Commits; vacuums++ {
			if err := v.once(&alone, &beside); err != nil {
				return fmt.Errorf("%s: %w", v.what, err)
			}
		}
		v.c.logf("round %d: %d commits beside %s of vacuum", round+1, len(beside.commits), FormatDuration(beside.lasted))
		if len(alone.commits)*len(alone.views)*len(beside.commits)*len(beside.views) == 0 {
			return fmt.Errorf("%s: no reads or commits meanwhile", v.what)
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
	if err := t.warm(); err != nil {
		return errors.Join(err, db.Close())
	}
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
		{&v.before, float64(r.SizeBefore)}, {&v.free, float64(r.FreeBefore)}, {&v.after, float64(r.SizeAfter)}, {&v.grown, float64(grown)},
		{&v.took, float64(r.Duration)}, {&v.written, float64(r.PagesWritten * pageSize)},
		{&v.steps, float64(r.Steps)}, {&v.longest, float64(r.LongestStep)},
	} {
		*s.to = append(*s.to, sample{s.value, -1})
	}
	return quiet, during, errors.Join(err, failed)
}

// sizesAlone are those after vacuums of new copies with nothing else at work, each the
// first one since the file was opened.
func (v *besideVacuum) sizesAlone() (sizes []sample, err error) {
	for range v.c.Rounds {
		if err := copyFile(v.copied, v.source); err != nil {
			return nil, err
		}
		if err := vacuumFile(v.copied, false); err != nil {
			return nil, err
		}
		size, err := sizeOf(v.copied)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, sample{float64(size), -1})
	}
	return sizes, nil
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
	t.Rows[len(t.Rows)-1].Flush = time.Duration(cellOf(v.flushes).Median)
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
		{"size of the file before", "B", v.before}, {"free pages of that", "B", v.free},
		{"size of the file afterwards", "B", v.after},
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

// afterVacuum measures commits on the file at path, compared with a young one.
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
