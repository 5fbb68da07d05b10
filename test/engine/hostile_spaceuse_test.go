package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast"
	"holdfast/internal/extension"
	"holdfast/internal/page"
	"holdfast/internal/salvage"
)

// nowhere takes what salvage saves, and counts its bytes.
type nowhere struct{ bytes int64 }

func (*nowhere) Begin(int) error                     { return nil }
func (*nowhere) Bucket(*salvage.Place) (bool, error) { return true, nil }
func (*nowhere) Fresh(name string) (string, error)   { return name, nil }

// Put counts.
func (n *nowhere) Put(_ *salvage.Place, key, value []byte) (salvage.Outcome, error) {
	n.bytes += int64(len(key) + len(value))
	return salvage.Saved, nil
}

// rawly opens the file as salvage does.
func rawly(t *testing.T, path string, do func(file *os.File, size int64) error) error {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	info, err := file.Stat()
	must(t, err)
	return do(file, info.Size())
}

// spaceUses are what programs and commands do with a file whose free pages they have to know.
var spaceUses = map[string]func(t *testing.T, path string) error{
	"put": func(t *testing.T, path string) (err error) {
		for i := 0; i < 4 && err == nil; i++ {
			err = with(t, path, nil, func(db *holdfast.DB) error {
				return db.Update(func(tx *holdfast.Tx) error { return tx.Bucket([]byte("b")).Put([]byte("k"), make([]byte, 3000*(i+1))) })
			})
		}
		return err
	},
	"free extents": func(t *testing.T, path string) error {
		return with(t, path, &holdfast.Options{ReadOnly: true, PreLoadFreelist: true}, func(db *holdfast.DB) error {
			return db.View(func(tx *holdfast.Tx) error {
				extents, err := tx.FreeExtents()
				if err != nil {
					return err
				}
				free := uint64(0)
				for _, pages := range extents {
					free += pages
				}
				if all := uint64(fileSize(t, path)) / uint64(db.Info().PageSize); free > all {
					t.Errorf("%d of %d pages are free", free, all)
				}
				return tx.ForEachPage(func(holdfast.PageRun) error { return nil })
			})
		})
	},
	"verify": func(t *testing.T, path string) error {
		return with(t, path, &holdfast.Options{ReadOnly: true}, func(db *holdfast.DB) error { _, err := db.Verify(context.Background()); return err })
	},
	"vacuum": func(t *testing.T, path string) error {
		return with(t, path, nil, func(db *holdfast.DB) error {
			_, err := db.Vacuum(context.Background(), holdfast.VacuumOptions{})
			return err
		})
	},
	"reseal": func(_ *testing.T, path string) error {
		_, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{})
		return err
	},
	"settle": func(_ *testing.T, path string) error {
		_, err := holdfast.Settle(path, holdfast.SettleOptions{})
		return err
	},
	"salvage": func(t *testing.T, path string) error {
		return rawly(t, path, func(file *os.File, size int64) error {
			sink := &nowhere{}
			report, err := salvage.Run(context.Background(), file, size, sink, salvage.Options{All: true})
			if sink.bytes > 5*size {
				t.Errorf("%d bytes are saved of %d", sink.bytes, size)
			}
			if err == nil {
				t.Log(sink.bytes>>10, "KiB saved", report.Doubts)
			}
			return err
		})
	},
	"salvage list": func(t *testing.T, path string) error {
		return rawly(t, path, func(file *os.File, size int64) error {
			_, _, err := salvage.List(context.Background(), file, size, salvage.Options{})
			return err
		})
	},
	"quick check": func(t *testing.T, path string) error {
		return rawly(t, path, func(file *os.File, size int64) error { _, err := salvage.Quick(file, size); return err })
	},
}

// with opens a database, does something with it, and closes it.
func with(t *testing.T, path string, options *holdfast.Options, do func(db *holdfast.DB) error) error {
	t.Helper()
	if options == nil {
		options = &holdfast.Options{NoSync: true}
	}
	db, err := holdfast.Open(path, 0o600, options)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}

// Of a file of 2 MB in which each page says that it has all that follow, salvage read 2 GB, and saved as
// much. What a file records of its free pages, its freelist, and the lengths of runs are numbers as any
// other, also where their checksums are right: whatever is done with the file takes memory in proportion to
// it, and so does what is written.
func TestHostileSpace(t *testing.T) {
	for file, build := range hostileSpaces {
		data := build(newHostileSpace(t))
		for use, do := range spaceUses {
			t.Run(file+"/"+use, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "db")
				must(t, os.WriteFile(path, data, 0o600))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := do(t, path)
				runtime.ReadMemStats(&after)
				took, size := after.TotalAlloc-before.TotalAlloc, fileSize(t, path)
				t.Logf("%d KiB of memory, %d KiB before, %d KiB afterwards: %.300v", took>>10, len(data)>>10, size>>10, err)
				most := uint64(16 * hostileBytes)
				if strings.HasPrefix(use, "salvage") {
					most = 48 * hostileBytes // each page is read 32 times at most
				}
				if took > most {
					t.Errorf("it took %d MiB of memory: %.200v", took>>20, err)
				}
				if size > 2*int64(len(data)) {
					t.Errorf("the file has %d bytes afterwards: %v", size, err)
				}
			})
		}
	}
}

// A log of free pages whose every few bytes take all pages of a file out of the free ones and put them in
// again is read in time that follows the bytes. Salvage, and with it the quick check, looked at each page
// each time: of this file that would be 4 * 10^11 looks.
func TestHostileLogs(t *testing.T) {
	const pages = 1 << 18 // which are holes in the file
	f := newHostileSpace(t)
	all := page.Extent{Start: f.meta.HighWater + 8*1500, N: pages}
	logs := []extension.Run{f.log(extension.AppendChange(nil, nil, []page.Extent{all}))}
	for range extension.MaxLogs - 1 {
		logs = append(logs, f.log(turns(all, 100_000)))
	}
	f.meta.HighWater = all.End()
	f.record(extension.FreeSet{Count: pages, Logs: logs})
	data := f.file(nil)
	path := tempPath(t)
	must(t, os.WriteFile(path, data, 0o600))
	must(t, os.Truncate(path, int64(all.End())*hostilePage))
	must(t, rawly(t, path, func(file *os.File, size int64) error {
		look, err := salvage.Quick(file, size)
		if err == nil && (len(look.Faults) > 0 || look.Free != "Holdfast's record") {
			t.Errorf("%+v", look)
		}
		return err
	}))
	must(t, rawly(t, path, func(file *os.File, size int64) error {
		report, err := salvage.Run(context.Background(), file, size, &nowhere{}, salvage.Options{})
		if err == nil && report.Free != "Holdfast's record" {
			t.Errorf("%+v", report)
		}
		return err
	}))
	must(t, with(t, path, nil, func(db *holdfast.DB) error {
		if s := db.Stats(); s.OpenPath != holdfast.OpenedByRecord || s.FreePageN != pages {
			t.Errorf("%v", s)
		}
		return nil
	}))
}
