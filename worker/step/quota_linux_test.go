package step

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// TestDiskInodes: a step within its limit of disk took all inodes of the file system with empty files, which take no
// bytes, and every later step failed. (The test failed on a busy machine, where a step had made 97,403 before it was ended:
// steps of the test rest now and then, and there are more inodes.)
func TestDiskInodes(t *testing.T) {
	s := standOn(t, "size=256m,nr_inodes=150k") // where files are made fast
	s.busybox("base")
	files := func(n int) Step {
		step := sh("base", fmt.Sprintf("mkdir /d; i=0; while [ $i -lt %d ]; do : >/d/$i; i=$((i+1)); [ $((i%%500)) != 0 ] || sleep 0.01; done", n))
		step.Limits.Disk = 16 << 20
		return step
	}
	if f := s.fails(files(leastInodes+50), ErrInodes); !errors.Is(f, ErrDisk) || !strings.HasSuffix(f.Error(), " of 10,000") {
		t.Error(f)
	}
	if f := s.fails(files(1<<30), ErrInodes); f.Code != 128+9 {
		t.Errorf("%+v", f)
	}
	_ = s.ok(files(leastInodes - 50))
	wide := files(leastInodes + 50)
	wide.Limits.Disk = 64 << 20 // a fourth of the disk
	_ = s.ok(wide)
}

// TestDiskLimit: the part of the file system's inodes that a limit of disk allows.
func TestDiskLimit(t *testing.T) {
	l := diskLimit{bytes: 1 << 20, inodes: 100}
	for _, c := range []struct {
		bytes, inodes int64
		want          error
	}{{1 << 20, 100, nil}, {1<<20 + 1, 100, ErrDisk}, {1 << 20, 101, ErrInodes}} {
		err := l.exceeded(snapshot.Usage{Size: c.bytes, Inodes: c.inodes}, snapshot.Usage{})
		if !errors.Is(err, c.want) || errors.Is(err, ErrInodes) != (c.want == ErrInodes) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (diskLimit{}).exceeded(snapshot.Usage{Size: 1 << 60, Inodes: 1 << 60}, quotaSlack); err != nil {
		t.Error(err)
	}
}

// TestDiskQuota: a step that may take 10 MiB took 500 by fallocate, until it was looked at. Where the file
// system has quotas the kernel refuses it; TMPDIR says where that is.
func TestDiskQuota(t *testing.T) {
	s := newStand(t, Options{Runtime: Native()})
	if err := disk.HasQuotas(s.root()); err != nil {
		t.Skipf("left out: %v", err)
	}
	step := sh("base", "fallocate -l 100000000 /big; echo $?; rm -f /big")
	step.Limits.Disk = 10 << 20 // of which ext4 lets it have what there was room for
	if res := s.ok(step); !strings.HasSuffix(string(res.Output), "1\n") {
		t.Errorf("%s", res.Output)
	}
	full := sh("base", "dd if=/dev/zero of=/big bs=65536; echo done")
	full.Limits.Disk = 1 << 20
	if f := s.fails(full, ErrDisk); !strings.Contains(string(f.Output), "done") {
		t.Errorf("%s", f.Output)
	}
	empty := sh("base", "mkdir /d; i=0; while [ $i -lt 10100 ]; do true >/d/$i || break; i=$((i+1)); done")
	empty.Limits.Disk = 10 << 20
	if fs, err := disk.Measure(s.root()); err == nil && fs.Inodes > 0 && fs.Share(empty.Limits.Disk) < leastInodes {
		if f := s.fails(empty, ErrInodes); !strings.Contains(string(f.Output), "can't create") { // else it was killed when it was looked at
			t.Errorf("%q: %v", f.Output, f)
		}
	}
	within := sh("base", "dd if=/dev/zero of=/big bs=65536 count=8; echo $?")
	within.Limits.Disk = 1 << 20
	if res := s.ok(within); !strings.HasSuffix(string(res.Output), "0\n") {
		t.Errorf("%s", res.Output)
	}
	// What is made of it is not limited any more.
	on := sh(s.ok(within).Snapshot, "dd if=/dev/zero of=/more bs=65536 count=64; echo $?")
	if res := s.ok(on); !strings.HasSuffix(string(res.Output), "0\n") {
		t.Errorf("%s", res.Output)
	}
	s.clean()
}
