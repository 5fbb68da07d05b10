package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/vfs"
	"holdfast/test/hook"
)

const sumFault = "do not add up"

// A disk that had lost one write, so that a page was still what it had been some commits before, passed the check:
// the page had its seal, and fitted those around it. What all pages add up to tells it.
func TestCheckTellsALostWrite(t *testing.T) {
	alone := 0
	modes(t, func(t *testing.T, c *copyTest) {
		mem := vfs.NewMem("lost")
		db, err := bridge.Open(mem.Open(), &c.options)
		must(t, err)
		db.AllocSize = 1 << 10
		var moments [][]byte
		for n := range 160 {
			if c.commit(db, n); n >= 100 && n%3 == 0 {
				moments = append(moments, mem.Bytes())
			}
		}
		must(t, db.Close())
		newest := mem.Bytes()
		sound, faults := looksOf(t, newest)
		if len(faults) > 0 {
			t.Fatalf("of the sound file: %v", faults)
		}
		changed, told := 0, 0
		for m, moment := range moments {
			for at := 2048; at < len(moment); at += 1024 {
				data := bytes.Clone(newest)
				copy(data[at:][:1024], moment[at:])
				content, faults := looksOf(t, data)
				if content == sound {
					continue
				}
				changed++
				if len(faults) == 0 {
					t.Errorf("page %d as of moment %d: another content, and no fault", at/1024, m)
				} else if len(faults) == 1 && strings.Contains(faults[0], sumFault) {
					told++
				}
			}
		}
		t.Logf("%d lost writes, %d of them told by the sum alone", changed, told)
		alone += told
	})
	if alone < 5 {
		t.Errorf("%d lost writes were told by the sum alone, of a few thousand in all", alone)
	}
}

// The last page of a long value that was as it had been in the middle of another one had bytes of that
// where its seal should be: it counted as a page that bbolt wrote, and the sum was not compared. Of 773
// such writes that were lost, 143 passed the check.
func TestCheckTellsALostEnd(t *testing.T) {
	mem := vfs.NewMem("lost")
	db, err := bridge.Open(mem.Open(), &holdfast.Options{PageSize: 1024, SettleDelay: -1})
	must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	var moments [][]byte
	for n := range 40 {
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for range 3 {
				v := make([]byte, 1500+rng.IntN(4000))
				for i := range v {
					v[i] = byte(rng.Uint32())
				}
				must(t, b.Put([]byte{byte(rng.IntN(12))}, v))
			}
		})
		if n%10 == 0 {
			moments = append(moments, mem.Bytes())
		}
	}
	must(t, db.Close())
	newest := mem.Bytes()
	sound, faults := looksOf(t, newest)
	if len(faults) > 0 {
		t.Fatalf("of the sound file: %v", faults)
	}
	alone := 0
	for m, moment := range moments {
		for at := 2048; at < len(moment); at += 1024 {
			data := bytes.Clone(newest)
			copy(data[at:][:1024], moment[at:])
			content, faults := looksOf(t, data)
			if content == sound {
				continue
			}
			if len(faults) == 0 {
				t.Errorf("page %d as of moment %d: another content, and no fault", at/1024, m)
			} else if len(faults) == 1 && strings.Contains(faults[0], sumFault) {
				alone++
			}
		}
	}
	if alone < 5 {
		t.Errorf("%d lost writes were told by the sum alone", alone)
	}
}

// looksOf is what a file has, as far as it can be read, and what Check says of it.
func looksOf(t *testing.T, data []byte) (content string, faults []string) {
	t.Helper()
	mem := vfs.NewMem("looked at")
	_, err := mem.Open().WriteAt(data, 0)
	must(t, err)
	db, err := bridge.Open(mem.Open(), &holdfast.Options{ReadOnly: true, OnDamage: holdfast.DamageIsError})
	if err != nil {
		return "refused", []string{err.Error()}
	}
	defer func() { must(t, db.Close()) }()
	err = db.View(func(tx *holdfast.Tx) error {
		for fault := range tx.Check() {
			faults = append(faults, fault.Error())
		}
		content = sumOf(tx)
		return nil
	})
	var damage *holdfast.CorruptError
	if err != nil && !errors.As(err, &damage) {
		t.Fatal(err)
	}
	return content, faults
}

// A file that bbolt has made, or one without seals, has a sum as soon as Holdfast writes to it if it is
// small, or when Reseal has gone through it; what bbolt writes takes the sum away, and nothing is reported that
// is not so.
func TestSumOfFilesFromElsewhere(t *testing.T) {
	for _, pages := range []int{10, 400} {
		path := filepath.Join(t.TempDir(), "stock.db")
		must(t, os.WriteFile(path, page.NewFile(1024, true), 0o600))
		fill := func(options holdfast.Options, from int) {
			t.Helper()
			options.SettleDelay = -1
			db, err := holdfast.Open(path, 0o600, &options)
			must(t, err)
			for n := range 4 {
				update(t, db, func(tx *holdfast.Tx) {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					must(t, err)
					for i := range pages / 4 {
						must(t, b.Put([]byte{byte(from), byte(n), byte(i)}, bytes.Repeat([]byte{'v'}, 900)))
					}
				})
			}
			must(t, db.Close())
		}
		// told tells whether the file has a sum.
		told := func() bool {
			t.Helper()
			data, err := os.ReadFile(path)
			must(t, err)
			if _, faults := looksOf(t, data); len(faults) > 0 {
				t.Fatalf("%d pages: %v", pages, faults)
			}
			db, err := holdfast.Open(path, 0, &holdfast.Options{ReadOnly: true})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			tx, err := db.Begin(false)
			must(t, err)
			defer func() { must(t, tx.Rollback()) }()
			return hook.HasSum(tx)
		}
		fill(holdfast.Options{NoSeals: true}, 0)
		asBolt(t, path)
		if told() {
			t.Errorf("%d pages: a file without an extension has a sum", pages)
		}
		fill(holdfast.Options{}, 1)
		if got, want := told(), pages < 256; got != want {
			t.Errorf("%d pages: a file from elsewhere has a sum: %t", pages, got)
		}
		_, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{})
		must(t, err)
		if !told() {
			t.Errorf("%d pages: after Reseal there is no sum", pages)
		}
		fill(holdfast.Options{}, 2)
		if !told() {
			t.Errorf("%d pages: the sum is not kept", pages)
		}
	}
}

// asBolt clears the extensions, as a commit of bbolt does.
func asBolt(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	for slot := range 2 {
		clear(data[slot*1024+page.ExtensionOffset : (slot+1)*1024])
	}
	must(t, os.WriteFile(path, data, 0o600))
}

// Reseal says that a file's sum was wrong, and records another; with MissingOnly it leaves it wrong.
func TestResealTellsOfTheSum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := holdfast.Open(path, 0o600, nil)
	must(t, err)
	update(t, db, func(tx *holdfast.Tx) {
		b, err := tx.CreateBucket([]byte("b"))
		must(t, err)
		must(t, b.Put([]byte("k"), []byte("v")))
	})
	must(t, db.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	if _, faults := looksOf(t, data); len(faults) > 0 {
		t.Fatal(faults)
	}
	changed := 0
	size := os.Getpagesize()
	for id := page.ID(2); int(id)*size < len(data); id++ {
		run := data[int(id)*size:][:size]
		if at := bytes.Index(run, []byte("kv")); at > 0 { // with a right seal, as if a commit had written it
			run[at+1] = 'w'
			seal, _ := page.SealOf(run, id)
			copy(run[size-len(seal):], seal[:])
			changed++
		}
	}
	if changed == 0 {
		t.Fatal("no page was changed")
	}
	must(t, os.WriteFile(path, data, 0o600))
	for _, c := range []struct {
		options  holdfast.ResealOptions
		replaced bool
		faults   int
	}{{holdfast.ResealOptions{MissingOnly: true}, false, 1}, {holdfast.ResealOptions{}, true, 0}, {holdfast.ResealOptions{}, false, 0}} {
		done, err := holdfast.Reseal(t.Context(), path, c.options)
		must(t, err)
		data, err := os.ReadFile(path)
		must(t, err)
		_, faults := looksOf(t, data)
		if done.SumReplaced != c.replaced || done.SumAdded || len(done.Replaced) > 0 || len(faults) != c.faults {
			t.Errorf("%+v: %+v, and then %v", c.options, done, faults)
		}
	}
}

// Reseal with MissingOnly added seals and recorded the sum of before, so that Check took a sound file for
// one with pages of several points in time. A wrong sum stays wrong all the same. And a small file without
// a sum, all of whose seals were right, had none afterwards: one that opening had made passed for recorded.
func TestResealAddsMissingSealsToTheSum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for n, noSeals := range []bool{false, true} {
		db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 1024, NoSeals: noSeals})
		must(t, err)
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for i := range 20 {
				must(t, b.Put([]byte{byte(n), byte(i)}, bytes.Repeat([]byte{'v'}, 900)))
			}
		})
		must(t, db.Close())
	}
	sound, err := os.ReadFile(path)
	must(t, err)
	older := bytes.Clone(sound)
	for id := page.ID(2); int(id)*1024 < len(older); id++ {
		run := older[int(id)*1024:][:1024]
		if at := bytes.Index(run, []byte("vvv")); page.CheckSeal(run, id) == page.Sealed && at > 0 {
			run[at] = 'w' // with a right seal, as if a commit had written it
			seal, _ := page.SealOf(run, id)
			copy(run[len(run)-len(seal):], seal[:])
			break
		}
	}
	for want, data := range [][]byte{sound, older} {
		must(t, os.WriteFile(path, data, 0o600))
		for range 2 {
			done, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{MissingOnly: true})
			must(t, err)
			data, err := os.ReadFile(path)
			must(t, err)
			if _, faults := looksOf(t, data); len(faults) != want || done.SumAdded || done.SumReplaced {
				t.Errorf("%+v, and then %v, want %d faults", done, faults, want)
			}
		}
	}
	done, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{})
	if err != nil || !done.SumReplaced {
		t.Errorf("%+v, %v", done, err)
	}
	asBolt(t, path)
	for _, added := range []bool{true, false} {
		done, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{})
		if err != nil || done.Added > 0 || done.SumAdded != added {
			t.Errorf("of a file without a sum: %+v, %v", done, err)
		}
	}
}

// A power failure tore a meta page after the part that bbolt knows, and the file was copied before it was opened
// again: the copy was refused, though it was the state before, and the other meta page has its sum.
func TestSumOfAMetaThatIsNotWhole(t *testing.T) {
	mem := vfs.NewMem("original")
	c := &copyTest{t, holdfast.Options{PageSize: 1024, SettleDelay: -1}, map[string]bool{}}
	db, err := bridge.Open(fileNumber{mem.Open(), 1}, &c.options)
	must(t, err)
	for n := range 200 {
		c.commit(db, n)
	}
	older := mem.Bytes()
	for n := range 9 {
		c.commit(db, n)
	}
	data := mem.Bytes()
	must(t, db.Close())
	slots := page.DecodeSlots(data[:1024], data[1024:])
	best, err := slots.Best()
	must(t, err)
	data[best*1024+page.ExtensionOffset+50] ^= 1
	if refused, wrong := c.judge("the state before", data, 2); refused || wrong {
		t.Errorf("refused %t, wrong %t", refused, wrong)
	}
	whole, faults := looksOf(t, data)
	if len(faults) > 0 {
		t.Error(faults)
	}
	alone := 0
	for at := 2048; at < len(older); at += 1024 {
		mixed := bytes.Clone(data)
		copy(mixed[at:][:1024], older[at:])
		content, faults := looksOf(t, mixed)
		if content == whole {
			continue
		}
		if len(faults) == 0 {
			t.Errorf("page %d as of before: another content, and no fault", at/1024)
		} else if strings.Contains(faults[0], sumFault) {
			alone++
		}
	}
	if alone == 0 {
		t.Error("no page was told by the sum")
	}
}

// The meta page that did not count named a freelist page, and Reseal, which writes over both, forgot
// that: the page was in no tree, and never free again.
func TestResealKeepsFreelistOfOtherSlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	must(t, os.WriteFile(path, page.NewFile(1024, true), 0o600))
	var data []byte
	commit := func(options holdfast.Options) {
		t.Helper()
		db, err := holdfast.Open(path, 0o600, &options)
		must(t, err)
		update(t, db, func(tx *holdfast.Tx) {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			must(t, err)
			for i := range 20 {
				must(t, b.Put([]byte{byte(i)}, bytes.Repeat([]byte{'v'}, 300)))
			}
		})
		data, err = os.ReadFile(path)
		must(t, err)
		must(t, db.Close())
	}
	commit(holdfast.Options{})                                  // and Close leaves a freelist page
	commit(holdfast.Options{StrictCompat: true, NoSeals: true}) // one slot, which names none
	must(t, os.WriteFile(path, data, 0o600))                    // the process was killed
	if ext, slot := newestExtension(t, data); len(ext.Lists) == 0 || page.DecodeSlots(data, data[1024:]).Meta[1-slot].Freelist == page.NoFreelist {
		t.Fatal("the slot that does not count names no freelist")
	}
	done, err := holdfast.Reseal(t.Context(), path, holdfast.ResealOptions{})
	if err != nil || done.Added == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	for _, when := range []string{"Reseal", "the next commit"} {
		after, err := os.ReadFile(path)
		must(t, err)
		if _, faults := looksOf(t, after); len(faults) > 0 {
			t.Errorf("after %s: %v", when, faults)
		}
		commit(holdfast.Options{})
	}
}

// newestExtension is the extension of the newest meta, and its slot.
func newestExtension(t *testing.T, data []byte) (ext *extension.Extension, slot int) {
	t.Helper()
	slots := page.DecodeSlots(data, data[1024:])
	slot, err := slots.Best()
	must(t, err)
	ext, err = extension.Decode(data[slot*1024:][:1024])
	must(t, err)
	return ext, slot
}
