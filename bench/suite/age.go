package suite

import (
	"fmt"
	"os"
)

// Age measures what a durable commit costs, and opening the file, in files that
// were emptied: the same work with more and more free pages in the file.
func Age(c Config) (Table, error) {
	t := Table{
		Title:   "Age: durable one-key commits on files that were emptied, by the free pages in the file",
		Columns: columns(Engines),
	}
	for _, size := range c.Ages {
		if err := c.age(&t, size); err != nil {
			return t, err
		}
	}
	return t, nil
}

// age adds the rows of files that held size bytes.
func (c *Config) age(t *Table, size int64) error {
	paths := make([]string, len(Engines))
	pages := int64(0)
	for i, e := range Engines {
		var err error
		if paths[i], err = c.path("age", e.Name); err != nil {
			return err
		}
		defer remove(paths[i])
		c.logf("building a file of %s with %s", FormatBytes(float64(size)), e.Name)
		if err := BuildEmptied(e, paths[i], size); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		if e.Name == StockDefault.Name && size > 0 {
			info, err := os.Stat(paths[i])
			if err != nil {
				return err
			}
			pages = info.Size() / int64(os.Getpagesize())
		}
	}
	file := fmt.Sprintf("%d free pages", pages/1000*1000)
	if err := c.openAndCommit(t, file, paths); err != nil {
		return err
	}
	stores := make([]Store, len(Engines))
	for i, e := range Engines {
		var err error
		if stores[i], err = e.Open(paths[i], false); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		defer stores[i].Close()
	}
	wrote := map[string][]sample{}
	var runners []runner
	for i, e := range Engines {
		runners = append(runners, runner{e.Name, func() (sample, error) {
			f, err := Commits(stores[i], c.Time)
			wrote[e.Name] = append(wrote[e.Name], sample{f.Bytes, -1})
			return sample{float64(f.Latency), -1}, err
		}})
	}
	flush, err := bareFlush(c.Dir)
	if err != nil {
		return err
	}
	if err := t.add(c, Row{Workload: file + ": time of a commit", Unit: "ns", Flush: flush}, runners); err != nil {
		return err
	}
	t.Rows = append(t.Rows, Row{Workload: file + ": bytes written by one", Unit: "B", Cells: cellsOf(wrote)})
	return nil
}
