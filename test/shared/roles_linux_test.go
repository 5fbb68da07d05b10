package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"holdfast"
)

// The processes of these tests are this program again, with a role.
const (
	roleVariable = "HOLDFAST_TEST_ROLE"
	fileVariable = "HOLDFAST_TEST_FILE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Getenv(fileVariable)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func(file string) error{
	"owner": func(file string) error { return own(file, &holdfast.Options{}) },
	"periodic": func(file string) error {
		return own(file, &holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: 5 * time.Millisecond})
	},
	"vacuuming": func(file string) error { return own(file, &holdfast.Options{NoSync: true}) },
	"bbolt":     ownStock,
	"reader":    func(file string) error { return read(file, 0) },
	"slow":      func(file string) error { return read(file, 20*time.Microsecond) },
	"copier":    duplicate,
}

func shareDir(file string) string { return filepath.Join(filepath.Dir(file), "share") }

// own changes a database that it shares, until it is killed.
func own(file string, options *holdfast.Options) error {
	options.Share = shareDir(file)
	options.Timeout = 20 * time.Second
	db, err := holdfast.Open(file, 0o600, options)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	for n := 0; ; n++ {
		err := db.Update(func(tx *holdfast.Tx) error { return changeIn(tx, random) })
		if err == nil && options.NoSync && n%7 == 0 {
			_, err = db.Vacuum(context.Background(), holdfast.VacuumOptions{})
		}
		if err == nil && n%200 == 199 { // ends as it should, too
			if err = db.Close(); err == nil {
				db, err = holdfast.Open(file, 0o600, options)
			}
		}
		if err != nil {
			return err
		}
	}
}

// changeIn changes some rows in a transaction.
func changeIn(tx *holdfast.Tx, random *rand.Rand) error {
	rows, err := tx.CreateBucketIfNotExists(rowsName)
	if err != nil {
		return err
	}
	sums, err := tx.CreateBucketIfNotExists(sumsName)
	if err != nil {
		return err
	}
	return change(rows, sums, random)
}

// openStock opens the database with bbolt. One whose creation was cut short bbolt refuses: Holdfast creates it anew first.
func openStock(file string) (*bolt.DB, error) {
	options := &bolt.Options{Timeout: 20 * time.Second, NoFreelistSync: true, NoSync: true}
	db, err := bolt.Open(file, 0o600, options)
	if !errors.Is(err, bolterrors.ErrInvalid) {
		return db, err
	}
	created, err := holdfast.Open(file, 0o600, &holdfast.Options{Timeout: options.Timeout})
	if err != nil {
		return nil, err
	}
	if err := created.Close(); err != nil {
		return nil, err
	}
	return bolt.Open(file, 0o600, options)
}

// ownStock is own with bbolt.
func ownStock(file string) error {
	db, err := openStock(file)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(time.Now().UnixNano())))
	for {
		err := db.Update(func(tx *bolt.Tx) error {
			rows, err := tx.CreateBucketIfNotExists(rowsName)
			if err != nil {
				return err
			}
			sums, err := tx.CreateBucketIfNotExists(sumsName)
			if err != nil {
				return err
			}
			return change(rows, sums, random)
		})
		if err != nil {
			return err
		}
	}
}

// expected are the ways in which a reader is told that what it has read does not count.
var expected = []error{
	holdfast.ErrOwnerGone, holdfast.ErrNotShared, holdfast.ErrReaderEnded, holdfast.ErrTooManyReaders,
}

func isExpected(err error) bool {
	return slices.ContainsFunc(expected, func(want error) bool { return errors.Is(err, want) })
}

// openShared opens the database as soon as it is shared.
func openShared(file string) (*holdfast.DB, error) {
	for {
		db, err := holdfast.OpenShared(file, &holdfast.Options{Share: shareDir(file)})
		if err == nil || !isExpected(err) && !errors.Is(err, fs.ErrNotExist) { // it may not have been made yet
			return db, err
		}
		time.Sleep(time.Millisecond)
	}
}

// errEmpty is the error of a database in which there is nothing yet.
var errEmpty = errors.New("it has no buckets yet")

// lookAt is look at a transaction's buckets.
func lookAt(tx *holdfast.Tx, pause func()) error {
	rows, sums := tx.Bucket(rowsName), tx.Bucket(sumsName)
	if rows == nil || sums == nil {
		return errEmpty
	}
	return look(rows, sums, pause)
}

// read reads states of the database until it is killed, and says how each of them was on standard output.
func read(file string, pause time.Duration) error {
	db, err := openShared(file)
	if err != nil {
		return err
	}
	for {
		err := db.View(func(tx *holdfast.Tx) error { return lookAt(tx, func() { time.Sleep(pause) }) })
		if err := tell(err); err != nil {
			return err
		}
	}
}

// tell prints what came of a reading. What is not a state, and counts all the same, is the error.
func tell(err error) error {
	switch {
	case err == nil:
		fmt.Println("whole")
	case errors.Is(err, errEmpty):
		fmt.Println("empty")
	case isExpected(err):
		why := slices.IndexFunc(expected, func(want error) bool { return errors.Is(err, want) })
		fmt.Println([]string{"gone", "unshared", "ended", "crowded"}[why])
		time.Sleep(time.Millisecond)
	default:
		return err
	}
	return nil
}

// duplicate copies states until it is killed, and looks at the copies with bbolt.
func duplicate(file string) error {
	db, err := openShared(file)
	if err != nil {
		return err
	}
	out := fmt.Sprintf("%s.copy-%d", file, time.Now().UnixNano()) // processes of several containers have one number
	defer os.Remove(out)
	for {
		err := db.View(func(tx *holdfast.Tx) error { return tx.CopyFile(out, 0o600) })
		if err == nil {
			if err = lookAtCopy(out); err != nil && !errors.Is(err, errEmpty) {
				return fmt.Errorf("a copy that counts: %w", err)
			}
		}
		if err := tell(err); err != nil {
			return err
		}
	}
}

func lookAtCopy(file string) error {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		rows, sums := tx.Bucket(rowsName), tx.Bucket(sumsName)
		if rows == nil || sums == nil {
			return errEmpty
		}
		return look(rows, sums, func() {})
	})
}

// lines are what a reader has printed whole, by kind.
func lines(log string) (map[string]int, error) {
	b, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for line := range strings.SplitSeq(string(b[:bytes.LastIndexByte(b, '\n')+1]), "\n") {
		if line != "" {
			counts[line]++
		}
	}
	return counts, nil
}
