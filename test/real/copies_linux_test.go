package real

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/test/vm"
)

// What became of a copy of a file in use.
const (
	copyRight   = "right"   // what some commit left
	copyRefused = "refused" // by Open
	copyDamaged = "damaged" // an error of reading or checking
	copyUnsound = "unsound" // other content than any commit left, which only a check tells
	copyWrong   = "wrong"   // and not even that
)

func init() {
	roles["copies"] = runCopies
}

// copySight is what an opening of a copy gave.
type copySight struct {
	name, how, outcome string
	sight
	err, checked error
}

// runCopies opens the copies in a directory, for reading and for writing, and says of
// each what became of it.
func runCopies(o order) error {
	dir := o.Path
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sights []copySight
	for _, file := range files {
		for _, readOnly := range []bool{true, false} {
			o.Path = filepath.Join(dir, file.Name())
			s := lookAtTorn(o, readOnly)
			s.name, s.how = file.Name(), map[bool]string{true: "reading", false: "writing"}[readOnly]
			sights = append(sights, s)
		}
	}
	// The model goes forward only.
	slices.SortFunc(sights, func(a, b copySight) int { return int(min(a.number, 1<<30)) - int(min(b.number, 1<<30)) })
	m := newModel(history{seed: o.History, large: o.Large})
	for _, s := range sights {
		if s.outcome == copyRight {
			if s.number > 1<<20 {
				s.outcome, s.err = copyWrong, errors.New("there was no such commit")
			} else if s.err = errors.Join(m.forward(s.number), compare(s.lines, m.lines())); s.err != nil {
				s.outcome = copyWrong
			}
			if s.outcome == copyWrong && s.checked != nil {
				s.outcome = copyUnsound
			}
		}
		fmt.Printf("copy %s %s %s %d %q\n", s.name, s.how, s.outcome, s.number, fmt.Sprint(s.err))
	}
	return nil
}

// lookAtTorn opens a copy and reads all of it, and once more after it was opened for writing.
func lookAtTorn(o order, readOnly bool) (s copySight) {
	options := openOptions{PageSize: o.Options.PageSize, ReadOnly: readOnly, NoSync: true}
	db, err := open("holdfast", o.Path, options)
	if err != nil {
		return copySight{outcome: copyRefused, err: err}
	}
	err = db.view(func(tx transaction) (err error) {
		s.number = tx.number()
		s.lines, err = tx.lines()
		return err
	})
	if err == nil { // apart: what was read without an error must be right whatever the check says
		s.checked = db.view(func(tx transaction) error { return tx.check() })
	}
	s.outcome = copyRight
	if err != nil {
		s.outcome, s.err = copyDamaged, err
	}
	if err := db.close(); err != nil && s.outcome == copyRight {
		s.outcome, s.err = copyDamaged, err
	}
	return s
}

// copyRounds is how often each tool copies the file.
const copyRounds = 4

// copyScript copies /mnt/full to /mnt/copies with the tools that people use, while it
// is written. What begins with "copying" says the name of a copy that is next.
const copyScript = `
mkdir -p /mnt/copies /snap
while [ "$(stat -c %%s /mnt/full 2>/dev/null || echo 0)" -lt 65536 ]; do sleep 0.2; done
sleep 1
copying() { echo "copying $1 0"; }
# told: the tool has said itself that it did not copy, as of a file that has become shorter.
told() { rm -f /mnt/copies/$1; echo "copy $1 reading refused 0"; echo "copy $1 writing refused 0"; }
# slow copies in pieces, as over a network, and parts the last piece first, as what copies several at once may.
slow() {
	piece=0
	while [ $((piece * 65536)) -lt $(stat -c %%s $1) ]; do
		piece $1 $2
		piece=$((piece + 1))
	done
}
parts() {
	piece=$((($(stat -c %%s $1) + 65535) / 65536))
	while [ $piece -gt 0 ]; do
		piece=$((piece - 1))
		piece $1 $2
	done
}
piece() {
	dd if=$1 of=$2 bs=64k count=1 skip=$piece seek=$piece conv=notrunc 2>/dev/null || exit 4
	sleep 0.1
}
i=0
while [ $i -lt %d ]; do
	copying cp.$i; /programs/cp --reflink=never /mnt/full /mnt/copies/cp.$i || exit 4
	copying slow.$i; slow /mnt/full /mnt/copies/slow.$i
	copying parts.$i; parts /mnt/full /mnt/copies/parts.$i
	copying tar.$i; if tar -C /mnt -cf /tmp/tar full 2>/dev/null; then tar -C /tmp -xf /tmp/tar && mv /tmp/full /mnt/copies/tar.$i || exit 4; else told tar.$i; fi
	copying rsync.$i; if /programs/rsync --inplace --no-whole-file --ignore-times /mnt/full /mnt/rsync 2>/dev/null; then /programs/cp /mnt/rsync /mnt/copies/rsync.$i || exit 4; else told rsync.$i; fi
	copying reflink.$i; /programs/cp --reflink=always /mnt/full /mnt/copies/reflink.$i || exit 4
	%s
	i=$((i + 1))
done
`

// snapshotScript copies the file from a snapshot of the device, which is taken without
// the file system's knowledge.
const snapshotScript = `copying snapshot.$i
	dmsetup suspend --noflush --nolockfs base && dmsetup create snap --table "0 $size snapshot /dev/vda /dev/vdb N 8" && dmsetup resume base || exit 5
	mount -t xfs -o nouuid /dev/dm-1 /snap && cp /snap/full /mnt/copies/snapshot.$i && umount /snap && dmsetup remove snap || exit 6`

// TestMachineCopies copies a file that is being written, by cp, slowly, in parts, by tar, rsync,
// reflinks and snapshots of its device. A copy of an instant is right, and has all that was
// acknowledged. Another is what a commit left, or is refused, or damaged with an error, but
// for a few in which older pages are of different moments: see docs/design.md. Those are counted,
// and may not become more.
func TestMachineCopies(t *testing.T) {
	for _, fs := range []fileSystem{fileSystems[2], fileSystems[3]} {
		t.Run(fs.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 1) {
				againWith(t, seed)
				(&copied{t: t, fs: fs, rand: rand.New(rand.NewPCG(seed, 7))}).run(seed)
			}
		})
	}
}

// copied is a run of TestMachineCopies.
type copied struct {
	t      *testing.T
	fs     fileSystem
	rand   *rand.Rand
	before map[string]uint64 // of a copy: what was acknowledged when it began
	counts map[string]int
	wrong  int
}

func (r *copied) run(seed uint64) {
	t := r.t
	r.before, r.counts = map[string]uint64{}, map[string]int{}
	d := newCutDisk(t, r.fs, os.Args[0], seed, map[string]int{})
	d.files = d.files[:1]
	f := d.files[0]
	c := newMachine(t, d.program)
	c.Programs = append(c.Programs, "cp", "rsync", "dmsetup")
	c.Modules = append(c.Modules, "dm-snapshot")
	c.Disks = []string{d.image, fileSystem{name: "none", kind: "ext4", mebibytes: 64, options: []string{"-F"}}.newImage(t)}
	snapshots := ""
	c.Command = "dmsetup() { /programs/dmsetup --noudevsync --noudevrules \"$@\"; }\nsize=$(cat /sys/block/vda/size)\n"
	if r.fs.kind == "xfs" { // btrfs takes two devices with one file system for one
		snapshots = snapshotScript
		c.Command += "dmsetup create base --table \"0 $size snapshot-origin /dev/vda\" || exit 3\n" + r.fs.mountScript("/dev/dm-0")
	} else {
		c.Command += r.fs.mountScript("/dev/vda")
	}
	writing := f.nextOrder(r.rand, false)
	writing.Engine = "holdfast"
	c.Command += d.script(writing) + fmt.Sprintf(copyScript, copyRounds, snapshots) + "kill -9 $!\n"
	verifying := writing
	verifying.Role, verifying.Path, verifying.Prefix = "copies", "/mnt/copies", ""
	c.Command += d.script(verifying) + "wait $!\n"
	var strange []string
	err := vm.Run(t.Context(), c, func(line string) {
		switch word, rest, _ := strings.Cut(line, " "); {
		case word == "copying":
			name, _, _ := strings.Cut(rest, " ")
			r.before[name] = f.heard.done
		case word == "copy":
			r.verify(rest)
		case !d.hear(line):
			strange = append(strange, line)
		}
	})
	if err != nil || len(strange) > 0 {
		t.Fatalf("the machine said:\n%s\nand ended with %v", strings.Join(strange[:min(len(strange), 60)], "\n"), err)
	}
	t.Logf("%s, %d commits: %v", r.fs.name, f.heard.done, r.counts)
	if r.wrong > 0 {
		t.Errorf("%d copies are wrong", r.wrong)
	}
	tools := 6
	if snapshots != "" {
		tools++
	}
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	if sum != 2*tools*copyRounds {
		t.Errorf("%d copies were verified, want %d", sum, 2*tools*copyRounds)
	}
}

// verify takes in what became of a copy.
func (r *copied) verify(line string) {
	var name, how, outcome string
	var number uint64
	if _, err := fmt.Sscanf(line, "%s %s %s %d", &name, &how, &outcome, &number); err != nil {
		r.t.Errorf("%q: %v", line, err)
		return
	}
	tool, _, _ := strings.Cut(name, ".")
	r.counts[tool+" "+outcome]++
	instant := tool == "reflink" || tool == "snapshot"
	// Of a copy that takes its time one state may be lost to another that is not whole; not all.
	least := r.before[name]
	if !instant {
		least = r.before["cp.0"] / 2
	}
	if outcome == copyWrong || outcome == copyUnsound {
		r.wrong++
		r.t.Logf("%d commits were acknowledged when it began: %s", r.before[name], line)
	}
	if instant && outcome != copyRight || outcome == copyRight && number < least {
		r.t.Errorf("%d commits were acknowledged when it began: %s", r.before[name], line)
	}
}
