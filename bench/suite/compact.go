package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"holdfast"
	"holdfast/command"
)

// The columns of Compact.
const (
	compactStock     = "stock compact"
	compactUnflushed = "stock, one flush"
	compactHoldfast  = "holdfast compact"
	compactFloor     = "bare copy"
)

// stockTxBytes is how much a transaction of `bbolt compact` holds, unless it is told otherwise.
const stockTxBytes = 64 << 10

// Compact measures rewriting a file into a new one: as the commands do it, bbolt's once
// more without a flush after each transaction and one at the end, and, as what it costs
// at least, the bytes of the copy written one after the other, with one flush.
func Compact(c Config) (Table, error) {
	t := Table{
		Title:   fmt.Sprintf("Compacting a file of %d keys, with 100 and 900 bytes each, of which another third was deleted", c.Keys),
		Columns: []string{compactStock, compactUnflushed, compactHoldfast, compactFloor},
		Peer:    compactStock, Ours: compactHoldfast,
	}
	src, err := c.path("compact", "source")
	if err != nil {
		return t, err
	}
	defer remove(src)
	if err := c.needs(int64(c.Keys) * 3000); err != nil {
		return t, err
	}
	c.logf("building a file of %d keys", c.Keys)
	if err := buildSparse(src, c.Keys); err != nil {
		return t, err
	}
	copied := filepath.Join(filepath.Dir(src), "copied")
	if err := compactCommand(copied, src); err != nil {
		return t, err
	}
	bytes, sizes := map[string][]sample{}, map[string][]sample{}
	var runners []runner
	for _, way := range []struct {
		name string
		copy func(dst, src string) error
		from string
	}{
		{compactStock, func(dst, src string) error { return compactAsStock(dst, src, false) }, src},
		{compactUnflushed, func(dst, src string) error { return compactAsStock(dst, src, true) }, src},
		{compactHoldfast, compactCommand, src},
		{compactFloor, copyFile, copied},
	} {
		runners = append(runners, runner{way.name, func() (sample, error) {
			took, wrote, size, err := copyOnce(way.copy, way.from)
			bytes[way.name] = append(bytes[way.name], sample{wrote, -1})
			sizes[way.name] = append(sizes[way.name], sample{size, -1})
			return sample{took, -1}, err
		}})
	}
	if err := t.add(&c, Row{Workload: "time", Unit: "ns"}, runners); err != nil {
		return t, err
	}
	t.Rows = append(t.Rows, Row{Workload: "bytes written", Unit: "B", Cells: cellsOf(bytes)},
		Row{Workload: "size of the copy", Unit: "B", Cells: cellsOf(sizes)})
	return t, nil
}

// copyOnce copies the file at from, which is cached, next to it, and removes the copy.
func copyOnce(run func(dst, src string) error, from string) (took, wrote, size float64, err error) {
	dst := filepath.Join(filepath.Dir(from), "copy")
	defer os.Remove(dst)
	before, err := written()
	if err != nil {
		return 0, 0, 0, err
	}
	began := time.Now()
	if err := run(dst, from); err != nil {
		return 0, 0, 0, err
	}
	took = float64(time.Since(began))
	after, err := written()
	if err != nil {
		return 0, 0, 0, err
	}
	info, err := os.Stat(dst)
	if err != nil {
		return 0, 0, 0, err
	}
	return took, float64(after - before), float64(info.Size()), nil
}

// compactCommand is `holdfast compact`.
func compactCommand(dst, src string) error {
	root := command.NewRootCommand()
	root.SetArgs([]string{"compact", "-o", dst, src})
	root.SetOut(io.Discard)
	if code := command.Execute(context.Background(), root); code != 0 {
		return fmt.Errorf("holdfast compact ended with exit code %d", code)
	}
	return nil
}

// compactAsStock does what `bbolt compact` does. With oneFlush it is
// `bbolt compact --no-sync`, and a flush of the copy.
func compactAsStock(dst, src string, oneFlush bool) error {
	from, err := bbolt.Open(src, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := bbolt.Open(dst, 0o600, &bbolt.Options{NoSync: oneFlush})
	if err != nil {
		return err
	}
	err = bbolt.Compact(to, from, stockTxBytes)
	if err == nil && oneFlush {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}

// copyFile copies a file in pieces of a MiB, with one flush: without the methods with
// which the system copies by itself, and may let both files share blocks.
func copyFile(dst, src string) error {
	from, err := os.Open(src)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(dst, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 1<<20))
	if err == nil {
		err = Fdatasync(to)
	}
	return errors.Join(err, to.Close())
}

// buildSparse makes a file from half as many keys again, in random order, and deletes
// every third of them.
func buildSparse(path string, keys int) error {
	const transactionSize = 20_000
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true})
	if err != nil {
		return err
	}
	order := rand.New(rand.NewPCG(8, 9)).Perm(keys + keys/2)
	for len(order) > 0 && err == nil {
		part := order[:min(len(order), transactionSize)]
		order = order[len(part):]
		err = db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketName)
			for _, i := range part {
				if err != nil {
					break
				}
				size := 100 + 800*(i%2)
				at := i * 101 % (len(noise) - size)
				err = b.Put(keyOf(i), noise[at:at+size:at+size])
			}
			return err
		})
	}
	for i := 0; i < keys+keys/2 && err == nil; i += 3 * transactionSize {
		err = db.Update(func(tx *holdfast.Tx) error {
			b := tx.Bucket(bucketName)
			for k := i; k < min(i+3*transactionSize, keys+keys/2); k += 3 {
				if err := b.Delete(keyOf(k)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}
