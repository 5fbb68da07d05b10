package suite

import (
	"fmt"
	"time"
)

// openLimit is the target for opening and committing once, without the flush.
const openLimit = 2 * time.Millisecond

// Opening measures opening a file with live data and committing one key, after
// it was closed and after the process that had it open was killed. What one bare
// flush takes in the same moment is taken off. The files were just written, so
// they are in the page cache as far as that has room.
func Opening(c Config) (Table, error) {
	t := Table{Title: "Opening a file and committing one key: the time above that of one bare flush", Columns: columns(Engines)}
	if len(c.Live) == 0 {
		return t, fmt.Errorf("no sizes are given")
	}
	var worst [2]time.Duration
	for _, size := range c.Live {
		if err := c.openingOf(&t, size, &worst); err != nil {
			return t, err
		}
	}
	for i, how := range ends {
		t.atMost(fmt.Sprintf("open and first commit %s, at any size up to %s", how.name, FormatBytes(float64(c.Live[len(c.Live)-1]))),
			FormatDuration(openLimit)+" above a bare flush", float64(worst[i]), float64(openLimit), FormatDuration(worst[i])+" at worst")
	}
	return t, nil
}

// ends are the ways in which a file was used before it is opened.
var ends = []struct {
	name    string
	prepare func(e Engine, path string) error
}{
	{"after Close", func(Engine, string) error { return nil }}, // as the round before left it
	{"after kill -9", killed},
}

// openingOf adds the rows of files with size bytes.
func (c *Config) openingOf(t *Table, size int64, worst *[2]time.Duration) error {
	if err := c.needs(int64(len(Engines)) * size * 5 / 4); err != nil {
		return err
	}
	var paths []string
	for _, e := range Engines {
		path, err := c.path("live", e.Name)
		if err != nil {
			return err
		}
		defer remove(path)
		c.logf("building a file of %s with %s", FormatBytes(float64(size)), e.Name)
		if err := BuildLive(e, path, size); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if _, err := openOnce(e, path); err != nil { // the first opening of a file may do more than the next
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		paths = append(paths, path)
	}
	for at, how := range ends {
		var flushes []sample
		var runners []runner
		for i, e := range Engines {
			runners = append(runners, runner{e.Name, func() (sample, error) {
				if err := how.prepare(e, paths[i]); err != nil {
					return sample{}, err
				}
				flush, err := bareFlush(c.Dir)
				if err != nil {
					return sample{}, err
				}
				flushes = append(flushes, sample{float64(flush), -1})
				took, err := openOnce(e, paths[i])
				return sample{float64(max(0, took-flush)), -1}, err
			}})
		}
		row := Row{Workload: fmt.Sprintf("%s, %s", FormatBytes(float64(size)), how.name), Unit: "ns"}
		if err := t.add(c, row, runners); err != nil {
			return err
		}
		last := &t.Rows[len(t.Rows)-1]
		last.Flush = time.Duration(cellOf(flushes).Median)
		worst[at] = max(worst[at], time.Duration(last.Cells[Holdfast.Name].Median))
	}
	return nil
}

// openOnce opens the database, commits a key, and closes it; it returns the time
// of the first two.
func openOnce(e Engine, path string) (time.Duration, error) {
	keys, values := hundred()
	began := time.Now()
	s, err := e.Open(path, false)
	if err != nil {
		return 0, err
	}
	if err := s.Put(keys[:1], values[:1]); err != nil {
		_ = s.Close()
		return 0, err
	}
	took := time.Since(began)
	return took, s.Close()
}

// needs gives an error if the disk has no room for so many bytes and a little
// more.
func (c *Config) needs(bytes int64) error {
	const margin = 256 << 20
	free, err := diskFree(c.Dir)
	if err == nil && free < bytes+margin {
		err = fmt.Errorf("%s has %s of free space, the files need %s", c.Dir, FormatBytes(float64(free)), FormatBytes(float64(bytes+margin)))
	}
	return err
}
