package stores

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"holdfast/bench/age"
	"holdfast/bench/age/trace"
)

func traces() ([]*trace.Trace, error) { return []*trace.Trace{age.Synthetic()}, nil }

func TestMain(m *testing.M) {
	age.RunChild(All(), traces)
	os.Exit(m.Run())
}

// small is a life with removals, a day on which an operator prunes, and another day after it.
var small = age.Config{Schedule: age.Schedule{Days: 5, Stretches: 2, Cycles: 3, Retention: 5, Prune: 2, Opens: 2, Rounds: 2}, Commits: 5, Gets: 50}

// TestLife: all stores live a small life, in processes of their own, which compare them with the model, and
// each measure has as many samples as it should.
func TestLife(t *testing.T) {
	all, err := traces()
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	days := 0
	var r age.Result
	err = age.Run(context.Background(), t.TempDir(), small, All(), all, &r, age.Watcher{
		Say: func(line string) { said = append(said, line) },
		Measured: func(r *age.Result) error {
			days++
			for _, life := range r.Lives {
				if len(life.Stretches) != days {
					t.Errorf("%d days of %s, want %d", len(life.Stretches), life.Peer, days)
				}
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lives) != len(All()) || len(said) != 3*len(r.Lives) {
		t.Errorf("%d lives, said: %q", len(r.Lives), said)
	}
	for _, life := range r.Lives {
		if len(life.Stretches) != 3 {
			t.Fatalf("%s: %d stretches", life.Peer, len(life.Stretches))
		}
		for i, s := range life.Stretches {
			if s.Day != []int{1, 2, 5}[i] || s.Cycles != []int{3, 1, 4}[i] || s.Keys != r.Lives[0].Stretches[i].Keys {
				t.Errorf("%s: %+v", life.Peer, s)
			}
			for _, m := range age.Measures {
				want := small.Rounds
				switch m.ID {
				case age.Open, age.First:
					want = small.Opens
				case age.Size:
					want = 1
				case age.AgeRate:
					want = []int{1, 1, 3}[i]
				case age.Memory, age.Peak, age.AgeWrites, age.Written, age.Read:
					continue // not known on each system
				}
				if c, ok := s.Samples.Cell(m.ID); len(s.Samples[m.ID]) != want || !ok || c.Low <= 0 {
					t.Errorf("%s, day %d: %s: %v", life.Peer, s.Day, m.ID, s.Samples[m.ID])
				}
			}
		}
	}
}

// TestRandom: each store holds what the model says after random transactions, with all operations, keys and
// buckets that are not there, empty values, and bytes of any kind in names.
func TestRandom(t *testing.T) {
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := p.Open(dir, true)
			if err != nil {
				t.Fatal(err)
			}
			var m age.Model
			rng := rand.New(rand.NewPCG(1, 2))
			for n := range 400 {
				tx := randomTx(rng)
				if err := errors.Join(s.Apply(tx), m.Apply(tx)); err != nil {
					t.Fatal(err)
				}
				if n%50 != 49 {
					continue
				}
				if night, ok := s.(age.Nightly); ok {
					if err := night.Night(); err != nil {
						t.Fatal(err)
					}
				}
				compare(t, s, m.Contents)
				if err := errors.Join(s.Sync(), s.Close()); err != nil {
					t.Fatal(err)
				}
				if s, err = p.Open(dir, n%100 == 99); err != nil {
					t.Fatal(err)
				}
				compare(t, s, m.Contents)
			}
			if m.Keys == 0 {
				t.Error("nothing was left to compare")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func randomTx(rng *rand.Rand) (tx []age.Op) {
	names := []string{"a", "b", "\x00", "\xff\xff", "a\x00b", strings.Repeat("z", 130)} // the last is for buckets: LMDB takes 511 bytes
	for range 1 + rng.IntN(6) {
		op := age.Op{Do: []trace.Op{trace.Put, trace.Put, trace.Put, trace.Delete, trace.Drop, trace.Create}[rng.IntN(6)]}
		for range 1 + rng.IntN(3) {
			name := []byte("b" + names[rng.IntN(len(names))]) // no key has the name of a bucket
			op.Bucket = append(op.Bucket, name)
			op.Flat = age.AppendBucket(op.Flat, name)
		}
		if op.Do == trace.Drop && rng.IntN(3) > 0 && len(op.Bucket) < 3 {
			continue
		}
		if op.Do == trace.Put || op.Do == trace.Delete {
			op.Key = []byte("k" + names[rng.IntN(len(names)-1)])
			op.Flat = age.AppendKey(op.Flat, op.Key)
		}
		if op.Do == trace.Put {
			op.Value = bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(3)*rng.IntN(3000))
		}
		tx = append(tx, op)
	}
	return tx
}

// compare sees that the store holds these contents, and that each key is found.
func compare(t *testing.T, s age.Store, want age.Contents) {
	t.Helper()
	var got age.Contents
	var sizes []int
	var names []age.Op
	err := s.Walk(func(flat, value []byte) error {
		got.Add(flat, value)
		name, err := age.Split(bytes.Clone(flat))
		names, sizes = append(names, name), append(sizes, len(value))
		return err
	})
	if err != nil || got != want {
		t.Fatalf("holds %+v, %v; want %+v", got, err, want)
	}
	for i := range names {
		if n, err := s.Get(&names[i]); n != sizes[i] || err != nil {
			t.Fatalf("the value of %q has %d bytes, %v; want %d", names[i].Flat, n, err, sizes[i])
		}
	}
	if n, err := s.Scan(); n != want.Keys || err != nil {
		t.Fatalf("the scan found %d, %v; want %d", n, err, want.Keys)
	}
	none := age.Op{Bucket: [][]byte{[]byte("none")}, Key: []byte("k"), Flat: []byte("\x04none\x00k")}
	if _, err := s.Get(&none); !errors.Is(err, age.ErrNoKey) {
		t.Fatalf("a key that is not there: %v", err)
	}
}
