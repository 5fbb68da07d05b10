package step

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"

	"holdfast/worker/internal/seccomp"
)

// Isolations tells what the runtimes isolate on this machine, without running a step: from what the kernel has, from
// what the program runc says of itself, and from what the file system can do where a store with such a driver has its
// root directory, or is to have it.
func Isolations(ctx context.Context, root, driver string) []Isolation {
	return []Isolation{isolationOfNative(root, driver), isolationOfRunc(ctx)}
}

// Words that both have in common.
const (
	saysFilter  = "a filter of system calls (Docker's profile)"
	saysTraps   = "few capabilities and no new ones"
	saysSession = "keys out of reach"
	saysRoot    = "a user namespace: root in a step is root of the machine, without its capabilities"
)

func isolationOfNative(root, driver string) Isolation {
	i := Isolation{Runtime: Native().Name()}
	if i.Err = seccomp.Available(); i.Err != nil {
		return i
	}
	rootless := userns.RunningInUserNS() || os.Geteuid() != 0
	i.namespaces(func(string) bool { return true })
	i.Has = append(i.Has, saysFilter, saysTraps, saysSession)
	if rootless {
		i.Has = append(i.Has, "a user namespace: root in a step is the user who runs it")
		i.Has = append(i.Has, fmt.Sprintf("at most %d processes of all steps together", DefaultPids))
		i.Lacks = append(i.Lacks, "limits of memory and processors (they need root)")
	} else {
		i.limits()
		if err := cannotMap(root, driver); err != nil {
			i.Lacks = append(i.Lacks, fmt.Sprintf("%s (%v)", saysRoot, err))
		} else {
			i.Has = append(i.Has, "a user namespace: root in a step is an unprivileged user of the machine")
		}
	}
	i.program()
	return i
}

// program tells what the init of a step is started from, where steps begin with one.
func (i *Isolation) program() {
	f, err := newMemory(initName)
	if err != nil {
		i.Lacks = append(i.Lacks, fmt.Sprintf("a sealed copy of this program, which begins steps on some kernels (%v)", err))
		return
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, contentSeals|unix.F_SEAL_EXEC); err != nil {
		i.Has = append(i.Has, "a sealed copy of this program for each step (before Linux 6.3)")
		return
	}
	i.Has = append(i.Has, "a sealed copy of this program")
}

// kinds of namespaces: the name of the kernel's file, and that which runc and people use.
var kinds = []struct{ file, name string }{{"mnt", "mount"}, {"pid", "pid"}, {"net", "network"}, {"ipc", "ipc"}, {"uts", "uts"}, {"cgroup", "cgroup"}}

// namespaces tells which namespaces steps have: those of the kernel that the runtime knows.
func (i *Isolation) namespaces(knows func(name string) bool) {
	var there []string
	for _, k := range kinds {
		if _, err := os.Stat("/proc/self/ns/" + k.file); err != nil {
			i.Lacks = append(i.Lacks, "a "+k.name+" namespace (the kernel has none)")
		} else if !knows(k.name) {
			i.Lacks = append(i.Lacks, "a "+k.name+" namespace ("+i.Runtime+" has none)")
		} else {
			there = append(there, k.name)
		}
	}
	i.Has = append(i.Has, "namespaces "+strings.Join(there, ", "))
}

// limits tells whether steps have a limit of processes.
func (i *Isolation) limits() {
	c, err := findCgroups("doctor")
	if err == nil && !c.can("pids") {
		err = c.missing("pids")
	}
	if err != nil {
		i.Lacks = append(i.Lacks, fmt.Sprintf("a limit of processes (%v)", err))
		return
	}
	i.Has = append(i.Has, fmt.Sprintf("at most %d processes unless --pids says more", DefaultPids))
}

func isolationOfRunc(ctx context.Context) Isolation {
	i := Isolation{Runtime: Runc().Name()}
	program, err := exec.LookPath("runc")
	if err != nil {
		i.Err = fmt.Errorf("it is not installed: %w", err)
		return i
	}
	if os.Geteuid() != 0 || userns.RunningInUserNS() {
		i.Err = fmt.Errorf("it needs root of the machine")
		return i
	}
	out, err := exec.CommandContext(ctx, program, "features").Output()
	var f features.Features
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		i.Err = fmt.Errorf("runc features, which says what it isolates (since 1.1), fails: %w", err)
		return i
	}
	if f.Linux == nil || f.Linux.Seccomp == nil || f.Linux.Seccomp.Enabled == nil || !*f.Linux.Seccomp.Enabled {
		i.Err = fmt.Errorf("it is built without filters of system calls, which steps must have")
		return i
	}
	i.namespaces(func(name string) bool { return slices.Contains(f.Linux.Namespaces, name) })
	i.Has = append(i.Has, saysFilter, saysTraps, saysSession, "a filter of devices")
	i.limits()
	i.Lacks = append(i.Lacks, saysRoot)
	return i
}

// cannotMap is why steps of Native in a store have no user namespaces; nil if they have.
func cannotMap(root, driver string) error {
	if driver == zfs {
		return errZFS
	}
	if err := canProc(); err != nil {
		return err
	}
	if err := canInject(); err != nil {
		return err
	}
	dir := root
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return idsOf(root).Probe(dir)
}
