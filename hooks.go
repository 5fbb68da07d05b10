package holdfast

import (
	"context"
	"fmt"
	"runtime/debug"

	"holdfast/internal/autovacuum"
	"holdfast/internal/bucket"
	"holdfast/internal/hooks"
	"holdfast/internal/longwait"
	"holdfast/internal/pager"
	"holdfast/internal/tree"
	"holdfast/internal/vfs"
)

func init() {
	hooks.Open = func(file vfs.File, options any) (any, error) { return openVFS(file, options.(*Options)) }
	hooks.OpenExisting = func(file vfs.File) (any, error) {
		return openFile(file, resealOptions(ResealOptions{}), false)
	}
	hooks.Reseal = func(ctx context.Context, file vfs.File, options any) (any, error) {
		o := options.(ResealOptions)
		db, err := openFile(file, resealOptions(o), false)
		if err != nil {
			return Resealed{}, err
		}
		return reseal(ctx, db, o)
	}
	hooks.Pager = func(db any) *pager.Pager { return db.(*DB).pager }
	hooks.AutoVacuum = func(db any) *autovacuum.Auto { return db.(*DB).auto }
	hooks.Waits = func(db any) *longwait.Waits { return &db.(*DB).waits }
	hooks.State = func(tx any) (*pager.State, error) { return tx.(*Tx).state, tx.(*Tx).usable() }
	hooks.Source = func(tx any) tree.Reader { return tx.(*Tx).buckets.Source }
	hooks.Foreign = func(tx any) *pager.Foreign { return tx.(*Tx).foreign }
	hooks.Writer = func(tx any) *pager.WriteTx {
		if w := tx.(*Tx).w; w != nil {
			return w.w
		}
		return nil
	}
	hooks.OnWritten = func(tx any, fn func()) {
		if w := tx.(*Tx).w; w != nil {
			w.onWritten = append(w.onWritten, fn)
		}
	}
	hooks.Named = func(tx any, err error) error { return tx.(*Tx).named(err) }
	hooks.BeginProbe = func(tx any) (hooks.Probe, error) { return tx.(*Tx).beginProbe() }
	hooks.EndProbe = func(tx any, p hooks.Probe, recovered any) error { return tx.(*Tx).endProbe(p, recovered) }
	hooks.Fault = func(tx, recovered any) error { return tx.(*Tx).told(recovered) }
	hooks.Bucket = func(b any) *bucket.Bucket { return &b.(*Bucket).core }
}

// openVFS opens the database in file, which it takes over. The environment is not read.
func openVFS(file vfs.File, options *Options) (*DB, error) {
	if options == nil {
		options = DefaultOptions
	}
	if err := options.validate(); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open %s: %w", file.Name(), err)
	}
	return openFile(file, options, true)
}

// beginProbe begins to collect the damage that calls on the transaction meet; see bridge.Probe.
func (tx *Tx) beginProbe() (hooks.Probe, error) {
	if err := tx.usable(); err != nil {
		return hooks.Probe{}, err
	}
	p := hooks.Probe{Damage: tx.damage.Swap(nil)}
	tx.probing.Add(1)
	p.PanicOnFault = debug.SetPanicOnFault(true)
	return p, nil
}

// endProbe is called by a deferred function, and recovered is what that has recovered.
func (tx *Tx) endProbe(p hooks.Probe, recovered any) (err error) {
	defer func() {
		tx.probing.Add(-1)
		met := tx.damage.Load()
		if met != nil {
			err = *met
		}
		if met == nil || p.Damage != nil || tx.w == nil {
			tx.damage.Store(p.Damage)
		}
	}()
	debug.SetPanicOnFault(p.PanicOnFault)
	if recovered != nil {
		tx.recovered(recovered, &err, true)
	}
	return err
}
