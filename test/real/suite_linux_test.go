package real

import (
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/test/vm"
)

// suitePackages are the packages of module worker whose tests TestMachineSuite runs, in this order; the
// tests of package step are those of TestMachineSteps.
var suitePackages = []string{"disk", "internal/fstree", "internal/confine", "prune", "base", "mount", "snapshot", "snapshot/driver/overlay", "snapshot/driver/btrfs", "snapshot/driver/erofs", "snapshot/driver/copy", "command"}

// suiteSkipped are the tests that TestMachineSuite leaves out, and says so: they need what the machine has
// not, which is GNU cp, perl, util-linux setpriv, zfs-fuse, a registry and the documents.
var suiteSkipped = map[string]string{"snapshot": "^TestPowerFailure$", "internal/confine": "^TestEnds$", "command": "^(TestDocs|TestStepUserRefused$|TestZFS$|TestImageRegistry$|TestImagePullKilled$|TestServeMirrors$|TestExportUser$)"}

// TestMachineSuite runs the other tests of module worker on that kernel: those of the packages that
// HOLDFAST_MACHINE_SUITE names, or "all". Emulated they take the better part of an hour, and some need more
// processors than one to be through in their time.
func TestMachineSuite(t *testing.T) {
	packages := strings.Fields(os.Getenv("HOLDFAST_MACHINE_SUITE"))
	if len(packages) == 0 {
		t.Skip("left out: HOLDFAST_MACHINE_SUITE names packages of module worker, or all")
	}
	if packages[0] == "all" {
		packages = suitePackages
	}
	for _, pkg := range packages {
		t.Run(pkg, func(t *testing.T) {
			c := newMachine(t, os.Args[0])
			program := buildStatic(t, "suite.test", "./"+pkg, "test", "-c")
			c.Programs = []string{program, "mkfs.ext4", "mkfs.btrfs", "mkfs.xfs", "mkfs.erofs", "busybox", "runc", "tar", "chattr", "btrfs"}
			c.Modules = []string{"overlay", "erofs", "loop", "xfs", "btrfs", "fuse"}
			c.MemoryMiB, c.Limit = 3072, 58*time.Minute
			c.Disks = []string{fileSystem{name: "ext4", kind: "ext4", mebibytes: 8192, options: []string{"-F"}}.newImage(t)}
			c.Command = stepsRoot + "chroot . /programs/suite.test -test.v -test.timeout 55m " + os.Getenv("HOLDFAST_MACHINE_FLAGS")
			if skipped := suiteSkipped[pkg]; skipped != "" {
				t.Logf("left out: %s", skipped)
				c.Command += " -test.skip '" + skipped + "'"
			}
			c.Command += "\n"
			counts := map[string]int{}
			var said []string
			err := vm.Run(t.Context(), c, func(line string) {
				if !strings.HasPrefix(line, "=== ") {
					said = append(said, line)
				}
				if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "---" {
					counts[fields[1]]++
					if fields[1] != "PASS:" {
						t.Log(line)
					}
				}
			})
			t.Logf("%s: %v", c.Kernel.Version(), counts)
			if err != nil || counts["PASS:"] == 0 {
				t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
			}
		})
	}
}
