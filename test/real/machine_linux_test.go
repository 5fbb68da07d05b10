package real

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/test/mutants"
	"holdfast/test/soak"
	"holdfast/test/vm"
)

// Tests in virtual machines are named TestMachine..., so that scripts/test can run
// them in a phase of their own. Their machines run this test program.

// newMachine is what all machines have. Missing parts skip the test, unless
// scripts/test has seen to it that they are there.
func newMachine(t *testing.T, program string) vm.Config {
	t.Helper()
	k, err := vm.Find("../..")
	if err != nil {
		if os.Getenv("HOLDFAST_VM_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return vm.Config{
		Kernel: k, Dir: t.TempDir(), Limit: 5 * time.Minute, MemoryMiB: 1024,
		Programs: []string{program}, Modules: []string{"xfs", "btrfs"},
	}
}

// fileSystem is one on which the power is cut.
type fileSystem struct {
	name      string
	kind      string
	mebibytes int64
	options   []string // of mkfs
	fsck      bool     // it needs one after a cut
	holdfast  bool     // stock bbolt loses commits there: Holdfast alone writes
	unit      int64    // bytes that a disk must write as a whole, or not
}

var fileSystems = []fileSystem{
	{name: "ext4", kind: "ext4", mebibytes: 64, options: []string{"-F"}, unit: 512},
	{
		name: "ext4 without journal", kind: "ext4", mebibytes: 256, options: []string{"-F", "-O", "^has_journal"},
		fsck: true, holdfast: true, unit: 4096,
	},
	{name: "xfs", kind: "xfs", mebibytes: 320, unit: 4096},
	{name: "btrfs", kind: "btrfs", mebibytes: 256, unit: 512},
}

// newImage makes a disk with the file system.
func (fs fileSystem) newImage(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk")
	f, err := os.Create(name)
	must(t, err)
	must(t, f.Truncate(fs.mebibytes<<20))
	must(t, f.Close())
	args := slices.Concat([]string{"-q"}, fs.options, []string{name})
	if out, err := exec.Command("mkfs."+fs.kind, args...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s %v: %v: %s", fs.kind, args, err, out)
	}
	return name
}

// errTorn is a file system without a journal that a cut has left with a file whose list of blocks was written in part: e2fsck
// takes blocks from the file, whatever was flushed before. One cut in a hundred does that.
var errTorn = errors.New("e2fsck has taken blocks from a file")

// takesBlocks matches what e2fsck says then; of the name of a file that was just made or removed it says something else.
var takesBlocks = regexp.MustCompile(`(?m)^Inode \d+\b.*\n?(?:\t.*\n)?.*Clear(?: inode)?\? yes`)

// mend does what has to be done before the file system is mounted after a cut. errTorn: nothing is to be expected of it.
func (fs fileSystem) mend(t *testing.T, image string) error {
	t.Helper()
	if !fs.fsck {
		return nil
	}
	out, err := exec.Command("e2fsck", "-fy", image).CombinedOutput()
	if code := exitCode(err); code < 0 || code > 2 { // 1, 2: mended
		t.Fatalf("e2fsck: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("e2fsck said: %s", out)
		}
	})
	if takesBlocks.Match(out) {
		return errTorn
	}
	return nil
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return -1
}

// allows is the order with an engine whose commits last there.
func (fs fileSystem) allows(o order) order {
	if fs.holdfast {
		o.Engine = "holdfast"
	}
	return o
}

// mountScript mounts a device on /mnt in a machine.
func (fs fileSystem) mountScript(device string) string {
	return fmt.Sprintf("mount -t %s %s /mnt || exit 9\n", fs.kind, device)
}

// cutDisk is a disk whose machine is cut, with a file for each mode.
type cutDisk struct {
	t       *testing.T
	rand    *rand.Rand
	fs      fileSystem
	image   string
	program string
	mutant  string // that it has
	files   []*cutFile
	counts  map[string]int

	// mustCommit keeps the power on until a commit of the file in mode full was acknowledged.
	mustCommit bool
}

// cutFile is a file on it, and what is known of it.
type cutFile struct {
	name  string
	order order
	heard heard
	ticks []uint64 // what was done at each
	rests bool
	// kept is the newest commit that Sync has returned after.
	kept     uint64
	verified bool
}

// killFloor are the numbers that Holdfast and bbolt must find at least.
func (f *cutFile) floors() (done, floor uint64, anything bool) {
	switch f.order.Mode {
	case modePeriodic:
		at := func(ticks int) uint64 {
			if len(f.ticks) < ticks {
				return f.heard.floor
			}
			return max(f.heard.floor, f.ticks[len(f.ticks)-ticks])
		}
		return at(ticksUntilFlushed), at(2 * ticksUntilFlushed), false
	case modeNone:
		return f.kept, f.kept, !f.rests
	}
	return f.heard.done, f.heard.floor, false
}

// line takes in what was said of a file.
func (f *cutFile) line(line string) {
	if f.order.Mode == modePeriodic { // a commit alone brings nothing to the disk
		defer func(floor uint64) {
			if !strings.HasPrefix(line, saysSynced) && !strings.HasPrefix(line, saysOpening) {
				f.heard.floor = floor
			}
		}(f.heard.floor)
	}
	floor, settled := f.heard.floor, strings.HasPrefix(line, saysSettled)
	f.heard.line(line)
	if settled { // it was written, and is not flushed yet
		f.heard.floor = floor
	}
	switch f.heard.last {
	case saysTick:
		f.ticks = append(f.ticks, f.heard.done)
	case saysRests:
		f.rests, f.kept = true, f.heard.done
	case saysGoesOn:
		f.rests = false
	}
}

// verifiedAt makes what was found the beginning of what is known.
func (f *cutFile) verifiedAt(n uint64) {
	f.heard = heard{done: n, begun: n, floor: n, before: map[uint64]uint64{}}
	f.ticks, f.verified, f.rests, f.kept = nil, true, true, n
}

// newCutDisk makes one.
func newCutDisk(t *testing.T, fs fileSystem, program string, seed uint64, counts map[string]int) *cutDisk {
	d := &cutDisk{
		t: t, rand: rand.New(rand.NewPCG(seed, 4)), fs: fs, image: fs.newImage(t), counts: counts,
		program: program, mutant: os.Getenv(mutants.Variable),
	}
	for _, mode := range []string{modeFull, modePeriodic, modeNone} {
		f := &cutFile{name: mode, order: order{
			Role: "power", Path: "/mnt/" + mode, Engine: "holdfast", Mode: mode, History: d.rand.Uint64(), Large: 40 << 10,
			Options: openOptions{PageSize: []int{1024, 4096, 4096, 16384}[d.rand.IntN(4)]},
		}}
		f.verifiedAt(0)
		d.files = append(d.files, f)
	}
	return d
}

// boot starts the machine: it verifies all files and, unless it is the last time,
// commits until it is cut.
func (d *cutDisk) boot(last bool) error {
	if err := d.fs.mend(d.t, d.image); err != nil {
		return err
	}
	c := newMachine(d.t, d.program)
	c.Disks = []string{d.image}
	c.Command = d.fs.mountScript("/dev/vda")
	for _, f := range d.files {
		c.Command += d.script(d.fs.allows(f.nextOrder(d.rand, last)))
		f.verified = false
	}
	c.Command += "wait\numount /mnt\n"
	m, err := vm.Start(d.t.Context(), c)
	if err != nil {
		return err
	}
	return errors.Join(d.listen(m, last), m.Wait(), d.allJudged())
}

// nextOrder is for a process that verifies the file and commits, unless it is to stop.
func (f *cutFile) nextOrder(r *rand.Rand, stop bool) order {
	o := f.order
	o.Done, o.Floor, o.Anything = f.floors()
	o.Seed, o.Stop, o.Prefix = r.Uint64(), stop, f.name+" "
	if o.Mode == modeFull && r.IntN(4) == 0 {
		o.Engine = "bbolt"
	}
	return o
}

// script runs an order in a machine, in the background.
func (d *cutDisk) script(o order) string {
	text, err := json.Marshal(o)
	must(d.t, err)
	return fmt.Sprintf("%s='%s' %s='%s' /programs/%s </dev/ttyS1 &\n", mutants.Variable, d.mutant, roleVariable, text, filepath.Base(d.program))
}

func (d *cutDisk) allJudged() error {
	for _, f := range d.files {
		if !f.verified {
			return fmt.Errorf("%s: the file was not verified", f.name)
		}
	}
	return nil
}

// listen hears what the machine says, and cuts it some time after the verification.
func (d *cutDisk) listen(m *vm.Machine, last bool) error {
	// So many lines come before the cut: it has done something, however slow it is.
	left := 1 + d.rand.IntN(30)
	if d.rand.IntN(3) > 0 {
		left = d.rand.IntN(600)
	}
	var strange []string
	for line, ok := m.Line(); ok; line, ok = m.Line() {
		if !d.hear(line) {
			if strange = append(strange, line); len(strange) == 1 {
				// The others would commit on until the machine's time is over.
				time.AfterFunc(2*time.Second, m.Cut)
			}
		}
		if last || d.allJudged() != nil {
			continue
		}
		if left--; left <= 0 && (!d.mustCommit || d.counts["acknowledged full"]+len(d.files[0].heard.before) > 0) {
			time.Sleep(time.Duration(d.rand.IntN(20)) * time.Millisecond)
			m.Cut()
		}
	}
	if len(strange) > 0 {
		return fmt.Errorf("the machine said:\n%s", strings.Join(strange[:min(len(strange), 60)], "\n"))
	}
	return nil
}

// hear takes in what was said in a machine, unless it is a fault, or makes no sense.
func (d *cutDisk) hear(line string) bool {
	name, rest, _ := strings.Cut(line, " ")
	i := slices.IndexFunc(d.files, func(f *cutFile) bool { return f.name == name })
	if i < 0 {
		return false
	}
	f := d.files[i]
	what, number, _ := strings.Cut(rest, " ")
	switch what {
	case saysCounted:
		d.counts[strings.TrimSuffix(number, ": 1")]++
	case saysBroken:
		d.counts["without flushes the file was damaged"]++
	case saysVerified:
		n, err := strconv.ParseUint(number, 10, 64)
		f.verifiedAt(n)
		return err == nil
	default:
		f.line(rest)
		return f.heard.fault == "" && what != "fault"
	}
	return true
}

// count counts what was going on at a cut.
func (d *cutDisk) count() {
	d.counts["cuts"]++
	for _, f := range d.files {
		d.counts["acknowledged "+f.name] += len(f.heard.before)
		if f.heard.begun > f.heard.done {
			d.counts["a commit was in flight "+f.name]++
		}
		done, _, anything := f.floors()
		if f.order.Mode == modePeriodic && done > f.heard.floor {
			d.counts["periodic commits had to be there"]++
		}
		if f.order.Mode == modeNone && !anything {
			d.counts["nothing was committed since Sync"]++
		}
	}
}

// A machine with an engine that acknowledges commits before they are flushed is
// found out: otherwise nothing was cut.
func TestMachineMissesFlush(t *testing.T) {
	t.Parallel()
	newMachine(t, os.Args[0])
	program := filepath.Join(t.TempDir(), "mutants.test")
	overlay, err := mutants.Overlay("../..", t.TempDir())
	must(t, err)
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", program, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	for seed := range uint64(6) {
		d := newCutDisk(t, fileSystems[seed%2], program, seed, map[string]int{})
		d.mutant, d.files = "no-flush-after-meta", d.files[:1]
		must(t, d.boot(false))
		switch err := d.boot(true); {
		case err == nil || errors.Is(err, errTorn):
		default:
			t.Logf("found at cut %d: %v", seed, err)
			if !strings.Contains(err.Error(), "acknowledged") {
				t.Errorf("by other means than what was acknowledged")
			}
			return
		}
	}
	t.Error("six cuts do not find it")
}

// TestMachinePowerCut cuts the power of machines that commit, again and again on
// one disk. What was acknowledged must be there, as the mode promises it. On ext4 without a journal it failed where e2fsck
// had taken the first blocks of a file: such a disk is given up.
func TestMachinePowerCut(t *testing.T) {
	cuts := 2
	if soak.Duration(t) > 0 {
		cuts = 6
	}
	for _, fs := range fileSystems {
		t.Run(fs.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 1) {
				againWith(t, seed)
				counts, err := cutPower(t, fs, seed, cuts)
				for other := seed; errors.Is(err, errTorn) && other < seed+8; {
					other++ // at which the power is cut at other times
					t.Logf("%v; once more with HOLDFAST_SEED=%d", err, other)
					counts, err = cutPower(t, fs, other, cuts)
				}
				must(t, err)
				t.Logf("%s: %v", fs.name, counts)
				if counts["cuts"] != cuts || counts["acknowledged full"] == 0 {
					t.Errorf("that is too little")
				}
			}
		})
	}
}

// cutPower cuts the power of machines on a new disk, and says what was seen.
func cutPower(t *testing.T, fs fileSystem, seed uint64, cuts int) (counts map[string]int, err error) {
	counts = map[string]int{}
	d := newCutDisk(t, fs, os.Args[0], seed, counts)
	for i := range cuts {
		d.mustCommit = i == cuts-1
		if err := d.boot(false); err != nil {
			return nil, err
		}
		d.count()
	}
	return counts, d.boot(true)
}

// TestTakesBlocks has what e2fsck said when the test failed, and when all was well.
func TestTakesBlocks(t *testing.T) {
	for said, want := range map[string]bool{
		"Inode 15, end of extent exceeds allowed value\n\t(logical block 692, physical block 25345, len 200)\nClear? yes\n":    true,
		"x\nInode 13 has an invalid extent node (blk 8964, lblk 0)\nClear? yes\n\nInode 13":                                    true,
		"Inode 13 has a corrupt extent header.  Clear inode? yes\n":                                                            true,
		"Inode 15, i_blocks is 1966, should be 1386.  Fix? yes\n\nEntry 'x' in / (2) has deleted/unused inode 16.  Clear? yes": false,
		"Inode 15, i_blocks is 1966, should be 1386.  Fix? yes\n\nFree blocks count wrong.\nFix? yes\n":                        false,
	} {
		if got := takesBlocks.MatchString(said); got != want {
			t.Errorf("%v of %q", got, said)
		}
	}
}
