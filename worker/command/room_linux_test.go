package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/drivertest"
)

// smallDisk mounts a file system of its own at store.
func smallDisk(t *testing.T, kind, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a disk of its own")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	check(t, os.Mkdir("store", 0o700))
	if kind != "tmpfs" {
		drivertest.Filesystem(t, kind, filepath.Join(dir, "store"))
		return
	}
	check(t, unix.Mount("tmpfs", "store", "tmpfs", 0, options))
	t.Cleanup(func() { check(t, unix.Unmount(filepath.Join(dir, "store"), 0)) })
}

// fill takes all that is free of the disk of the store, to the last block.
func fill(t *testing.T) {
	t.Helper()
	f, err := os.Create("store/filler")
	check(t, err)
	defer f.Close()
	end := int64(0)
	for size := int64(1 << 30); size >= 4096; {
		if unix.Fallocate(int(f.Fd()), 0, end, size) != nil {
			size /= 2
		} else {
			end += size
		}
	}
	var s unix.Statfs_t
	if check(t, unix.Fstatfs(int(f.Fd()), &s)); s.Bavail > 0 {
		t.Fatalf("%d blocks are still free", s.Bavail)
	}
}

// many makes a store with so many snapshots, whose metadata takes some MiB. The oldest has a file of 64 MiB.
func many(t *testing.T, n int) {
	t.Helper()
	ctx := context.Background()
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	namespace, err := s.Namespace("local")
	check(t, err)
	for i := range n {
		name := fmt.Sprintf("small-%03d", i)
		m, err := namespace.Prepare(ctx, "active", "")
		check(t, err)
		if i == 0 {
			f, err := os.Create(filepath.Join(m[0].Source, "file"))
			check(t, err)
			check(t, errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 64<<20), f.Close()))
		}
		check(t, namespace.Commit(ctx, name, "active", snapshot.WithLabels(map[string]string{"l": strings.Repeat("x", 2000)})))
	}
	check(t, s.Close())
}

// emergency is the size of the emergency file, 0 if there is none.
func emergency(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat("store/emergency")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	check(t, err)
	return info.Size()
}

// TestRoomFull: on a disk without a free block the store can be opened, and snapshots removed and pruned,
// without the emergency file too as long as the metadata have room in their file; when there is room again
// the emergency file is there.
func TestRoomFull(t *testing.T) {
	for _, with := range []bool{false, true} {
		t.Run(fmt.Sprint(with), func(t *testing.T) {
			smallDisk(t, "ext4", "")
			many(t, 400)
			must(t, "snapshot", "tree") // whatever opens the store makes the file
			size := emergency(t)
			if size < 1<<20 {
				t.Fatalf("the emergency file has %d bytes", size)
			}
			if !with {
				check(t, os.Remove("store/emergency"))
			}
			fill(t)
			pruned := run(t, "", "prune", "--max-snapshots", "30")
			if pruned.code != 0 || !strings.Contains(pruned.out, "removed 370 snapshots") {
				t.Fatalf("%+v", pruned)
			}
			if !with { // it needs twice its size, and ext4 has to have its reserve back first
				check(t, os.Remove("store/filler"))
				unix.Sync()
				must(t, "snapshot", "ls")
			}
			if now := emergency(t); now != size {
				t.Errorf("there is room again, and the emergency file has %d bytes", now)
			}
			if !with {
				return
			}
			check(t, os.Rename("store/filler", "store/filler before"))
			fill(t)
			if r := run(t, "", "snapshot", "rm", "small-371", "small-372"); r.code != 0 {
				t.Errorf("%+v", r)
			}
			check(t, os.Remove("store/filler before"))
			must(t, "snapshot", "ls")
			if now := emergency(t); now != size {
				t.Errorf("others have made room, and the emergency file has %d bytes", now)
			}
		})
	}
}

// TestRoomMetadata: metadata that must grow on a full disk gets the room of the emergency file. (On a tmpfs
// a directory takes none.)
func TestRoomMetadata(t *testing.T) {
	for _, with := range []bool{false, true} {
		smallDisk(t, "tmpfs", "size=64m")
		files(t, "files.tar", map[string]string{"etc/name": "base"})
		must(t, "--driver", "copy", "import", "files.tar")
		if !with {
			check(t, os.Remove("store/emergency"))
		}
		fill(t)
		var last result
		for i := 0; i < 100 && last.errOut == ""; i++ {
			last = run(t, "", "import", "files.tar", fmt.Sprintf("%d-%s", i, strings.Repeat("x", 3000)))
		}
		switch {
		case with && (last.code != 0 || !strings.Contains(last.errOut, "is given up") || emergency(t) > 0):
			t.Errorf("with an emergency file: %+v", last)
		case !with && (last.code != 1 || !strings.Contains(last.errOut, "no space left")):
			t.Errorf("without: %+v", last)
		}
		must(t, "snapshot", "ls")
	}
}

// TestStepOnAFullDisk: without room for the work directory of an overlay the kernel mounts it read-only, and the step
// said that the file system was mounted read-only.
func TestStepOnAFullDisk(t *testing.T) {
	smallDisk(t, "ext4", "")
	busybox(t)
	must(t, "--driver", "overlay", "import", "busybox.tar", "bb")
	fill(t)
	info, err := os.Stat("store/filler") // some of what ext4 keeps for root is to be left, which the mounter of an overlay may not use
	check(t, err)
	check(t, os.Truncate("store/filler", info.Size()-1<<20))
	unix.Sync()
	r := run(t, "", "step", "--reserve", "0", "--base", "bb", "--", "sh", "-c", "echo 1 >/1")
	if r.code != 125 || !strings.Contains(r.errOut, "no space left on device; free some space on the disk of") {
		t.Errorf("%+v", r)
	}
}

// TestRoomStep: a step that may take more than is free has others pruned that were not used for the longest
// time, but not what it stands on; and is refused, with nothing removed, if that cannot help. Leases and
// reservations are gone with the command.
func TestRoomStep(t *testing.T) {
	smallDisk(t, "tmpfs", "size=64m")
	busybox(t)
	must(t, "--driver", "copy", "import", "busybox.tar", "bb")
	made := func(text string, args ...string) string {
		t.Helper()
		r := run(t, "", append(append([]string{"step", "--reserve", "1MiB"}, args...), "--", "sh", "-c", "dd if=/dev/zero of=/"+text+" bs=1024 count=8192 2>/dev/null")...)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return resultName.FindString(r.errOut)
	}
	first := made("one", "--base", "bb")
	second := made("two", "--base", "bb")
	bounds := []string{"step", "--base", first[:20], "--policy", "policy.toml"}
	check(t, os.WriteFile("policy.toml", []byte("[[policy]]\nall = true\n"), 0o600))
	// What the disk can never have free had everything pruned, and was refused then.
	all := names(t)
	refused := run(t, "", append(bounds, "--disk", "500MiB", "--", "id")...)
	if refused.code != 125 || !strings.Contains(refused.errOut, "a step reserves 500 MiB, and the disk has 64 MiB in all; reserve less") || names(t) != all {
		t.Errorf("%+v; there are %s, and were %s", refused, names(t), all)
	}
	refused = run(t, "", append(bounds, "--disk", "60MiB", "--", "id")...)
	// What pruning cannot make free had everything pruned, too, before the step was refused.
	if refused.code != 125 || !strings.Contains(refused.errOut, "pruning could make that 5") || !strings.Contains(refused.errOut, "nothing was removed; make room on the disk, or reserve less with --reserve") || names(t) != all {
		t.Errorf("%+v; there are %s, and were %s", refused, names(t), all)
	}
	third := made("three", "--base", "bb")
	r := run(t, "", append(bounds, "--reserve", "40MiB", "--", "id")...)
	if r.code != 0 || !strings.HasPrefix(r.errOut, "ran ") {
		t.Errorf("%+v", r)
	}
	if left := names(t); strings.Contains(left, second) || !strings.Contains(left, third) || !strings.Contains(left, first) {
		t.Errorf("there are %s; %s was to go", left, second)
	}
	var stat struct{ Leases []string }
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "stat", first, "--json")), &stat))
	if len(stat.Leases) > 0 { // the result on it has that for the next step
		t.Errorf("still leased: %v", stat.Leases)
	}
	if r := run(t, "", append(bounds, "--reserve", "30TiB", "--", "id")...); r.code != 0 || !strings.HasPrefix(r.errOut, "hit ") {
		t.Errorf("what is there needs no room: %+v", r)
	}
	for args, says := range map[string]string{"--reserve much": "--reserve much: not a size", "--policy none.toml": "no such file"} {
		if r := run(t, "", append(append([]string{"step", "--base", "bb"}, strings.Fields(args)...), "id")...); r.code != 125 || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// TestRoomInodes: a step that had taken all inodes of the disk with empty files made each later one fail, which
// reserved bytes alone; prune removed nothing, since bytes were free, and nothing said that it was inodes that had run
// out.
func TestRoomInodes(t *testing.T) {
	smallDisk(t, "tmpfs", "size=256m,nr_inodes=2000")
	busybox(t)
	must(t, "--driver", "copy", "import", "busybox.tar", "bb")
	var err error
	for i := range 100 {
		check(t, os.WriteFile(fmt.Sprint("store/stays", i), nil, 0o600))
	}
	many := func(args ...string) result {
		return run(t, "", append(append([]string{"step", "--base", "bb", "--reserve", "1MiB"}, args...), "--", "sh", "-c", "mkdir /d; i=0; while [ $i -lt 1400 ]; do echo >/d/$i; i=$((i+1)); done")...)
	}
	made := many("--env", "N=1")
	if made.code != 0 {
		t.Fatalf("%+v", made)
	}
	first := resultName.FindString(made.errOut)
	all := names(t)
	r := run(t, "", "step", "--base", "bb", "--reserve", "250MiB", "--", "id")
	if r.code != 125 || !strings.Contains(r.errOut, "not enough inodes on the disk: a step reserves 250 MiB, with which 1,953 inodes go") ||
		!strings.Contains(r.errOut, "inodes are free, and pruning could make that 1,8") || !strings.Contains(r.errOut, "nothing was removed") || names(t) != all {
		t.Errorf("%+v; there are %s, and were %s", r, names(t), all)
	}
	check(t, os.WriteFile("policy.toml", []byte("[[policy]]\nall = true\n"), 0o600))
	r = run(t, "", "step", "--base", "bb", "--reserve", "128MiB", "--policy", "policy.toml", "--", "id")
	if r.code != 0 || strings.Contains(names(t), first) {
		t.Errorf("%+v; there are %s; %s was to go", r, names(t), first)
	}
	again := many("--env", "N=2")
	if again.code != 0 {
		t.Fatalf("%+v", again)
	}
	for i := 0; err == nil; i++ {
		err = os.WriteFile(fmt.Sprint("store/filler", i), nil, 0o600)
	}
	r = many("--env", "N=3", "--reserve", "0")
	if r.code != 125 || !strings.Contains(r.errOut, "there are no inodes left (files and directories: 2,000 are possible): remove some on the disk of store: holdfastd df") {
		t.Errorf("%+v", r)
	}
	r = run(t, "", "prune", "--held", "--min-free", "20%")
	if r.code != 0 || !strings.Contains(r.out, "removed ") || strings.Contains(names(t), resultName.FindString(again.errOut)) {
		t.Errorf("%+v; there are %s", r, names(t))
	}
}
