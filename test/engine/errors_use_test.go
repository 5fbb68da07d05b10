package engine

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/vfs"
)

// inTx runs fn in a writing transaction on a copy of the sample and rolls it
// back, so that only what the call did by itself could change the file.
func (r *errorRow) inTx(name string, fn func(tx *holdfast.Tx) error) {
	r.Helper()
	r.try(name, newSample(r).data, func(path string) error {
		return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
			tx, err := db.Begin(true)
			if err != nil {
				return err
			}
			err = fn(tx)
			if kept := tx.Rollback(); kept != nil {
				return kept
			}
			return err
		})
	})
}

// keyCases are the rows of docs/errors.md about keys and values.
var keyCases = map[string]func(*errorRow){
	"key-empty": func(r *errorRow) {
		for _, k := range [][]byte{nil, {}} {
			r.inTx("put", func(tx *holdfast.Tx) error { return small(tx).Put(k, []byte("v")) })
		}
	},
	"key-longest": func(r *errorRow) { r.putAndFind(bytes.Repeat([]byte("k"), holdfast.MaxKeySize), []byte("v")) },
	"key-too-long": func(r *errorRow) {
		r.inTx("put", func(tx *holdfast.Tx) error { return small(tx).Put(make([]byte, holdfast.MaxKeySize+1), nil) })
	},
	"value-empty": func(r *errorRow) {
		r.putAndFind([]byte("empty"), []byte{})
		r.putAndFind([]byte("empty"), nil)
	},
	"value-longest": func(r *errorRow) {
		value := longValue(r, 0)
		r.inTx("put", func(tx *holdfast.Tx) error {
			err := small(tx).Put([]byte("k"), value)
			if strconv.IntSize == 32 && err == holdfast.ErrTooLarge {
				return nil // it fits into no page's bytes beside other values there
			}
			return err
		})
	},
	"value-too-long": func(r *errorRow) {
		value := longValue(r, 1)
		r.inTx("put", func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), value) })
	},
	"append-unordered": func(r *errorRow) {
		r.inTx("a key before the last", func(tx *holdfast.Tx) error { return small(tx).Append([]byte("\x00"), nil) })
		r.inTx("the last key", func(tx *holdfast.Tx) error {
			k, _ := small(tx).Cursor().Last()
			return small(tx).Append(k, nil)
		})
		r.inTx("what was appended", func(tx *holdfast.Tx) error {
			if err := small(tx).Append([]byte("\xff\xff"), nil); err != nil {
				return err
			}
			return small(tx).Append([]byte("\xff\xff"), nil)
		})
	},
	"name-empty": func(r *errorRow) {
		r.inTx("top level", func(tx *holdfast.Tx) error { _, err := tx.CreateBucket(nil); return err })
		r.inTx("nested", func(tx *holdfast.Tx) error { _, err := small(tx).CreateBucketIfNotExists([]byte{}); return err })
	},
	"name-longest": func(r *errorRow) {
		name := bytes.Repeat([]byte("n"), holdfast.MaxKeySize)
		r.try("create", newSample(r).data, func(path string) error {
			return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
				if err := db.Update(func(tx *holdfast.Tx) error { _, err := small(tx).CreateBucket(name); return err }); err != nil {
					return err
				}
				return db.View(func(tx *holdfast.Tx) error {
					if small(tx).Bucket(name) == nil {
						return fmt.Errorf("no such bucket after the commit")
					}
					return nil
				})
			})
		})
	},
	"name-too-long": func(r *errorRow) {
		r.inTx("create", func(tx *holdfast.Tx) error {
			_, err := tx.CreateBucket(make([]byte, holdfast.MaxKeySize+1))
			return err
		})
	},
	"key-is-bucket": func(r *errorRow) {
		r.inTx("put", func(tx *holdfast.Tx) error { return nest(tx).Put([]byte("deep"), []byte("v")) })
		r.inTx("delete", func(tx *holdfast.Tx) error { return nest(tx).Delete([]byte("deep")) })
		r.inTx("cursor", func(tx *holdfast.Tx) error {
			c := nest(tx).Cursor()
			c.First()
			return c.Delete()
		})
		r.inTx("top-level cursor", func(tx *holdfast.Tx) error {
			c := tx.Cursor()
			c.Last()
			return c.Delete()
		})
	},
	"bucket-is-key": func(r *errorRow) {
		r.inTx("create", func(tx *holdfast.Tx) error { _, err := small(tx).CreateBucket([]byte("k")); return err })
		r.inTx("create if not exists", func(tx *holdfast.Tx) error {
			_, err := small(tx).CreateBucketIfNotExists([]byte("k"))
			return err
		})
		r.inTx("delete", func(tx *holdfast.Tx) error { return small(tx).DeleteBucket([]byte("k")) })
		r.inTx("move", func(tx *holdfast.Tx) error { return tx.MoveBucket([]byte("k"), small(tx), nil) })
		r.inTx("move to a key", func(tx *holdfast.Tx) error {
			if err := small(tx).Put([]byte("deep"), nil); err != nil {
				return err
			}
			return nest(tx).MoveBucket([]byte("deep"), small(tx))
		})
	},
	"bucket-exists": func(r *errorRow) {
		r.inTx("top level", func(tx *holdfast.Tx) error { _, err := tx.CreateBucket([]byte("nest")); return err })
		r.inTx("nested", func(tx *holdfast.Tx) error { _, err := nest(tx).CreateBucket([]byte("deep")); return err })
		r.inTx("move", func(tx *holdfast.Tx) error {
			if _, err := small(tx).CreateBucket([]byte("deep")); err != nil {
				return err
			}
			return nest(tx).MoveBucket([]byte("deep"), small(tx))
		})
	},
	"bucket-missing": func(r *errorRow) {
		r.inTx("delete", func(tx *holdfast.Tx) error { return tx.DeleteBucket([]byte("no")) })
		r.inTx("delete nested", func(tx *holdfast.Tx) error { return nest(tx).DeleteBucket([]byte("no")) })
		r.inTx("move", func(tx *holdfast.Tx) error { return tx.MoveBucket([]byte("no"), nil, nest(tx)) })
	},
	"bucket-deleted": func(r *errorRow) {
		stale := func(use func(b *holdfast.Bucket) error) func(tx *holdfast.Tx) error {
			return func(tx *holdfast.Tx) error {
				deep := nest(tx).Bucket([]byte("deep"))
				if err := tx.DeleteBucket([]byte("nest")); err != nil {
					return err
				}
				return use(deep)
			}
		}
		r.inTx("put", stale(func(b *holdfast.Bucket) error { return b.Put([]byte("k"), nil) }))
		r.inTx("delete", stale(func(b *holdfast.Bucket) error { return b.Delete(sampleKey(1)) }))
		r.inTx("create", stale(func(b *holdfast.Bucket) error { _, err := b.CreateBucket([]byte("k")); return err }))
		r.inTx("delete bucket", stale(func(b *holdfast.Bucket) error { return b.DeleteBucket([]byte("k")) }))
		r.inTx("sequence", stale(func(b *holdfast.Bucket) error { _, err := b.NextSequence(); return err }))
		r.inTx("cursor", stale(func(b *holdfast.Bucket) error {
			c := b.Cursor()
			c.First()
			return c.Delete()
		}))
		r.inTx("move to", stale(func(b *holdfast.Bucket) error {
			return b.Tx().MoveBucket([]byte("small"), nil, b)
		}))
	},
	"same-bucket": func(r *errorRow) {
		r.inTx("to the same place", func(tx *holdfast.Tx) error { return nest(tx).MoveBucket([]byte("deep"), nest(tx)) })
		r.inTx("at the top level", func(tx *holdfast.Tx) error { return tx.MoveBucket([]byte("nest"), nil, nil) })
		r.inTx("into itself", func(tx *holdfast.Tx) error { return tx.MoveBucket([]byte("nest"), nil, nest(tx)) })
		r.inTx("into a bucket in it", func(tx *holdfast.Tx) error {
			return tx.MoveBucket([]byte("nest"), nil, nest(tx).Bucket([]byte("deep")))
		})
	},
	"different-db": func(r *errorRow) {
		other := openNew(r, 0)
		r.inTx("move", func(tx *holdfast.Tx) error {
			tx2, err := other.Begin(true)
			if err != nil {
				return err
			}
			defer tx2.Rollback()
			b, err := tx2.CreateBucket([]byte("b"))
			if err != nil {
				return err
			}
			return nest(tx).MoveBucket([]byte("deep"), b)
		})
	},
	"max-size": func(r *errorRow) {
		s := newSample(r)
		r.try("grow", s.data, func(path string) error {
			return openUse(path, holdfast.Options{MaxSize: len(s.data)}, func(db *holdfast.DB) error {
				err := db.Update(func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), make([]byte, len(s.data))) })
				if fits := db.Update(func(tx *holdfast.Tx) error { return nil }); fits != nil {
					return fits
				}
				return err
			})
		})
	},
}

func small(tx *holdfast.Tx) *holdfast.Bucket { return tx.Bucket([]byte("small")) }
func nest(tx *holdfast.Tx) *holdfast.Bucket  { return tx.Bucket([]byte("nest")) }

// putAndFind puts a key, and finds it after the file was opened again.
func (r *errorRow) putAndFind(key, value []byte) {
	r.Helper()
	r.try("put", newSample(r).data, func(path string) error {
		err := openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
			return db.Update(func(tx *holdfast.Tx) error { return small(tx).Put(key, value) })
		})
		if err != nil {
			return err
		}
		return openUse(path, holdfast.Options{}, func(db *holdfast.DB) error {
			if err := db.View(func(tx *holdfast.Tx) error {
				if got := small(tx).Get(key); got == nil || !bytes.Equal(got, value) {
					return fmt.Errorf("read %q, want %q", got, value)
				}
				return nil
			}); err != nil {
				return err
			}
			return checkOnly(db)
		})
	})
}

// endedCases are the rows of docs/errors.md about using what has ended.
var endedCases = map[string]func(*errorRow){
	"closed-db": func(r *errorRow) {
		for name, use := range dbCalls {
			r.try(name, newSample(r).data, func(path string) error {
				db, err := holdfast.Open(path, 0o600, nil)
				must(r, err)
				must(r, db.Close())
				return use(db)
			})
		}
	},
	"closed-db-close": func(r *errorRow) {
		r.tryUse("twice", newSample(r).data, func(db *holdfast.DB) error {
			must(r, db.Close())
			db.Stats()
			_ = db.String() + db.GoString() + db.Path()
			return db.Close()
		})
	},
	"zero-db": func(r *errorRow) {
		for name, use := range dbCalls {
			r.try(name, nil, func(string) error {
				var db holdfast.DB
				db.Stats()
				db.Logger().Info(db.String() + db.GoString() + db.Path())
				if db.IsReadOnly() {
					r.Error("a zero DB is read-only")
				}
				err := use(&db)
				must(r, db.Close())
				return err
			})
		}
	},
	"ended-tx":     endedTx,
	"ended-bucket": endedBucket,
	"ended-reads":  endedReads,
	"read-only-tx": readOnlyTx,
	"read-only-db": readOnlyDB,
	"failed-flush": failedFlush,
	"free-pages-unknown": func(r *errorRow) {
		r.try("page", newSample(r).data, func(path string) error {
			return openUse(path, holdfast.Options{ReadOnly: true}, func(db *holdfast.DB) error {
				return db.View(func(tx *holdfast.Tx) error { _, err := tx.Page(3); return err })
			})
		})
	},
}

var dbCalls = map[string]func(db *holdfast.DB) error{
	"begin":       func(db *holdfast.DB) error { _, err := db.Begin(false); return err },
	"begin write": func(db *holdfast.DB) error { _, err := db.Begin(true); return err },
	"view":        func(db *holdfast.DB) error { return db.View(nil) },
	"update":      func(db *holdfast.DB) error { return db.Update(nil) },
	"batch":       func(db *holdfast.DB) error { return db.Batch(nil) },
	"sync":        func(db *holdfast.DB) error { return db.Sync() },
	"compact":     func(db *holdfast.DB) error { return holdfast.Compact(db, db, 0) },
}

// failedFlush lets each flush of a commit fail: writing stops, reading goes on,
// and opening again finds a whole database.
func failedFlush(r *errorRow) {
	for nth := int64(0); nth <= 2; nth++ { // 0: the one flush of a commit
		options := &holdfast.Options{StrictCompat: nth > 0, SettleDelay: -1}
		mem := vfs.NewMem("mem")
		db, err := bridge.Open(mem.Open(), nil)
		must(r, err)
		must(r, db.Update(fillSample))
		must(r, db.Close())
		armed := int64(0)
		file := vfs.NewInject(mem.Open(), func(op vfs.Op) error {
			if op.Kind == vfs.KindSync && op.N == armed {
				return syscall.EIO
			}
			return nil
		})
		db, err = bridge.Open(file, options)
		must(r, err)
		armed = file.Count(vfs.KindSync) + max(nth, 1)
		change := func(tx *holdfast.Tx) error { return small(tx).Put([]byte("k"), []byte("changed")) }
		for range 3 {
			r.tryPath(fmt.Sprint("flush ", nth), filepath.Join(r.TempDir(), "db"), func(string) error { return db.Update(change) })
			must(r, readEverything(db))
			view(r, db, func(tx *holdfast.Tx) {
				if v := small(tx).Get([]byte("k")); string(v) != "v" {
					r.Errorf("reads %q after the failed commit", v)
				}
			})
		}
		db.Close() // may say that it left no freelist page
		db, err = bridge.Open(mem.Open(), nil)
		must(r, err)
		must(r, useEverything(db))
		must(r, db.Update(change))
		must(r, db.Close())
	}
}
