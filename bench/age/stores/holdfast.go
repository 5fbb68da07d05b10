package stores

import (
	"os"
	"time"

	"holdfast"
	"holdfast/bench/age"
)

// autoVacuum looks more often than by default, as a day takes a second here, and at smaller files.
var autoVacuum = holdfast.AutoVacuum{MinBytes: 1 << 20, Interval: 20 * time.Millisecond}

// holdfasts are Holdfast, with several sets of options.
var holdfasts = []age.Peer{
	{Name: "holdfast", Note: "Holdfast as it is", Open: ours(holdfast.Options{})},
	{
		Name: "holdfast AutoVacuum", Note: "Holdfast with AutoVacuum from 1 MiB of free pages, with up to 3 s at the end of each day",
		Open: ours(holdfast.Options{AutoVacuum: &autoVacuum}),
	},
	{
		Name: "holdfast Periodic", Note: "Holdfast with Durability Periodic: a commit may be lost with the power for 100 ms",
		Open: ours(holdfast.Options{Durability: holdfast.Periodic}),
	},
	{
		Name: "holdfast None", Note: "Holdfast with Durability None: what a commit has written is flushed when the system does it, or when the store is closed",
		Open: ours(holdfast.Options{Durability: holdfast.None}),
	},
}

type holdfastStore = nested[*holdfast.DB, *holdfast.Tx, *holdfast.Bucket, *holdfast.Cursor]

func ours(o holdfast.Options) func(dir string, noSync bool) (age.Store, error) {
	return func(dir string, noSync bool) (age.Store, error) {
		own := o
		own.NoSync = noSync
		db, err := holdfast.Open(file(dir), 0o600, &own)
		if err != nil {
			return nil, err
		}
		if o.AutoVacuum != nil {
			return &vacuumed{holdfastStore{db}}, nil
		}
		return &holdfastStore{db}, nil
	}
}

// vacuumed is Holdfast with AutoVacuum.
type vacuumed struct{ holdfastStore }

// Night gives it time, which a program that commits without a pause does not: until little is free, and the
// file, which becomes shorter in steps, has kept its length for some of its looks.
func (s *vacuumed) Night() error {
	const longest, looks = 3 * time.Second, 5
	last, same := int64(-1), 0
	for began := time.Now(); time.Since(began) < longest; time.Sleep(autoVacuum.Interval) {
		enough, err := s.tight()
		if err != nil || enough && last < 0 { // there was nothing to do
			return err
		}
		info, err := os.Stat(s.db.Path())
		if err != nil {
			return err
		}
		if same++; info.Size() != last || !enough {
			last, same = info.Size(), 0
		}
		if same == looks {
			return nil
		}
	}
	return nil
}

// tight says whether so little is free that AutoVacuum does nothing.
func (s *vacuumed) tight() (bool, error) {
	const share = 0.25 // AutoVacuum's default
	free, size := int64(s.db.Stats().FreeAlloc), int64(0)
	err := s.db.View(func(tx *holdfast.Tx) error {
		size = tx.Size()
		return nil
	})
	return free < autoVacuum.MinBytes || float64(free) < share*float64(size), err
}
