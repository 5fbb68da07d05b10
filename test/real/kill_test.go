package real

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// killRounds is the number of processes that are killed on one file.
const killRounds = 20

// killMinimums are the kills that a run must have seen, by what was going on.
var killMinimums = map[string]int{
	"a commit was in flight":                8,
	"an unacknowledged commit is there":     1,
	"an unacknowledged commit is not there": 4,
	"during a close":                        1,
	"during an open":                        2,
	"during a compaction":                   2,
	"the file grew":                         2,
	"a rollback before":                     5,
	"bbolt finds an older state":            5,
	"bbolt finds the newest state":          8,
	"with StrictCompat":                     3,
	"settled":                               1,
	"64 writers":                            3,
	"commits written together":              6,
	"bbolt goes on from an older state":     2,
	"of bbolt":                              2,
	"bbolt committed between":               3,
	"during a vacuum":                       3,
	"a vacuum before made the file shorter": 2,
}

// killFile is a file on which processes are killed, and what is known of it.
type killFile struct {
	t      *testing.T
	rand   *rand.Rand
	order  order
	model  *model
	counts map[string]int
}

func TestKill(t *testing.T) {
	counts := map[string]int{}
	kills := 0
	for seed := range seeds(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			againWith(t, seed)
			f := newKillFile(t, seed, counts)
			for round := range killRounds {
				f.round(round)
				kills++
			}
			// What a slow or fast machine has left out.
			for extra := 0; extra < 3*killRounds && missing(counts, killMinimums) != ""; extra++ {
				f.round(extra)
				kills++
			}
		})
	}
	t.Logf("%d kills: %v", kills, counts)
	for what, least := range killMinimums {
		if counts[what] < least {
			t.Errorf("%s: %d kills, want %d at least", what, counts[what], least)
		}
	}
}

// killAtMinimums are the same for TestKillAtCall.
var killAtMinimums = map[string]int{
	"a commit was in flight":                20,
	"an unacknowledged commit is there":     3,
	"an unacknowledged commit is not there": 10,
	"during an open":                        2,
	"bbolt finds an older state":            5,
	"bbolt finds the newest state":          10,
	"with StrictCompat":                     4,
	"commits written together":              2,
	"during a vacuum":                       3,
}

// TestKillAtCall has a process kill itself before and behind each of its first
// calls that change the file: the moments that are too short to be hit from
// outside. Each process goes on with the file of the one before.
func TestKillAtCall(t *testing.T) {
	const calls = 20
	counts := map[string]int{}
	for seed := range seeds(t, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			againWith(t, seed)
			f := newKillFile(t, seed, counts)
			for at := 0; at < 2*calls || at < 8*calls && missing(counts, killAtMinimums) != ""; at++ {
				f.order.KillAt = at + 1
				f.round(0)
			}
		})
	}
	t.Log(counts)
	for what, least := range killAtMinimums {
		if counts[what] < least {
			t.Errorf("%s: %d kills, want %d at least", what, counts[what], least)
		}
	}
}

func newKillFile(t *testing.T, seed uint64, counts map[string]int) *killFile {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 0))
	f := &killFile{t: t, rand: r, counts: counts}
	f.order = order{
		Role: "commit", Path: filepath.Join(dir, "db"), History: seed, Large: 200 << 10,
		Options: openOptions{PageSize: []int{1024, 4096, 4096, 16384}[r.IntN(4)]},
	}
	f.model = newModel(history{seed: f.order.History, large: f.order.Large})
	return f
}

// missing is something of which there was not enough yet.
func missing(counts, minimums map[string]int) string {
	for what, least := range minimums {
		if counts[what] < least {
			return what
		}
	}
	return ""
}

// target says when a process is killed: some time after it has said what for
// the count-th time.
type target struct {
	what  string
	count int
}

func (f *killFile) target(round int) target {
	switch round % 7 {
	case 1:
		return target{saysClosing, 1}
	case 3:
		return target{saysCompacting, 1}
	case 5:
		return target{saysOpening, 1 + f.rand.IntN(2)}
	case 2:
		return target{[]string{saysSettled, saysSynced}[f.rand.IntN(2)], 1}
	}
	return target{saysBegun, 1 + f.rand.IntN(60)}
}

// pace is how long the commits of a process take, as its listener sees them.
type pace struct {
	begun   time.Time
	typical time.Duration
}

func (p *pace) hear(what string) {
	switch what {
	case saysBegun:
		p.begun = time.Now()
	case saysDone:
		p.typical = (3*p.typical + time.Since(p.begun)) / 4
	}
}

// delay is how long after the target a process is killed: at some moment within
// a commit, mostly.
func (p *pace) delay(r *rand.Rand) time.Duration {
	return time.Duration(float64(p.typical) * 1.2 * r.Float64())
}

// heard is what a process said before its end.
type heard struct {
	done, begun uint64 // highest numbers of commits
	// floor is the oldest state that bbolt may find. It finds each commit of a
	// session that is exact; else all that was done before a commit began that is
	// done too, since that one has brought a flush of its own.
	floor      uint64
	before     map[uint64]uint64 // of a commit: the newest that was done when it began
	exact      bool
	strict     bool   // because of StrictCompat
	syncing    uint64 // done when the last Sync began
	writers    uint64
	group      uint64 // largest
	last       string
	rolledBack bool
	settled    bool // so was the newest state, when it was killed
	vacuuming  bool
	shorter    bool // a vacuum has made the file
	fault      string
}

func (h *heard) line(line string) (what string) {
	var n uint64
	if _, err := fmt.Sscanf(line, "%s %d", &what, &n); err != nil {
		h.fault = line
	}
	switch what {
	case saysOpening: // what was open before was closed
		h.exact, h.strict, h.floor = n > 0, n == 1, h.done
	case saysDone:
		h.done, h.settled = max(h.done, n), false
		if h.exact {
			h.floor = max(h.floor, n)
		}
		h.floor = max(h.floor, h.before[n])
	case saysBegun:
		h.begun, h.settled = max(h.begun, n), false
		h.before[n] = h.done
	case saysRolledBack:
		h.rolledBack = true
	case saysSyncing:
		h.syncing = h.done
	case saysSynced:
		h.floor = max(h.floor, h.syncing)
	case saysSettled:
		h.floor, h.settled = h.done, true
	case saysVacuuming, saysVacuumed:
		h.vacuuming, h.shorter = what == saysVacuuming, h.shorter || n > 0
	case saysWriters:
		h.writers = n
	case saysGroup:
		h.group = max(h.group, n)
	}
	h.last = what
	return what
}

// round starts a process, kills it and verifies the file.
func (f *killFile) round(round int) {
	o := f.order
	o.Engine = "holdfast"
	if round%7 == 6 {
		o.Engine = "bbolt"
	}
	o.Seed = f.rand.Uint64()
	if round%5 == 0 { // so that the file grows
		o.Fill = 32 << 10
	}
	f.model.fill = o.Fill
	before := fileSize(o.Path)
	h, err := f.kill(o, f.target(round))
	if err != nil {
		f.t.Fatalf("round %d, %s: %v", round, o.Engine, err)
	}
	f.count(o, h, before)
	if err := f.verify(h); err != nil {
		f.t.Fatalf("round %d, %s killed after %q, commits acknowledged up to %d, for bbolt up to %d, begun up to %d, page size %d: %v",
			round, o.Engine, h.last, h.done, h.floor, h.begun, o.Options.PageSize, err)
	}
	if round%4 == 2 {
		f.counts["bbolt committed between"]++
		if err := f.commitSome("bbolt"); err != nil {
			f.t.Fatalf("round %d: bbolt commits: %v", round, err)
		}
	}
}

// kill runs a process until the target and some time longer.
func (f *killFile) kill(o order, at target) (heard, error) {
	c, err := start(o)
	if err != nil {
		return heard{}, err
	}
	// For want of the target, for example where commits take very long. It is
	// no verdict: whenever the kill comes, the file must be right.
	patience := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer patience.Stop()
	h := heard{done: f.model.number, begun: f.model.number, floor: f.model.number, before: map[uint64]uint64{}}
	p := pace{typical: 300 * time.Microsecond}
	for in := bufio.NewScanner(c.out); in.Scan(); {
		what := h.line(in.Text())
		p.hear(what)
		if what != at.what || at.count == 0 || o.KillAt > 0 {
			continue
		}
		if at.count--; at.count == 0 {
			for end := time.Now().Add(p.delay(f.rand)); time.Now().Before(end); {
				// A timer is not that exact.
			}
			_ = c.cmd.Process.Kill()
		}
	}
	if err := c.wait(); err != nil {
		return h, err
	}
	if h.fault != "" {
		return h, fmt.Errorf("the process stopped by itself: %s", h.fault)
	}
	return h, nil
}

func (f *killFile) count(o order, h heard, before int64) {
	add := func(what string, seen bool) {
		if seen {
			f.counts[what]++
		}
	}
	add("a commit was in flight", h.begun > h.done)
	add("during a close", h.last == saysClosing)
	add("during an open", h.last == saysOpening)
	add("during a compaction", h.last == saysCompacting)
	add("a rollback before", h.rolledBack)
	add("the file grew", fileSize(o.Path) > before)
	add("of bbolt", o.Engine == "bbolt")
	add("with StrictCompat", h.strict)
	add("settled", h.settled)
	add("64 writers", h.writers == 64)
	add("during a vacuum", h.vacuuming)
	add("a vacuum before made the file shorter", h.shorter)
	add("commits written together", h.group > 1)
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
