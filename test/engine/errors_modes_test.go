package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// alone are cases beside which no other runs: they change the environment, which is
// everybody's.
var alone = map[string]bool{"environment-unknown": true, "environment-together": true, "base-periodic": true}

// modeCases are the rows of docs/errors.md about modes of durability, about what the
// environment says, and about Settle.
var modeCases = map[string]func(*errorRow){
	"environment-unknown": func(r *errorRow) {
		newSample(r) // is made by now
		for _, name := range []string{"HOLDFAST_DURABILITY", "HOLDFAST_STRICT_COMPAT", "HOLDFAST_SEALS"} {
			for _, value := range []string{"often", "Full", "on ", "2"} {
				r.Setenv(name, value)
				r.tryOpenPath(fmt.Sprintf("%s=%q", name, value), nil)
			}
			r.Setenv(name, "")
		}
	},
	"environment-together": func(r *errorRow) {
		newSample(r) // is made by now
		r.Setenv("HOLDFAST_DURABILITY", "periodic")
		r.Setenv("HOLDFAST_STRICT_COMPAT", "on")
		r.tryOpenPath("both in the environment", nil)
		r.Setenv("HOLDFAST_DURABILITY", "")
		r.tryOpenPath("one in the environment", &holdfast.Options{Durability: holdfast.Periodic})
	},
	"strict-periodic": func(r *errorRow) {
		r.tryOpenPath("options", &holdfast.Options{Durability: holdfast.Periodic, StrictCompat: true})
	},
	"durability-unknown": func(r *errorRow) {
		for _, d := range []holdfast.Durability{-1, holdfast.None + 1, 100} {
			r.tryOpenPath(fmt.Sprint(d), &holdfast.Options{Durability: d})
		}
	},
	"damage-unknown": func(r *errorRow) {
		for _, d := range []holdfast.OnDamage{-1, holdfast.DamageIsError + 1, 100} {
			r.tryOpenPath(fmt.Sprint(d), &holdfast.Options{OnDamage: d})
		}
	},
	"base-periodic": func(r *errorRow) {
		r.tryOpenPath("options", &holdfast.Options{DurableBase: true, Durability: holdfast.Periodic})
		r.Setenv("HOLDFAST_DURABLE_BASE", "on")
		r.tryOpenPath("environment", &holdfast.Options{Durability: holdfast.Periodic})
		r.Setenv("HOLDFAST_DURABILITY", "periodic")
		r.tryOpenPath("environment alone", nil)
	},
	"lost-state": lostState,
	"settle-nothing": func(r *errorRow) {
		for name, data := range map[string][]byte{
			"empty": {}, "text": []byte("text"), "three pages of zeros": make([]byte, 3*os.Getpagesize()), "four": make([]byte, 4*os.Getpagesize()),
		} {
			r.try("Settle, "+name, data, func(path string) error {
				_, err := holdfast.Settle(path, holdfast.SettleOptions{})
				return err
			})
			r.try("Reseal, "+name, data, func(path string) error {
				_, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{})
				return err
			})
		}
	},
	"settle-missing": func(r *errorRow) {
		r.try("Settle", nil, func(path string) error {
			_, err := holdfast.Settle(path, holdfast.SettleOptions{})
			return err
		})
		r.try("Reseal", nil, func(path string) error {
			_, err := holdfast.Reseal(context.Background(), path, holdfast.ResealOptions{})
			return err
		})
	},
}

// tryOpenPath opens a file that is there and one that is not.
func (r *errorRow) tryOpenPath(name string, options *holdfast.Options) {
	r.Helper()
	for what, data := range map[string][]byte{"a database": newSample(r).data, "no file": nil, "an empty file": {}} {
		r.try(name+", "+what, data, func(path string) error {
			db, err := holdfast.Open(path, 0o600, options)
			if err == nil {
				must(r, db.Close())
			}
			return err
		})
	}
}

// lostState lets a flush fail after commits with Periodic have returned: who has
// read what they made is told; who has read what was flushed, or reads from then on,
// is not.
func lostState(r *errorRow) {
	for name, read := range map[string]func(db *holdfast.DB, fail func()) error{
		"Rollback": func(db *holdfast.DB, fail func()) error {
			tx, err := db.Begin(false)
			must(r, err)
			fail()
			return tx.Rollback()
		},
		"View": func(db *holdfast.DB, fail func()) error {
			return db.View(func(*holdfast.Tx) error { fail(); return nil })
		},
		"View with an error of its own": func(db *holdfast.DB, fail func()) error {
			return db.View(func(*holdfast.Tx) error { fail(); return errAgain })
		},
	} {
		mem := vfs.NewMem("mem")
		armed := false
		file := vfs.NewInject(mem.Open(), func(op vfs.Op) error {
			if armed && op.Kind == vfs.KindSync {
				return syscall.EIO
			}
			return nil
		})
		db, err := bridge.Open(file, &holdfast.Options{Durability: holdfast.Periodic, PeriodicDelay: time.Hour, SettleDelay: -1})
		must(r, err)
		must(r, db.Update(fillSample))
		must(r, db.Sync())
		durable, err := db.Begin(false)
		must(r, err)
		must(r, db.Update(func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), []byte("changed")) }))
		fail := func() {
			armed = true
			if err := db.Sync(); err == nil {
				r.Errorf("%s: Sync succeeds", name)
			}
		}
		r.tryPath(name, filepath.Join(r.TempDir(), "db"), func(string) error { return read(db, fail) })
		if err := durable.Rollback(); err != nil {
			r.Errorf("%s: the reader of what was flushed is told %v", name, err)
		}
		view(r, db, func(tx *holdfast.Tx) {
			if v := small(tx).Get([]byte("k")); string(v) != "v" {
				r.Errorf("%s: a new reader reads %q", name, v)
			}
		})
		armed = false
		r.tryPath("the next Update", filepath.Join(r.TempDir(), "db"), func(string) error {
			return db.Update(func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), nil) })
		})
		db.Close() // may say that it left no freelist page
		db, err = bridge.Open(mem.Open(), nil)
		must(r, err)
		must(r, useEverything(db))
		must(r, db.Close())
	}
}
