package drivertest

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"holdfast/worker/snapshot"
)

func testDigest(b *bench) {
	d, ok := b.driver.(snapshot.Digester)
	if !ok {
		return // it does not claim to
	}
	ctx := context.Background()
	digest := func(l snapshot.Layer) snapshot.Digest {
		b.Helper()
		if f, ok := b.driver.(snapshot.Finisher); ok && !f.Finished(l) {
			b.must(f.Finish(ctx, l))
		}
		read := int64(0)
		sum, err := d.Digest(ctx, l, snapshot.DigestOptions{Read: func(n int64) error { read += n; return nil }})
		b.must(err)
		fresh, err := d.Digest(ctx, l, snapshot.DigestOptions{Fresh: true})
		b.must(err)
		if fresh != sum || read == 0 {
			b.Errorf("the digest is %v, after reading %d bytes, then %v", sum, read, fresh)
		}
		return sum
	}
	base := b.commit(b.create(snapshot.Active), b.fill)
	before := digest(base)
	// Nothing that is done with it changes it.
	child := b.commit(b.create(snapshot.Active, base), func(dir string) {
		b.write(dir, "a/text", "changed", 0o640)
		b.must(os.RemoveAll(filepath.Join(dir, "a", "b")))
	})
	above := digest(child)
	b.look(child, base)
	b.look(base)
	b.remove(child)
	if after := digest(base); after != before {
		b.Errorf("after a child was made and removed it is %v, and was %v", after, before)
	}
	other := b.commit(b.create(snapshot.Active, base), func(dir string) { b.write(dir, "a/text", "changef", 0o640) })
	if sum := digest(other); sum == above || sum == before || above == before {
		b.Errorf("different ones have %v, %v and %v", before, above, sum)
	}

	// A byte on the disk, or a snapshot that is not there.
	flipOne(b, other.Dir)
	if sum := digest(other); sum == above || sum == before {
		b.Error("a byte that was changed makes no difference")
	}
	stop := errors.New("enough")
	if _, err := d.Digest(ctx, base, snapshot.DigestOptions{Read: func(int64) error { return stop }}); !errors.Is(err, stop) {
		b.Errorf("stopped: %v", err)
	}
	none := b.tree(snapshot.Active)
	if sum, err := d.Digest(ctx, none.Layer, snapshot.DigestOptions{}); !errors.Is(err, os.ErrNotExist) {
		b.Errorf("what is not there has the digest %v, %v", sum, err)
	}
}

// flipOne changes a bit of the largest file below dir, or of one of them.
func flipOne(b *bench, dir string) {
	b.Helper()
	largest, size := "", int64(0)
	b.must(filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	}))
	b.must(os.Chmod(largest, 0o600))
	f, err := os.OpenFile(largest, os.O_RDWR, 0)
	b.must(err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, size/2)
	b.must(err)
	one[0] ^= 0x10
	_, err = f.WriteAt(one, size/2)
	b.must(errors.Join(err, f.Close()))
}
