package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/test/vm"
)

// stepTests are the tests of worker/step that run on the machine's kernel: what steps see, what they must
// not do in any of the runtimes, their limits, users, and what is held. Those that are not here compare
// figures (system calls, keys), deny system calls of this kernel, try sources and sockets in ways in which
// kernels do not differ, or kill steps hundreds of times.
var stepTests = []string{
	"TestHostileStep", "TestProgramIsNotOverwritten", "TestProgramCopies", "TestSurroundings", "TestConfined", "TestFailure", "TestCancel",
	"TestLimits", "TestDefaultPids", "TestResourceLimits", "TestTerminalsAndSys", "TestProcIsReadOnly",
	"TestNameFiles", "TestHome", "TestUserNames", "TestUserNamespace", "TestLinkAtTarget", "TestHitIsHeld",
}

// buildStatic builds a program of the module worker, for a machine; args are those of go before the package.
func buildStatic(t *testing.T, name, pkg string, args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", append(args, "-o", program, pkg)...)
	build.Dir = "../../worker"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return program
}

// A root directory on a disk, since steps cannot leave an initial ramdisk, with the hierarchy of cgroups
// that the kernel has. It comes to lie over the ramdisk: in a mere chroot there are no user namespaces.
const stepsRoot = `set -e
mount /dev/vda /mnt
mkdir -p /mnt/tmp /mnt/proc /mnt/sys /mnt/dev /mnt/run
chmod 1777 /mnt/tmp
for d in bin programs lib lib64 usr etc root; do if test -e /$d; then cp -a /$d /mnt/; fi; done
mount -t proc proc /mnt/proc
mount -t sysfs sys /mnt/sys
mount -t devtmpfs dev /mnt/dev
mkdir -p /mnt/dev/pts
mount -t devpts devpts /mnt/dev/pts
mount -t cgroup2 cgroup2 /mnt/sys/fs/cgroup
mount -t tmpfs run /mnt/run
ip link set lo up
export PATH=/programs:/bin:/sbin:/usr/bin:/usr/sbin HOLDFAST_HOSTILE=/programs/hostile
export HOLDFAST_STEP_PROCESSES=200 # of an unprivileged user; thousands take an emulated machine too long
cd /mnt
mount --move . /
`

// No step could be run on an overlay there: its kernel seemed to take "lowerdir+", which it only kept to
// refuse it later.
//
// TestMachineSteps runs steps, hostile ones among them, on a kernel of the oldest Debian that is supported,
// which has cgroups of version 2 alone. Emulated it takes five minutes, and several times that on a machine
// that does much else; make soak runs it.
func TestMachineSteps(t *testing.T) {
	c := newMachine(t, os.Args[0])
	if _, err := exec.LookPath("runc"); err != nil {
		if os.Getenv("HOLDFAST_VM_NEEDED") != "" && os.Geteuid() == 0 { // who could have installed it
			t.Fatal(err)
		}
		t.Skip("left out: the program runc is missing; Debian has it in the package runc")
	}
	tests, hostile := buildStatic(t, "step.test", "./step", "test", "-c"), buildStatic(t, "hostile", "./internal/testing/hostile", "build")
	c.Programs = []string{tests, hostile, "runc"}
	c.Modules = []string{"overlay"}
	c.MemoryMiB, c.Limit = 2048, 24*time.Minute
	c.Disks = []string{fileSystem{name: "ext4", kind: "ext4", mebibytes: 1024, options: []string{"-F"}}.newImage(t)}
	c.Command = fmt.Sprintf("%schroot . /programs/step.test -test.v -test.timeout 22m -test.run '^(%s)$'\n",
		stepsRoot, strings.Join(stepTests, "|"))
	var said, passed, other []string
	err := vm.Run(t.Context(), c, func(line string) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 2 && fields[0] == "---" && fields[1] == "PASS:":
			passed = append(passed, fields[2])
		case len(fields) > 2 && fields[0] == "---":
			other = append(other, line)
		}
		if !strings.Contains(line, "refused:") && !strings.HasPrefix(line, "=== ") {
			said = append(said, line)
		}
	})
	whole := 0
	for _, name := range stepTests {
		if slices.Contains(passed, name) {
			whole++
		} else {
			t.Errorf("%s has not passed", name)
		}
	}
	t.Logf("%s: %d of %d tests passed, with %d parts", c.Kernel.Version(), whole, len(stepTests), len(passed)-whole)
	if err != nil || len(other) > 0 { // what is left out there is not tested
		t.Errorf("%v: %q\n%s", err, other, strings.Join(said, "\n"))
	}
}
