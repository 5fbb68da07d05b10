package suite

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// openLimit is the target for opening and committing once, without the flush.
const openLimit = 2 * time.Millisecond

// Opening measures opening a file and committing one key: files with live data, after
// they were closed and after the process that had them open was killed; one with free
// pages all over; one with a history of commits since it was last opened. What one bare
// flush takes at the same time is taken off. The files were just written, so they are
// in the page cache as far as that has room.
func Opening(c Config) (Table, error) {
	t := Table{Title: "Opening a file and committing one key: the time above that of one bare flush", Columns: columns(Engines)}
	if len(c.Live) == 0 {
		return t, fmt.Errorf("no sizes are given")
	}
	worst := map[string]time.Duration{}
	var names []string
	for _, f := range c.openFiles() {
		if err := c.openingOf(&t, f, worst); err != nil {
			return t, err
		}
		for _, u := range f.uses {
			if !slices.Contains(names, u.target) {
				names = append(names, u.target)
			}
		}
	}
	for _, name := range names {
		title := "open and first commit " + name
		if name != withHistory {
			title += ", at any size up to " + FormatBytes(float64(c.Live[len(c.Live)-1]))
		}
		t.atMost(title, FormatDuration(openLimit)+" above a bare flush", float64(worst[name]), float64(openLimit), FormatDuration(worst[name])+" at worst")
	}
	return t, nil
}

// openFile is a file that is opened, and how it is used before each opening.
type openFile struct {
	name  string
	bytes int64 // of disk, about
	build func(e Engine, path string) error
	uses  []use
}

type use struct {
	name, target string
	do           func(e Engine, path string) error
}

const (
	afterClose  = "after Close"
	afterKill   = "after kill -9"
	withHistory = "with scattered free pages, or thousands of commits later"
)

func (c *Config) openFiles() []openFile {
	asLeft := use{afterClose, afterClose, func(Engine, string) error { return nil }} // by the round before
	var files []openFile
	for _, size := range c.Live {
		files = append(files, openFile{
			name: FormatBytes(float64(size)), bytes: size * 5 / 4,
			build: func(e Engine, path string) error { return BuildLive(e, path, size) },
			uses:  []use{asLeft, {afterKill, afterKill, killed}},
		})
	}
	n := uint64(c.FreePages)
	scattered := asLeft
	scattered.target = withHistory
	keys, commits := c.FreePages/12, c.FreePages/80
	return append(files, openFile{
		name: fmt.Sprintf("%d free pages, every second one", n), bytes: int64(n) * 16,
		build: func(_ Engine, path string) error { return WithFreePages(path, n, 2) },
		uses:  []use{scattered},
	}, openFile{
		name: fmt.Sprintf("%d keys", keys), bytes: int64(keys) * 2000,
		build: func(e Engine, path string) error { return history(e, path, keys, keys, 10_000) },
		uses: []use{{fmt.Sprintf("%d random commits later", commits), withHistory, func(e Engine, path string) error {
			return history(e, path, keys, commits, 1)
		}}},
	})
}

// history does commits that together put n of so many keys, some at a time: all of them
// one after the other, or, one at a time, any.
func history(e Engine, path string, keys, n, atOnce int) error {
	s, err := e.Open(path, true)
	if err != nil {
		return err
	}
	defer s.Close()
	for i := 0; i < n; i += atOnce {
		first := i
		if atOnce == 1 {
			first = rand.IntN(keys)
		}
		var names, values [][]byte
		for k := first; k < min(keys, first+atOnce); k++ {
			names, values = append(names, fmt.Appendf(nil, "key%08d", k)), append(values, noise[:1000])
		}
		if err := s.Put(names, values); err != nil {
			return err
		}
	}
	return s.Sync()
}

// openingOf adds the rows of a file.
func (c *Config) openingOf(t *Table, f openFile, worst map[string]time.Duration) error {
	if err := c.needs(int64(len(Engines)) * f.bytes); err != nil {
		return err
	}
	var paths []string
	for _, e := range Engines {
		path, err := c.path("live", e.Name)
		if err != nil {
			return err
		}
		defer remove(path)
		c.logf("building a file of %s with %s", f.name, e.Name)
		if err := f.build(e, path); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if _, err := openOnce(e, path); err != nil { // the first opening of a file may do more than the next
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		paths = append(paths, path)
	}
	for _, u := range f.uses {
		var flushes []sample
		var runners []runner
		for i, e := range Engines {
			runners = append(runners, runner{e.Name, func() (sample, error) {
				if err := u.do(e, paths[i]); err != nil {
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
		if err := t.add(c, Row{Workload: f.name + ", " + u.name, Unit: "ns"}, runners); err != nil {
			return err
		}
		last := &t.Rows[len(t.Rows)-1]
		last.Flush = time.Duration(cellOf(flushes).Median)
		worst[u.target] = max(worst[u.target], time.Duration(last.Cells[Holdfast.Name].Median))
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
	free, err := DiskFree(c.Dir)
	if err == nil && free < bytes+margin {
		err = fmt.Errorf("%s has %s of free space, the files need %s", c.Dir, FormatBytes(float64(free)), FormatBytes(float64(bytes+margin)))
	}
	return err
}
