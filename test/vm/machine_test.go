package vm

import (
	"bufio"
	"slices"
	"strings"
	"testing"
	"time"
)

// A machine boots, has what it was given, and ends with its command.
func TestMachineRuns(t *testing.T) {
	t.Parallel()
	c := newConfig(t)
	c.Modules = []string{"xfs"}
	c.Programs = []string{"dmsetup"}
	c.Disks = []string{newDisk(t, 16, "ext4"), newDisk(t, 1, "")}
	c.Command = `set -e
uname -r
mount /dev/vda /mnt
grep -c xfs /proc/filesystems
/programs/dmsetup --version 2>/dev/null | grep -c Library
cat /sys/block/vdb/size
echo written >/mnt/file
umount /mnt`
	lines, err := run(t, c)
	want := []string{c.Kernel.Version(), "1", "1", "2048"}
	if err != nil || !slices.Equal(lines, want) {
		t.Fatalf("the command said %q, want %q: %v", lines, want, err)
	}
	c.Command = "mount /dev/vda /mnt && cat /mnt/file"
	if lines, err := run(t, c); err != nil || !slices.Equal(lines, []string{"written"}) {
		t.Fatalf("another machine with the disk said %q: %v", lines, err)
	}
}

// Whatever goes wrong in a machine, it ends, and says what it was.
func TestMachineFails(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct {
		name, command, want string
		limit               time.Duration
	}{
		{"exit code", "echo before; exit 3", "exit code 3", 0},
		{"no end", "echo before; while true; do sleep 1; done", "ran for 5s", 5 * time.Second},
		{"panic", "echo before; sync; echo c >/proc/sysrq-trigger", "sysrq triggered crash", 0},
		{"off", "echo before; poweroff -f", "ended before its command", 0},
	} {
		t.Run(bad.name, func(t *testing.T) {
			c := newConfig(t)
			c.Command = bad.command
			if bad.limit > 0 {
				c.Limit = bad.limit
			}
			lines, err := run(t, c)
			if bad.limit > 0 { // which may come before the command
				lines = []string{"before"}
			}
			if err == nil || !strings.Contains(err.Error(), bad.want) || !slices.Equal(lines, []string{"before"}) {
				t.Errorf("it said %q and ended with %v, want %q", lines, err, bad.want)
			}
		})
	}
	c := newConfig(t)
	c.Modules = []string{"nonesuch"}
	if _, err := run(t, c); err == nil || !strings.Contains(err.Error(), "has no module nonesuch") {
		t.Errorf("with a module that is not there: %v", err)
	}
}

// A cut in the middle of a line was once heard as a line: "f", of a machine that was saying "full ...".
func TestHalfALine(t *testing.T) {
	lines := bufio.NewScanner(strings.NewReader("one\r\n\ntwo\nthr"))
	lines.Split(wholeLines)
	var heard []string
	for lines.Scan() {
		heard = append(heard, lines.Text())
	}
	if want := []string{"one", "", "two"}; !slices.Equal(heard, want) || lines.Err() != nil {
		t.Errorf("heard %q, %v, want %q", heard, lines.Err(), want)
	}
}

// A cut takes what is in the memory of the machine, and nothing else: that is what
// the tests of power cuts stand on.
func TestMachineCut(t *testing.T) {
	t.Parallel()
	c := newConfig(t)
	c.Disks = []string{newDisk(t, 16, "ext4")}
	c.Command = `set -e
mount /dev/vda /mnt
echo flushed | dd of=/mnt/a conv=fsync 2>/dev/null
echo kept in memory >/mnt/b
cat /mnt/a /mnt/b
echo now
sleep 1000`
	m, err := Start(t.Context(), c)
	must(t, err)
	var said []string
	for line, ok := m.Line(); ok; line, ok = m.Line() {
		if said = append(said, line); line == "now" {
			m.Cut()
		}
	}
	if err := m.Wait(); err != nil || !slices.Equal(said, []string{"flushed", "kept in memory", "now"}) {
		t.Fatalf("the machine said %q and ended with %v", said, err)
	}
	c.Command = "mount /dev/vda /mnt && cat /mnt/a && if [ -s /mnt/b ]; then cat /mnt/b; fi"
	if lines, err := run(t, c); err != nil || !slices.Equal(lines, []string{"flushed"}) {
		t.Fatalf("after the cut there is %q, want what was flushed: %v", lines, err)
	}
}
