package damage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Sizes of a run that is not a soak.
const (
	quickFiles = 400
	quickBig   = 6 // of those with more than 0xFFFE free pages, which are large
)

// Holdfast must answer within the first. bbolt, whose answers are not verified, is
// taken to hang after the second, or the test would mostly wait.
const (
	ownTimeout   = 3 * time.Minute
	stockTimeout = 3 * time.Second
)

// outcome is what became of a damaged file, as a column of the table.
type outcome int

const (
	died      outcome = iota // panic, fault, hang or no memory
	detected                 // an error from open, walk or check
	unnoticed                // none, and the content is another
	harmless                 // none, and the content is that of the sound file
	outcomes
)

// tally counts one engine's outcomes.
type tally struct {
	name     string
	files    int
	by       [outcomes]int
	deaths   map[death]int
	worse    int // writing broke what open, walk and check had found sound
	mustSeen int // damage that had to be noticed
	missed   int // and was not
	sealed   int // files that Holdfast made, whose pages have seals
	unseen   int // of those, the unnoticed
	maxAlloc uint64
	kinds    map[string]*[outcomes]int
}

func newTally(name string) *tally {
	return &tally{name: name, deaths: map[death]int{}, kinds: map[string]*[outcomes]int{}}
}

func (c *tally) add(m mutation, s *sample, r result, d death) outcome {
	var o outcome
	switch {
	case d != alive:
		o = died
		c.deaths[d]++
	case r.detected():
		o = detected
	case r.Content != s.content:
		o = unnoticed
	default:
		o = harmless
	}
	c.files++
	c.by[o]++
	if !s.kind.stock {
		c.sealed++
		if o == unnoticed {
			c.unseen++
		}
	}
	if c.kinds[m.kind] == nil {
		c.kinds[m.kind] = new([outcomes]int)
	}
	c.kinds[m.kind][o]++
	if r.Worse != "" {
		c.worse++
	}
	if m.must {
		if c.mustSeen++; o > detected {
			c.missed++
		}
	}
	c.maxAlloc = max(c.maxAlloc, r.Alloc)
	return o
}

func (c *tally) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%-20s %6s %6s %9s %10s %9s\n", c.name, "files", "died", "detected", "unnoticed", "harmless")
	row := func(name string, by [outcomes]int) {
		fmt.Fprintf(&s, "%-20s %6d %6d %9d %10d %9d\n", name, by[0]+by[1]+by[2]+by[3], by[died], by[detected], by[unnoticed], by[harmless])
	}
	for _, m := range append(mutators[:len(mutators):len(mutators)], mutator{kind: "several"}) {
		if by := c.kinds[m.kind]; by != nil {
			row("  "+m.kind, *by)
		}
	}
	row("  all", c.by)
	fmt.Fprintf(&s, "of %d files with seals %d unnoticed; ", c.sealed, c.unseen)
	fmt.Fprintf(&s, "died of %v; made worse by writing, where nothing was noticed: %d; of %d that had to be noticed not: %d; at most %d KiB allocated",
		c.deaths, c.worse, c.mustSeen, c.missed, c.maxAlloc>>10)
	return s.String()
}

// allocLimit is the bytes that opening, walking, checking, writing and closing a
// file of n bytes may allocate in all, whatever the file's bytes are.
func allocLimit(n int64) uint64 { return 16<<20 + 2*uint64(n) }

// TestDamage has both engines use damaged files. See the package's comment.
func TestDamage(t *testing.T) {
	d := &run{
		TB: t, dir: t.TempDir(),
		own: newWorker(t, "Holdfast", ownTimeout), stock: newWorker(t, "bbolt", stockTimeout),
		tallies: [2]*tally{newTally("Holdfast"), newTally("bbolt v1.5.0")},
	}
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		d.file(seed)
		t.Logf("\n%v\n%v", d.tallies[0], d.tallies[1])
		return
	}
	first := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d on", first)
	var end time.Time
	if soak, err := time.ParseDuration(os.Getenv("HOLDFAST_SOAK")); err == nil {
		end = time.Now().Add(soak)
	}
	for i := uint64(0); i < quickFiles || time.Now().Before(end); i++ {
		if d.file(first + i); t.Failed() {
			break
		}
	}
	for _, c := range d.tallies {
		t.Logf("\n%v", c)
	}
	if c := d.tallies[0]; !t.Failed() && (c.mustSeen < c.files/4 || c.by[detected] < c.files/4 || c.by[harmless] == 0) {
		t.Errorf("the damage is too small to say anything: %v", c)
	}
}

// run is one run over many files.
type run struct {
	testing.TB
	dir        string
	own, stock *worker
	tallies    [2]*tally
}

// file makes the damaged file of a seed and has both engines use it.
func (d *run) file(seed uint64) {
	c := rand.New(rand.NewPCG(seed, 1))
	which := c.IntN(firstBig)
	if c.IntN(quickFiles/quickBig) == 0 {
		which = firstBig + c.IntN(len(kinds)-firstBig)
	}
	s, err := samples[which]()
	if err != nil {
		d.Fatal(err)
	}
	data, m := s.mutate(c)
	what := fmt.Sprintf("again with HOLDFAST_SEED=%d: file of %v: %s: %s", seed, s.kind, m.kind, m.text)

	r, died, words := d.use(d.own, data)
	d.tallies[0].add(m, s, r, died)
	switch {
	case died != alive:
		d.Errorf("%s: %s\n%s", what, died, words)
	case m.must && !r.detected():
		d.Errorf("%s: nobody noticed", what)
	case r.Worse != "":
		d.Errorf("%s: nothing was noticed, and writing made it worse: %s", what, r.Worse)
	case r.Alloc > allocLimit(int64(len(data))):
		d.Errorf("%s: %d bytes allocated for a file of %d", what, r.Alloc, len(data))
	}
	r, died, _ = d.use(d.stock, data)
	d.tallies[1].add(m, s, r, died)
}

// use writes data to a file and has a worker use it.
func (d *run) use(w *worker, data []byte) (result, death, string) {
	path := filepath.Join(d.dir, w.name)
	if err := writeSparse(path, data); err != nil {
		d.Fatal(err)
	}
	r, died, words, err := w.use(path)
	if err != nil {
		d.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		d.Fatal(err)
	}
	return r, died, words[:min(len(words), 3000)]
}

// writeSparse writes a file with holes where data has long rows of zeros.
func writeSparse(path string, data []byte) error {
	const step = 64 << 10
	var zeros [step]byte
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := 0; at < len(data); at += step {
		part := data[at:min(at+step, len(data))]
		if string(part) == string(zeros[:len(part)]) {
			continue
		}
		if _, err := f.WriteAt(part, int64(at)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(len(data)))
}
