package engine

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"holdfast"
	"holdfast/internal/bucket"
	"holdfast/internal/page"
)

// reseal is Reseal of a file of data, and what the file is afterwards.
func reseal(t *testing.T, data []byte, options holdfast.ResealOptions) (holdfast.Resealed, []byte, error) {
	t.Helper()
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	done, err := holdfast.Reseal(context.Background(), path, options)
	return done, readFile(t, path), err
}

// newestMeta is what the newest meta says, but for its label: what the seals add up to is recorded with the next one.
func newestMeta(t *testing.T, data []byte) page.Meta {
	t.Helper()
	slots := page.DecodeSlots(data, data[samplePageSize:])
	best, err := slots.Best()
	must(t, err)
	m := slots.Meta[best]
	m.Label = 0
	return m
}

// onlySeals fails the test if a and b differ elsewhere than in the last bytes of
// the runs.
func onlySeals(t *testing.T, a, b []byte, runs []page.Extent) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("the file had %d bytes and has %d", len(a), len(b))
	}
	if before, after := newestMeta(t, a), newestMeta(t, b); before != after {
		t.Errorf("the newest meta was %+v and is %+v", before, after)
	}
	a, b = slices.Clone(a), slices.Clone(b)
	clear(a[:2*samplePageSize])
	clear(b[:2*samplePageSize])
	for _, run := range runs {
		end := int(run.End()) * samplePageSize
		clear(a[end-page.SealSize : end])
		clear(b[end-page.SealSize : end])
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("byte %d of page %d has changed", i%samplePageSize, i/samplePageSize)
		}
	}
}

// allRuns are the runs of a file that can have seals.
func allRuns(t *testing.T, data []byte) []page.Extent {
	t.Helper()
	slots := page.DecodeSlots(data, data[samplePageSize:])
	best, err := slots.Best()
	must(t, err)
	image := page.NewImage(data, samplePageSize, slots.Meta[best].HighWater)
	runs := []page.Extent{{Start: slots.Meta[best].Freelist, N: 1}}
	must(t, bucket.EachRun(&image, slots.Meta[best].Root, func(e page.Extent) error {
		runs = append(runs, e)
		return nil
	}))
	return runs
}

// Reseal replaces wrong seals and adds missing ones, and changes nothing else.
func TestReseal(t *testing.T) {
	sound := sealedFile(t, samplePageSize, holdfast.Options{})
	runs, full := runsOf(t, sound, samplePageSize)
	unsealed := sealedFile(t, samplePageSize, holdfast.Options{NoSeals: true})

	done, after, err := reseal(t, unsealed, holdfast.ResealOptions{})
	must(t, err)
	if want := (holdfast.Resealed{Added: uint64(len(runs)), NoRoom: uint64(len(full))}); !equalResealed(done, want) {
		t.Errorf("without seals: %+v, want %+v", done, want)
	}
	onlySeals(t, unsealed, after, allRuns(t, unsealed))
	if again, _ := runsOf(t, after, samplePageSize); !slices.Equal(again, runs) {
		t.Errorf("%d pages are sealed afterwards, want %d", len(again), len(runs))
	}
	done, again, err := reseal(t, after, holdfast.ResealOptions{})
	if err != nil || done.Right != uint64(len(runs)) || done.Added+done.Wrong != 0 || len(done.Replaced) != 0 || !slices.Equal(again, after) {
		t.Errorf("a second time: %+v, %v", done, err)
	}

	// A page that was edited in place; a seal that was damaged; one that is gone.
	edited := slices.Clone(sound)
	var long page.Extent
	for _, run := range runs[1:] {
		if run.N > 1 {
			long = run
		}
	}
	if long.N < 2 {
		t.Fatal("there is no page with overflow pages")
	}
	at := func(run page.Extent, off int) *byte { return &edited[int(run.End())*samplePageSize+off] }
	*at(long, -5000) ^= 1 // in its value
	*at(runs[0], -1) ^= 0xFF
	clear(edited[int(runs[5].End())*samplePageSize-page.SealSize:][:page.SealSize])
	for missing, want := range map[bool]holdfast.Resealed{
		false: {Right: uint64(len(runs) - 3), Added: 1, Replaced: []holdfast.Pgid{runs[0].Start, long.Start}, NoRoom: uint64(len(full))},
		true:  {Right: uint64(len(runs) - 3), Added: 1, Wrong: 2, NoRoom: uint64(len(full))},
	} {
		done, after, err := reseal(t, edited, holdfast.ResealOptions{MissingOnly: missing})
		must(t, err)
		if !equalResealed(done, want) {
			t.Errorf("missing only %t: %+v, want %+v", missing, done, want)
		}
		onlySeals(t, edited, after, runs)
		db, _ := openSealed(t, after, nil)
		c := sealCounts(t, db)
		if c.Wrong != want.Wrong || c.Sealed != uint64(len(runs))-want.Wrong {
			t.Errorf("missing only %t: %+v", missing, c)
		}
		if !missing {
			checkDB(t, db)
			must(t, readEverything(db))
		}
	}
}

func equalResealed(a, b holdfast.Resealed) bool {
	return a.Right == b.Right && a.Added == b.Added && slices.Equal(a.Replaced, b.Replaced) && a.NoRoom == b.NoRoom && a.Wrong == b.Wrong
}

// What Reseal does not touch: files that are damaged otherwise, that are none, or
// that are in use; and it makes none.
func TestResealRefuses(t *testing.T) {
	sound := sealedFile(t, samplePageSize, holdfast.Options{})
	runs, _ := runsOf(t, sound, samplePageSize)
	damaged := slices.Clone(sound)
	damaged[int(runs[3].Start)*samplePageSize+8] = 0xFF // its type
	damaged[int(runs[5].Start)*samplePageSize+100] ^= 1
	_, after, err := reseal(t, damaged, holdfast.ResealOptions{})
	var damage *holdfast.CorruptError
	if !errors.As(err, &damage) || damage.Page != runs[3].Start || isWrongSeal(err) {
		t.Errorf("a damaged file: %v", err)
	}
	if !slices.Equal(after, damaged) {
		t.Error("a damaged file was changed")
	}
	if _, after, err := reseal(t, nil, holdfast.ResealOptions{}); err != holdfast.ErrInvalid || len(after) != 0 {
		t.Errorf("an empty file: %v, and %d bytes", err, len(after))
	}
	if _, _, err := reseal(t, []byte("no database"), holdfast.ResealOptions{}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("no database: %v", err)
	}
	path := tempPath(t)
	if _, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{}); !errors.Is(err, os.ErrNotExist) || readFile(t, path) != nil {
		t.Errorf("no file: %v", err)
	}
	must(t, os.WriteFile(path, sound, 0o600))
	open(t, path, &holdfast.Options{ReadOnly: true})
	if _, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{Timeout: 1}); err != holdfast.ErrTimeout {
		t.Errorf("a file that is being read: %v", err)
	}
	if _, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{Timeout: -1}); err != holdfast.ErrTimeout {
		t.Errorf("a file that is being read, with a time limit that is over: %v", err) // the wait had no end
	}
	// It waited for the lock for ever, whatever became of its context.
	ctx, cancel := context.WithCancel(context.Background())
	_, err = holdfast.Reseal(ctx, path, holdfast.ResealOptions{OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
		cancel()
		return os.OpenFile(name, flag, mode)
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a file that is being read, with a context that ended: %v", err)
	}
}

// An interrupted Reseal leaves a file that the next one completes.
func TestResealInterrupted(t *testing.T) {
	data := sealedFile(t, samplePageSize, holdfast.Options{NoSeals: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	calls, total := 0, uint64(0)
	first, err := holdfast.Reseal(ctx, path, holdfast.ResealOptions{Progress: func(done, of uint64) {
		if total = of; done > of {
			t.Errorf("%d of %d pages", done, of)
		}
		if calls++; 2*done > of+10 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || first.Added == 0 || total == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	onlySeals(t, data, readFile(t, path), allRuns(t, data))
	second, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{})
	if err != nil || second.Right != first.Added || second.Added == 0 {
		t.Errorf("%+v, then %+v, %v", first, second, err)
	}
	db := open(t, path, nil)
	if c := sealCounts(t, db); c.Wrong != 0 || c.Sealed != first.Added+second.Added {
		t.Errorf("%+v", c)
	}
}
