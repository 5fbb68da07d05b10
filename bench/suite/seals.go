package suite

import (
	"fmt"
	"time"

	"holdfast"
)

// holdfastNoSeals neither writes nor verifies page seals.
var holdfastNoSeals = holdfastWith("holdfast NoSeals", holdfast.Options{NoSeals: true})

// sealShare is the target for what seals may cost.
const sealShare = 0.03

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
	for _, r := range []struct {
		name string
		read func(Store) error
	}{
		{"random reads, own transaction each", func(s Store) error { return s.ViewGets(keys) }},
		{"random reads, one transaction", func(s Store) error { return s.Gets(keys) }},
	} {
		samples := map[string][]sample{}
		err := t.compare(*c, r.name, engines, func(i int) (sample, error) {
			s, err := perOperation(c.Time, len(keys), func() error { return r.read(stores[i]) })
			samples[engines[i].Name] = append(samples[engines[i].Name], s)
			return s, err
		})
		if err != nil {
			return err
		}
		t.ratioAtMost(r.name+", with seals", "without", samples[Holdfast.Name], samples[holdfastNoSeals.Name], 1+sealShare)
	}
	return nil
}

func (c *Config) sealedCommits(t *Table, engines []Engine, noSync bool) error {
	var s committers
	defer s.drop()
	if err := s.openEngines(c, engines, noSync); err != nil {
		return err
	}
	who, flush := "1 writer, `NoSync`", time.Duration(0)
	if !noSync {
		var err error
		if flush, err = bareFlush(c.Dir); err != nil {
			return err
		}
		who = "1 writer, durable"
	}
	rates, _, err := c.committing(t, who, 1, s.runners(c.Time), flush)
	if err == nil {
		t.ratioAtLeast(who+": commits with seals", "without", rates[Holdfast.Name], rates[holdfastNoSeals.Name], 1/(1+sealShare))
	}
	return err
}
