package suite

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	readShare  = 0.9 // target for the rate of verified reads, of that of the hash
	randomRead = 4096
	notDropped = "not dropped from the page cache"
)

// BlobRead measures reading a large blob from one end to the other, and parts of it.
func BlobRead(c Config) (Table, error) {
	t := Table{
		Title: fmt.Sprintf("Reading a blob of %s", wholeBytes(c.Blobs.Large)),
		Peer:  floorHash, Ours: blobOurs, Columns: []string{floorHash},
	}
	r := largeReads{c: &c, files: map[string]string{}, rates: map[string]map[string][]sample{}, times: map[string]map[string][]sample{}}
	defer r.remove()
	for _, k := range largeKinds {
		t.Columns = append(t.Columns, k.name)
		c.logf("building %s with %s", k.name, wholeBytes(c.Blobs.Large))
		path, err := c.fileOf("large-"+k.name, 2*c.Blobs.Large)
		if err != nil {
			return t, err
		}
		r.files[k.name] = path
		if err := k.build(path, c.Blobs.Large); err != nil {
			return t, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	if err := r.sequential(&t); err != nil {
		return t, err
	}
	return t, r.random(&t)
}

// Rows of what is read from one end to the other.
const (
	readFirst = "all, verified, first time since opening"
	readCopy  = "all into a buffer, verified, first time since opening"
	readAgain = "all into a buffer, again"
)

// largeReads measures reading of files with a large blob.
type largeReads struct {
	c            *Config
	files        map[string]string              // by kind
	rates, times map[string]map[string][]sample // by row and column
}

func (r *largeReads) remove() {
	for _, path := range r.files {
		remove(path)
	}
}

func note(to map[string]map[string][]sample, row, column string, value float64) {
	if to[row] == nil {
		to[row] = map[string][]sample{}
	}
	to[row][column] = append(to[row][column], sample{value, -1})
}

// rate runs fn, which reads all, and notes how fast that was, in MB/s.
func (r *largeReads) rate(row, column string, fn func() (int64, error)) error {
	began := time.Now()
	n, err := fn()
	took := time.Since(began)
	if err == nil && n != r.c.Blobs.Large {
		err = fmt.Errorf("%s: %d bytes of %d were read", row, n, r.c.Blobs.Large)
	}
	note(r.rates, row, column, float64(n)/1e6/took.Seconds())
	return err
}

func (r *largeReads) sequential(t *Table) error {
	r.c.logf("measuring: sequential reads")
	runners := []runner{{floorHash, func() (sample, error) {
		return sample{}, r.rate(readFirst, floorHash, r.hash())
	}}}
	for _, k := range largeKinds {
		runners = append(runners, runner{k.name, func() (sample, error) { return sample{}, r.sequentially(k) }})
	}
	if _, err := byTurns(r.c.Rounds, runners); err != nil {
		return err
	}
	hash := r.rates[readFirst][floorHash]
	for _, row := range []string{readFirst, readCopy, readAgain} {
		cells := cellsOf(r.rates[row])
		cells[floorHash] = cellOf(hash)
		t.Rows = append(t.Rows, Row{Workload: row, Unit: " MB/s", More: true, Cells: cells})
	}
	t.ratioAtLeast("sequential read, verified, first time since opening", "the rate of SHA-256", r.rates[readFirst][blobOurs], hash, readShare)
	t.ratioAtLeast("sequential read into a buffer, again", "the rate of SHA-256", r.rates[readAgain][blobOurs], hash, readShare)
	return nil
}

// hash hashes as many bytes in pieces, from memory.
func (r *largeReads) hash() func() (int64, error) {
	source := newBlobSource(stockPiece, blobTx)
	return func() (n int64, err error) {
		var s hashSink
		for left := r.c.Blobs.Large; left > 0; {
			at := int(n/stockPiece) % source.perTx * stockPiece
			p := source.buf[at : at+int(min(left, stockPiece))]
			err = s.put(p)
			n, left = n+int64(len(p)), left-int64(len(p))
		}
		return n, err
	}
}

func (r *largeReads) sequentially(k largeKind) error {
	buf := make([]byte, 1<<20)
	l, err := k.open(r.files[k.name])
	if err != nil {
		return err
	}
	err = r.rate(readFirst, k.name, l.verified)
	if err == nil {
		err = r.rate(readAgain, k.name, func() (int64, error) { return l.copied(buf) })
	}
	if err := errors.Join(err, l.close()); err != nil || k.name != blobOurs {
		return err
	}
	if l, err = k.open(r.files[k.name]); err != nil { // nothing is verified yet
		return err
	}
	err = r.rate(readCopy, k.name, func() (int64, error) { return l.copied(buf) })
	return errors.Join(err, l.close())
}

// Rows of random reads.
const (
	randomCold  = "4 KiB at random, not in memory"
	randomFirst = "4 KiB at random, in memory, first time since opening"
	randomAgain = "4 KiB at random, the same again"
	randomAlone = "4 KiB at random, the same again, a transaction for each"
)

func (r *largeReads) random(t *Table) error {
	r.c.logf("measuring: random reads")
	var runners []runner
	dropped := true
	for _, k := range largeKinds {
		runners = append(runners, runner{k.name, func() (sample, error) {
			cold, err := r.randomly(k)
			dropped = dropped && cold
			return sample{}, err
		}})
	}
	if _, err := byTurns(r.c.Rounds, runners); err != nil {
		return err
	}
	for _, row := range []string{randomCold, randomFirst, randomAgain, randomAlone} {
		for _, part := range []string{", median", ", 99th percentile"} {
			cells := cellsOf(r.times[row+part])
			if row == randomCold && !dropped {
				for name := range cells {
					cells[name] = Cell{Text: notDropped, Allocs: -1}
				}
			}
			t.Rows = append(t.Rows, Row{Workload: row + part, Unit: "ns", Cells: cells})
		}
	}
	return nil
}

// randomly reads parts of one kind of file, and tells whether the first of them came from the disk.
func (r *largeReads) randomly(k largeKind) (cold bool, err error) {
	path := r.files[k.name]
	if err := dropCache(path); err != nil {
		return false, err
	}
	length := min(randomRead, r.c.Blobs.Large)
	all := offsets(r.c.Blobs.Reads, r.c.Blobs.Large, length)
	p := make([]byte, length)
	before, err := Counter("read_bytes")
	if err != nil {
		return false, err
	}
	l, err := k.open(path)
	if err != nil {
		return false, err
	}
	err = r.times4K(randomCold, k.name, l, p, all)
	after, failed := Counter("read_bytes")
	if err := errors.Join(err, failed, l.close()); err != nil {
		return false, err
	}
	if l, err = k.open(path); err != nil {
		return false, err
	}
	err = r.times4K(randomFirst, k.name, l, p, all)
	if err == nil {
		err = r.times4K(randomAgain, k.name, l, p, all)
	}
	if b, ok := l.(*largeBlob); ok && err == nil {
		var d large
		if d, err = b.detached(); err == nil {
			err = r.times4K(randomAlone, k.name, d, p, all)
		}
	}
	// Most of the parts are on pages of their own.
	return after-before >= int64(len(all))*length/2, errors.Join(err, l.close())
}

// times4K notes how long reads at the offsets take.
func (r *largeReads) times4K(row, column string, l large, p []byte, at []int64) error {
	times := make([]time.Duration, len(at))
	for i, offset := range at {
		began := time.Now()
		if err := l.readAt(p, offset); err != nil {
			return fmt.Errorf("%s at %d: %w", row, offset, err)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	note(r.times, row+", median", column, float64(perMille(times, 500)))
	note(r.times, row+", 99th percentile", column, float64(perMille(times, 990)))
	return nil
}
