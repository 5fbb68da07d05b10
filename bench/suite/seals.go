package suite

import (
	"fmt"

	"holdfast"
)

// holdfastNoSeals neither writes nor verifies page seals.
var holdfastNoSeals = holdfastWith("holdfast NoSeals", holdfast.Options{NoSeals: true})

// Seals measures what page seals cost: the same work with them and without.
func Seals(c Config) (Table, error) {
	engines := []Engine{holdfastNoSeals, Holdfast}
	t := Table{
		Title:   fmt.Sprintf("Page seals, %d keys in the large database", c.Keys),
		Columns: columns(engines), Peer: holdfastNoSeals.Name, Ours: Holdfast.Name,
	}
	if err := c.sealedReads(&t, engines); err != nil {
		return t, err
	}
	for _, noSync := range []bool{false, true} {
		if err := c.sealedCommits(&t, engines, noSync); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (c *Config) sealedReads(t *Table, engines []Engine) error {
	stores, drop, err := c.loaded(engines, c.Keys, true)
	defer drop()
	if err != nil {
		return err
	}
	for _, s := range stores { // each page is verified when it is first read
		if err := all(c.Keys)(s.Scan()); err != nil {
			return err
		}
	}
	keys := someKeys(c.Keys, 100_000, 2)
	err = t.compare(*c, "random reads, own transaction each", engines, func(i int) (sample, error) {
		return perOperation(c.Time, len(keys), func() error { return stores[i].ViewGets(keys) })
	})
	if err != nil {
		return err
	}
	return t.compare(*c, "random reads, one transaction", engines, func(i int) (sample, error) {
		return perOperation(c.Time, len(keys), func() error { return stores[i].Gets(keys) })
	})
}

func (c *Config) sealedCommits(t *Table, engines []Engine, noSync bool) error {
	var s committers
	defer s.drop()
	if err := s.openEngines(c, engines, noSync); err != nil {
		return err
	}
	if noSync {
		_, _, err := c.committing(t, "1 writer, `NoSync`", 1, s.runners(c.Time), 0)
		return err
	}
	flush, err := bareFlush(c.Dir)
	if err == nil {
		_, _, err = c.committing(t, "1 writer, durable", 1, s.runners(c.Time), flush)
	}
	return err
}
