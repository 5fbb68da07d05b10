package engine

import (
	"context"
	"io"
	"os"
	"testing"

	"holdfast"
	"holdfast/internal/bridge"
	"holdfast/internal/delta"
)

// Each call that reads pages of a file that was cut off after its owner had closed it is an error, and no crash, outside of View too.
func TestOpenSharedCutOff(t *testing.T) {
	calls := map[string]func(tx, other *holdfast.Tx, b *holdfast.Bucket) error{
		"Check": func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error {
			var last error
			for err := range tx.Check() {
				last = err
			}
			return last
		},
		"WriteTo":     func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error { _, err := tx.WriteTo(io.Discard); return err },
		"CopyFile":    func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error { return tx.CopyFile(tempPath(t), 0o600) },
		"FreeExtents": func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error { _, err := tx.FreeExtents(); return err },
		"ForEachPage": func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error {
			return tx.ForEachPage(func(holdfast.PageRun) error { return nil })
		},
		"ForEach": func(_, _ *holdfast.Tx, b *holdfast.Bucket) error {
			return b.ForEach(func(_, _ []byte) error { return nil })
		},
		"Get":    func(tx, _ *holdfast.Tx, b *holdfast.Bucket) error { b.Get([]byte("key-01999")); return tx.Err() },
		"Cursor": func(tx, _ *holdfast.Tx, b *holdfast.Bucket) error { b.Cursor().Last(); return tx.Err() },
		"Stats":  func(tx, _ *holdfast.Tx, b *holdfast.Bucket) error { b.Stats(); return tx.Err() },
		"Page":   func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error { _, _ = tx.Page(9); return tx.Err() },
		"Bucket": func(tx, _ *holdfast.Tx, _ *holdfast.Bucket) error { tx.Bucket([]byte("b")); return tx.Err() },
		"Compare": func(tx, other *holdfast.Tx, _ *holdfast.Bucket) error {
			_, err := bridge.Compare(context.Background(), tx, other)
			return err
		},
		"CompareKeys": func(tx, other *holdfast.Tx, _ *holdfast.Bucket) error {
			return bridge.CompareKeys(context.Background(), tx, other, true, func(*delta.Change) error { return nil })
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			path := tempPath(t)
			owner := openOwner(t, path, holdfast.Options{NoSync: true})
			fillShared(t, owner, 2000, 1)
			reader := openReader(t, path, holdfast.Options{OnDamage: holdfast.DamageIsError})
			tx := beginShared(t, reader)
			fillShared(t, owner, 2000, 2)
			other := beginShared(t, reader)
			b := tx.Bucket([]byte("b"))
			must(t, owner.Close())
			must(t, os.Truncate(path, 0))
			wantsError(t, name, call(tx, other, b), holdfast.ErrOwnerGone)
			wantsError(t, "Err", tx.Err(), holdfast.ErrOwnerGone)
			wantsError(t, "Rollback", tx.Rollback(), holdfast.ErrOwnerGone)
		})
	}
}
