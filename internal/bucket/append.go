package bucket

import (
	"holdfast/internal/page"
	"holdfast/internal/tree"
)

// Append puts key, with value, after all other keys. Neither is kept.
func (b *Bucket) Append(key, value []byte) error {
	err := b.writable()
	if err == nil {
		err = checkPair(key, value)
	}
	if err == nil {
		err = b.tree.Append(b.tx.Appender, b.fillShare(), key, value)
	}
	if err == tree.ErrUnordered {
		return ErrUnordered
	}
	return err
}

// AppendStable is Append for a key and a value that stay as they are until the transaction ends.
func (b *Bucket) AppendStable(key, value []byte) error {
	if err := checkPair(key, value); err != nil {
		return err
	}
	return b.appendStable(key, value, 0)
}

func (b *Bucket) appendStable(key, value []byte, flags uint32) error {
	err := b.tree.AppendStable(b.tx.Appender, b.fillShare(), key, value, flags)
	if err == tree.ErrUnordered {
		return ErrUnordered
	}
	return err
}

// Draft is a bucket to which keys and buckets are appended in their order before it is put into another,
// which does not know it before. The zero Draft is ready for Begin, and a Draft that was put is ready for
// it again: the memory of its nodes is used for the next one.
type Draft struct {
	Bucket
	own  Tx
	edit tree.Edit
}

// Begin makes d a new, empty bucket called name, to be put into b. Errors are those of Create, but that name
// is there already shows later.
func (d *Draft) Begin(b *Bucket, name []byte, sequence uint64) error {
	if err := checkName(name, b.depth); err != nil {
		return err
	}
	d.edit.Reset(b.tx.Writer)
	d.edit.Unsealed = b.tx.Edit.Unsealed
	d.own = *b.tx
	d.own.Edit = &d.edit
	d.tree.Begin(d.own.Source, &d.edit)
	d.Bucket = Bucket{tx: &d.own, tree: d.tree, sequence: sequence, depth: b.depth + 1}
	return nil
}

// AppendDraft puts d, which is complete, after all that is in b. name stays as it is until the transaction ends.
func (b *Bucket) AppendDraft(name []byte, d *Draft) error {
	value, err := b.complete(d)
	if err != nil {
		return err
	}
	return b.appendStable(name, value, page.BucketFlag)
}

// PutDraft puts d, which is complete, into b, where it belongs. Errors are those of Create.
func (b *Bucket) PutDraft(name []byte, d *Draft) error {
	value, err := b.complete(d)
	if err == nil {
		err = b.vacant(name)
	}
	if err != nil {
		return err
	}
	return b.tree.Put(name, value, page.BucketFlag)
}

// complete brings a draft of a bucket in b to pages of the transaction's Appender, or into its value, and returns that.
func (b *Bucket) complete(d *Draft) ([]byte, error) {
	if d.tree.Empty() {
		return emptyValue(d.sequence), nil
	}
	a := b.tx.Appender
	inline := a.PageSize() / inlineShare
	if _, small := d.tree.InlineSize(inline); !small {
		if err := d.tree.Spill(a, d.fillShare(), inline); err != nil {
			return nil, err
		}
	}
	value, err := d.write()
	b.tx.Edit.Stats.Add(d.edit.Stats)
	return value, err
}
