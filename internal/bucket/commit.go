package bucket

import "holdfast/internal/page"

// Commit writes b and all buckets opened below it, and returns b's root and
// sequence. Call it on the root bucket, once, as the transaction's last act.
func (b *Bucket) Commit() (page.ID, uint64, error) {
	if err := b.commitChildren(); err != nil {
		return 0, 0, err
	}
	if err := b.tree.Merge(); err != nil {
		return 0, 0, err
	}
	root, err := b.tree.Write(b.fillShare())
	return root, b.sequence, err
}

func (b *Bucket) commitChildren() error {
	for _, c := range b.children.sorted() { // the same edits give the same file
		child := c.bucket
		if err := child.commitChildren(); err != nil {
			return err
		}
		if !child.tree.Edited() && !child.altered {
			continue
		}
		value, err := child.write()
		if err != nil {
			return err
		}
		if err := b.tree.Put(c.name, value, page.BucketFlag); err != nil {
			return err
		}
	}
	return nil
}

// write brings b to pages, or into its value, and returns that.
func (b *Bucket) write() ([]byte, error) {
	h := page.Bucket{Root: b.tree.Root(), Sequence: b.sequence}
	if !b.tree.Edited() {
		return b.tree.AppendUnedited(encodeHeader(h, 0)), nil
	}
	if err := b.tree.Merge(); err != nil {
		return nil, err
	}
	if size, ok := b.tree.InlineSize(b.tx.Writer.PageSize() / inlineShare); ok {
		h.Root = 0
		value := encodeHeader(h, size)
		return value, b.tree.Inline(value[page.BucketHeaderSize:])
	}
	root, err := b.tree.Write(b.fillShare())
	if err != nil {
		return nil, err
	}
	h.Root = root
	page.EncodeBucket(b.header[:], h)
	return b.header[:], nil
}

func encodeHeader(h page.Bucket, room int) []byte {
	value := make([]byte, page.BucketHeaderSize+room)
	page.EncodeBucket(value, h)
	return value
}
