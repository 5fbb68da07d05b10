package page

// Bucket is the header that a bucket's value begins with.
type Bucket struct {
	Root     ID // 0: the bucket is inline, its leaf page follows the header
	Sequence uint64
}

// DecodeBucket reads a bucket's value. For an inline bucket it returns its
// page, which points into value.
func DecodeBucket(value []byte) (Bucket, Page, error) {
	if len(value) < BucketHeaderSize {
		return Bucket{}, Page{}, Corruptf(0, "bucket value of %d bytes is shorter than its header", len(value))
	}
	b := Bucket{Root: ID(order.Uint64(value)), Sequence: order.Uint64(value[8:])}
	if b.Root != 0 {
		return b, Page{}, nil
	}
	p, err := Parse(value[BucketHeaderSize:], 0)
	if err != nil {
		return b, Page{}, err
	}
	if !p.IsLeaf() {
		return b, Page{}, Corruptf(0, "inline bucket holds a branch page")
	}
	return b, p, nil
}

// EncodeBucket writes the header to the first BucketHeaderSize bytes of value.
func EncodeBucket(value []byte, b Bucket) {
	_ = value[BucketHeaderSize-1]
	order.PutUint64(value, uint64(b.Root))
	order.PutUint64(value[8:], b.Sequence)
}
