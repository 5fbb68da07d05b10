package suite

import (
	"slices"

	"go.etcd.io/bbolt"

	"holdfast"
)

// The engines of relaxed commits.
var (
	stockRelaxed = Engine{"stock NoSync+map", func(path string, _ bool) (Store, error) {
		return openStock(path, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	}}
	holdfastPeriodic = holdfastWith("holdfast Periodic", holdfast.Options{Durability: holdfast.Periodic})
	holdfastNone     = holdfastWith("holdfast None", holdfast.Options{Durability: holdfast.None})
)

// Relaxed measures one-key commits that return before they are on the disk. After
// a power cut Periodic leaves the state of some commit; the others promise
// nothing.
func Relaxed(c Config) (Table, error) {
	t := Table{Title: "One-key commits that do not wait for the disk, on a young file", Peer: stockRelaxed.Name, Ours: holdfastPeriodic.Name}
	var s committers
	defer s.drop()
	engines := []Engine{stockRelaxed, holdfastPeriodic, holdfastNone}
	if err := s.openEngines(&c, engines, false); err != nil { // their options say what they are
		return t, err
	}
	if err := s.openPeers(&c, false, " not durable"); err != nil {
		return t, err
	}
	t.Columns = slices.Clone(s.names)
	rates, _, err := c.committing(&t, "1 writer", 1, s.runners(c.Time), 0)
	if err != nil {
		return t, err
	}
	t.ratioAtLeast("relaxed one-key commits, Periodic", stockRelaxed.Name, rates[holdfastPeriodic.Name], rates[stockRelaxed.Name], 1)
	return t, nil
}
