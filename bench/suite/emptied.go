package suite

import "fmt"

// Emptied measures durable one-key commits on a file that was emptied and on a
// young one, interleaved: neither the rate nor the bytes should tell them apart.
func Emptied(c Config) (Table, error) {
	t := Table{
		Title:   fmt.Sprintf("One-key commits on a file that held %s and was emptied, and on a young one, interleaved", FormatBytes(float64(c.Emptied))),
		Columns: columns(Engines),
	}
	files := []struct {
		name string
		size int64
	}{{"young file", 0}, {"emptied file", c.Emptied}}
	wrote := map[string][]sample{}
	var runners []runner
	for _, e := range Engines {
		for _, f := range files { // one directly after the other, as the disk changes its pace
			s, drop, err := c.openBuilt(e, f.size)
			defer drop()
			if err != nil {
				return t, fmt.Errorf("%s: %w", e.Name, err)
			}
			name := f.name + e.Name
			runners = append(runners, runner{name, func() (sample, error) {
				f, err := Commits(s, c.Time)
				wrote[name] = append(wrote[name], sample{f.Bytes, -1})
				return sample{1 / f.Latency.Seconds(), -1}, err
			}})
		}
	}
	flush, err := bareFlush(c.Dir)
	if err != nil {
		return t, err
	}
	c.logf("measuring: commits on emptied and young files")
	rates, err := byTurns(c.Rounds, runners)
	if err != nil {
		return t, err
	}
	for _, f := range files {
		rate := Row{Workload: f.name + ": durable one-key commits", Unit: "/s", More: true, Cells: map[string]Cell{}, Flush: flush}
		bytes := Row{Workload: f.name + ": bytes written by one, on average", Unit: "B", Cells: map[string]Cell{}}
		for _, e := range Engines {
			rate.Cells[e.Name] = cellOf(rates[f.name+e.Name])
			bytes.Cells[e.Name] = cellOf(wrote[f.name+e.Name])
		}
		t.Rows = append(t.Rows, rate, bytes)
	}
	young, emptied := files[0].name, files[1].name
	row := Row{Workload: "rate on the emptied file, of that on the young one", Unit: "×", Cells: map[string]Cell{}}
	for _, e := range Engines {
		row.Cells[e.Name] = ratios(rates[emptied+e.Name], rates[young+e.Name])
	}
	t.Rows = append(t.Rows, row)
	t.ratioAtMost("emptied file: bytes written by a one-key commit", "those of bbolt with NoFreelistSync",
		wrote[emptied+Holdfast.Name], wrote[emptied+StockMap.Name], 1.02)
	t.ratioAtLeast("emptied file: rate of durable one-key commits", "that on the young file",
		rates[emptied+Holdfast.Name], rates[young+Holdfast.Name], 0.95)
	return t, nil
}

// openBuilt opens a file for durable commits that BuildEmptied made. drop closes
// and removes it.
func (c *Config) openBuilt(e Engine, size int64) (s Store, drop func(), err error) {
	path, err := c.path("emptied", e.Name)
	if err != nil {
		return nil, func() {}, err
	}
	drop = func() {
		if s != nil {
			_ = s.Close()
		}
		remove(path)
	}
	c.logf("building a file of %s with %s", FormatBytes(float64(size)), e.Name)
	if err = BuildEmptied(e, path, size); err != nil {
		return nil, drop, err
	}
	s, err = e.Open(path, false)
	return s, drop, err
}
