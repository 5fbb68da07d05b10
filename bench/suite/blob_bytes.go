package suite

import "fmt"

// amplifiedSizes are those of the blobs of which is counted what gets to the file.
var amplifiedSizes = []int{64 << 10, 100e3, 256 << 10, 1e6}

// amplifiedTx are sizes of transactions, and how many bytes may be written for each of the
// payload.
var amplifiedTx = []struct {
	bytes int64
	limit float64
}{{16 << 20, 1.06}, {1 << 20, 1.35}}

// BlobBytes counts what is written for blobs.
func BlobBytes(c Config) (Table, error) {
	kinds := []sinkKind{storeKinds[0], storeKinds[3], storeKinds[4]}
	t := Table{
		Title: fmt.Sprintf("Bytes written for %s in unique blobs, of the payload", wholeBytes(c.Blobs.Amplified)),
		Peer:  blobStockHash, Ours: blobOurs,
	}
	for _, k := range kinds {
		t.Columns = append(t.Columns, k.name)
	}
	for _, size := range amplifiedSizes {
		for _, tx := range amplifiedTx {
			name := fmt.Sprintf("blobs of %s in transactions of %s", wholeBytes(int64(size)), wholeBytes(tx.bytes))
			c.logf("measuring: bytes of %s", name)
			row := Row{Workload: name, Unit: "×", Cells: map[string]Cell{}}
			for _, k := range kinds {
				wrote, err := c.amplification(k, size, tx.bytes)
				if err != nil {
					return t, fmt.Errorf("%s: %s: %w", name, k.name, err)
				}
				row.Cells[k.name] = exactly(wrote)
			}
			t.Rows = append(t.Rows, row)
			wrote := row.Cells[blobOurs].Median
			t.atMost(name+": bytes written", fmt.Sprintf("%.4g × the payload", tx.limit), wrote, tx.limit, fmt.Sprintf("%.3f×", wrote))
		}
	}
	return t, nil
}

// exactly is a cell with what is counted, and is the same in each round.
func exactly(v float64) Cell { return Cell{Median: v, Low: v, High: v, Allocs: -1} }

// amplification gives the bytes that are written, of the payload.
func (c *Config) amplification(k sinkKind, size int, tx int64) (wrote float64, err error) {
	source := newBlobSource(size, min(tx, c.Blobs.Amplified))
	err = c.with(k, func(to sink) error {
		before, err := written()
		if err != nil {
			return err
		}
		n, err := source.write(to, source.transactions(c.Blobs.Amplified))
		if err != nil {
			return err
		}
		after, err := written()
		wrote = float64(after-before) / float64(n*size)
		return err
	})
	return wrote, err
}
