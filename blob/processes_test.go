package blob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast"
)

const (
	processFile  = "HOLDFAST_BLOB_FILE"
	processPuts  = 12
	processCount = 3
)

// TestProcess is a process of TestProcesses: it puts the same blobs as the others, in transactions between
// which it closes the file, each kept once and deleted in two of three cases.
func TestProcess(t *testing.T) {
	path := os.Getenv(processFile)
	if path == "" {
		return // nobody's child
	}
	for i := range processPuts {
		db := must2(holdfast.Open(path, 0o600, &holdfast.Options{Timeout: 5 * time.Minute, NoSync: true}))
		// Others of the same process write the same.
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				err := db.Update(func(tx *holdfast.Tx) error {
					s := openIn(tx)
					ref, err := s.Put(processContent(i))
					if err != nil || i%3 == 0 {
						return err
					}
					return s.Delete(ref)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if i%4 == 0 {
			must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
		}
		must(t, db.Close())
	}
}

func processContent(i int) []byte { return random(uint64(i%4), 130*MinLeafSize+i%2) }

// Several processes put the same blobs into one file at the same time: each waits for the lock of the file, each use
// is counted, and each content is stored once.
func TestProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db := must2(holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096}))
	must(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := Create(must2(tx.CreateBucket(storeName)), small[0])
		return err
	}))
	must(t, db.Close())
	var wg sync.WaitGroup
	for range processCount {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcess$", "-test.timeout=280s")
			cmd.Env = append(os.Environ(), processFile+"="+path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	db = must2(holdfast.Open(path, 0o600, nil))
	defer db.Close()
	want := map[string]uint64{}
	var refs []Ref
	update(t, db, func(s *Store) { // for their addresses
		for i := range processPuts {
			ref := must2(s.Put(processContent(i)))
			must(t, s.Delete(ref))
			if i%3 == 0 {
				for range 2 * processCount {
					refs = append(refs, ref)
				}
				want[ref.String()] += 2 * processCount
			}
		}
	})
	must2(Collect(context.Background(), db, openStoreOf, CollectOptions{}))
	view(t, db, func(s *Store) {
		must(t, checkClean(s, CheckOptions{Data: true, Roots: rootsOf(refs...)}))
		for ref, err := range s.Roots() {
			users, failed := s.Users(ref)
			if err := errors.Join(err, failed); err != nil || users != want[ref.String()] {
				t.Error(fmt.Errorf("%v has %d users, not %d: %w", ref, users, want[ref.String()], err))
			}
			delete(want, ref.String())
		}
		if len(want) > 0 {
			t.Errorf("%v are not there", want)
		}
	})
}
