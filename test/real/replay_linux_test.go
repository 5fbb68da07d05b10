package real

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/test/soak"
	"holdfast/test/vm"
)

// atOnce is how many disks a machine verifies.
const atOnce = 16

// recording is what the disk of a machine was given, and what was said meanwhile.
type recording struct {
	*cutDisk
	before string // the disk as it was when it began
	log    *vm.Log
}

// record has a machine commit on a disk whose writes are recorded.
func record(t *testing.T, fs fileSystem, seed uint64, counts map[string]int) *recording {
	t.Helper()
	d := newCutDisk(t, fs, os.Args[0], seed, counts)
	d.files = d.files[:2] // with NoSync nothing is promised
	r := &recording{cutDisk: d, before: d.image + ".before"}
	copyDisk(t, r.before, d.image)
	logDisk := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(logDisk, nil, 0o600))
	must(t, os.Truncate(logDisk, 2<<30))
	c := newMachine(t, d.program)
	c.Modules, c.Programs = append(c.Modules, "dm-log-writes"), append(c.Programs, "dmsetup")
	c.Disks = []string{d.image, logDisk}
	c.Command = `dmsetup() { /programs/dmsetup --noudevsync --noudevrules "$@"; }
dmsetup create recording --table "0 $(cat /sys/block/vda/size) log-writes /dev/vda /dev/vdb" || exit 9
` + fs.mountScript("/dev/dm-0")
	for _, f := range d.files {
		o := d.fs.allows(f.nextOrder(d.rand, false))
		o.Sessions, o.Recorder = 2, "recording"
		c.Command += d.script(o)
	}
	c.Command += "wait\numount /mnt && dmsetup remove recording\n"
	var strange []string
	err := vm.Run(t.Context(), c, func(line string) {
		if !d.hear(line) {
			strange = append(strange, line)
		}
	})
	if len(strange) > 0 || err != nil {
		t.Fatalf("the machine said:\n%s\nand ended with %v", strings.Join(strange[:min(len(strange), 60)], "\n"), err)
	}
	r.log, err = vm.OpenLog(logDisk)
	must(t, err)
	t.Cleanup(func() { r.log.Close() })
	return r
}

// copyDisk copies an image without its holes.
func copyDisk(t *testing.T, to, from string) {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

// cutPoint is an entry of the log after which the power is cut.
type cutPoint struct {
	at   int
	some bool // of what was not flushed some is there
}

// points chooses so many: half of them are flushes, each once, and nothing more is there; the
// others lie anywhere, and some of the writes since the last flush are. No more are chosen
// than twice as many as there are flushes.
func (r *recording) points(n int) (list []cutPoint) {
	flushes := r.log.Flushes()
	r.rand.Shuffle(len(flushes), func(i, j int) { flushes[i], flushes[j] = flushes[j], flushes[i] })
	for _, at := range flushes[:min(n/2, len(flushes))] {
		list = append(list, cutPoint{at, false}, cutPoint{r.rand.IntN(len(r.log.Entries)), true})
	}
	return list
}

// at goes back to what was known when the power is cut there.
func (r *recording) knownAt(at int) {
	for _, f := range r.files {
		f.verifiedAt(0)
	}
	counts := r.counts
	r.counts = map[string]int{}
	for _, e := range r.log.Entries[:at+1] {
		if e.Mark != "" && !r.hear(strings.ReplaceAll(e.Mark, "/", " ")) {
			r.t.Fatalf("a mark says %q", e.Mark)
		}
	}
	r.counts = counts
}

// verify has a machine verify the disks that were left at some points.
func (r *recording) verify(points []cutPoint) error {
	c := newMachine(r.t, r.program)
	c.Programs = append(c.Programs, "btrfs")
	orders := map[string]order{}
	for i, p := range points {
		image := filepath.Join(c.Dir, fmt.Sprintf("disk%d", i))
		copyDisk(r.t, image, r.before)
		random := rand.New(rand.NewPCG(r.rand.Uint64(), 5))
		if !p.some {
			random = nil
		}
		must(r.t, r.log.Replay(image, p.at, r.fs.unit, random))
		c.Disks = append(c.Disks, image)
		device := "/dev/vd" + string(rune('a'+i))
		if r.fs.kind == "btrfs" { // or it takes all of them for one
			c.Command += "/programs/btrfs device scan --forget\n"
		}
		c.Command += r.fs.mountScript(device)
		r.knownAt(p.at)
		for _, f := range r.files {
			o := f.nextOrder(r.rand, true)
			o.Prefix = fmt.Sprintf("%d/%s ", i, f.name)
			orders[strings.TrimSpace(o.Prefix)] = o
			c.Command += r.script(o)
		}
		c.Command += "wait\numount /mnt || exit 8\n"
	}
	var strange []string
	err := vm.Run(r.t.Context(), c, func(line string) {
		name, rest, _ := strings.Cut(line, " ")
		switch what, _, _ := strings.Cut(rest, " "); what {
		case saysVerified:
			delete(orders, name)
		case saysCounted:
			r.counts[strings.TrimSuffix(strings.TrimPrefix(rest, saysCounted+" "), ": 1")]++
		default:
			strange = append(strange, line)
		}
	})
	for name, o := range orders {
		err = errors.Join(err, fmt.Errorf("%s was not verified: %+v", name, o))
	}
	if len(strange) > 0 {
		err = errors.Join(err, fmt.Errorf("points %v: the machine said:\n%s", points, strings.Join(strange[:min(len(strange), 60)], "\n")))
	}
	return err
}

// TestMachineReplay records what a machine's disk is given while files on it are
// committed to, and cuts the power at flushes and anywhere between, where the disk may
// have any part of what it was not told to flush.
func TestMachineReplay(t *testing.T) {
	for _, fs := range fileSystems {
		if fs.fsck { // without a journal a torn block of the file system itself may be lost
			continue
		}
		t.Run(fs.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 1) {
				againWith(t, seed)
				counts := map[string]int{}
				r := record(t, fs, seed, counts)
				const few = 10
				n, enough := few, soak.Duration(t)
				if enough > 0 { // every flush, if there is time
					n = 2 * len(r.log.Flushes())
				}
				began := time.Now()
				for points := range slices.Chunk(r.points(n), atOnce) {
					if counts["points"] >= few && time.Since(began) > enough {
						break
					}
					slices.SortFunc(points, func(a, b cutPoint) int { return a.at - b.at })
					must(t, r.verify(points))
					counts["points"] += len(points)
				}
				t.Logf("%s: %d entries, %d flushes: %v", fs.name, len(r.log.Entries), len(r.log.Flushes()), counts)
				if len(r.log.Flushes()) < 50 || counts["points"] < few {
					t.Error("that is too little")
				}
			}
		})
	}
}
