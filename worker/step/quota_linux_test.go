package step

import (
	"strings"
	"testing"

	"holdfast/worker/disk"
)

// TestDiskQuota: a step that may take 10 MiB took 500 by fallocate, until it was looked at. Where the file system has quotas the kernel
// refuses it; TMPDIR says where that is.
func TestDiskQuota(t *testing.T) {
	s := newStand(t, Options{Runtime: Native()})
	if err := disk.HasQuotas(s.root()); err != nil {
		t.Skipf("left out: %v", err)
	}
	step := sh("base", "fallocate -l 100000000 /big; echo $?; test -s /big || echo none")
	step.Limits.Disk = 10 << 20
	if res := s.ok(step); !strings.HasSuffix(string(res.Output), "1\nnone\n") {
		t.Errorf("%s", res.Output)
	}
	full := sh("base", "dd if=/dev/zero of=/big bs=65536; echo done")
	full.Limits.Disk = 1 << 20
	if f := s.fails(full, ErrDisk); !strings.Contains(string(f.Output), "done") {
		t.Errorf("%s", f.Output)
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
