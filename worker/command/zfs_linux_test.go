package command_test

import (
	"os"
	"strings"
	"testing"

	"holdfast/worker/internal/testing/zfsfuse"
)

// TestZFS: a store on a dataset is made by its first command, and known by the others; steps run on it, and
// what they leave can be mounted.
func TestZFS(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	pool := zfsfuse.Pool(t, 512<<20)
	t.Chdir(t.TempDir())
	busybox(t)
	if r := run(t, "", "--driver", "zfs", "import", "busybox.tar", "bb"); r.code != 2 || !strings.Contains(r.errOut, "--driver zfs:tank/holdfast") {
		t.Errorf("without a dataset: %+v", r)
	}
	if r := run(t, "", "--driver", "zfs:"+pool, "import", "busybox.tar", "bb"); r.code != 1 || !strings.Contains(r.errOut, "it needs a name such as tank/holdfast") {
		t.Errorf("the pool itself: %+v", r)
	}
	dataset := pool + "/holdfast"
	must(t, "--driver", "zfs:"+dataset, "import", "busybox.tar", "bb")
	first := run(t, "", "step", "--base", "bb", "--", "sh", "-c", "echo made >/made; cat /made")
	if first.code != 0 || first.out != "made\n" {
		t.Fatalf("%+v", first)
	}
	made := resultName.FindString(first.errOut)
	if r := run(t, "", "step", "-q", "--base", made[:20], "--", "cat", "/made"); r.code != 0 || r.out != "made\n" {
		t.Errorf("on the result: %+v", r)
	}
	for i, script := range []string{"echo kept >/cache/file", "cat /cache/file"} { // a cache
		r := run(t, "", "step", "-q", "--hold", "0", "--base", made[:20], "--mount", "type=cache,id=c,target=/cache", "--", "sh", "-c", script)
		if r.code != 0 || i == 1 && r.out != "kept\n" {
			t.Errorf("%s: %+v", script, r)
		}
	}
	check(t, os.Mkdir("at", 0o755))
	end := whileMounted(t, made, "at")
	if b, err := os.ReadFile("at/made"); err != nil || string(b) != "made\n" {
		t.Errorf("mounted: %q, %v", b, err)
	}
	if out := must(t, "mount", "ls"); !strings.Contains(out, dataset+"/s") || !strings.Contains(out, "at") {
		t.Error(out)
	}
	if seen := top(t); seen.Mounts != 1 {
		t.Errorf("%+v", seen)
	}
	end()
	if out := must(t, "df"); !strings.Contains(out, "(zfs)") {
		t.Error(out)
	}
	if out := must(t, "--driver", "zfs", "snapshot", "ls"); !strings.Contains(out, "bb") {
		t.Error(out)
	}
	if out := run(t, "", "doctor").out; !strings.Contains(out, "Driver zfs") || !strings.Contains(out, "ok  zfs ") || !strings.Contains(out, dataset) {
		t.Error(out)
	}
	for driver, says := range map[string]string{"overlay": "leave --driver out", "zfs:" + pool + "/other": "the content of this store is in the dataset"} {
		if r := run(t, "", "--driver", driver, "snapshot", "ls"); r.code != 1 || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", driver, r)
		}
	}
	if out := must(t, "prune", "--all", "--held", "--caches", "0"); !strings.Contains(out, "removed 4 snapshots") {
		t.Error(out)
	}
	must(t, "snapshot", "rm", "bb")
	must(t, "prune", "--all")
	if out, err := zfsfuse.Run("zfs", "list", "-H", "-o", "name", "-r", dataset); err != nil || string(out) != dataset+"\n" {
		t.Errorf("datasets that are left: %s, %v", out, err)
	}
}

// TestZFSElsewhere: a store with another driver does not become one of ZFS, nor is a dataset made for it.
func TestZFSElsewhere(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	r := run(t, "", "--driver", "zfs:tank/holdfast", "snapshot", "ls")
	if r.code != 1 || !strings.Contains(r.errOut, "it was made with driver copy, and is opened with zfs:tank/holdfast; leave --driver out") {
		t.Errorf("%+v", r)
	}
	must(t, "snapshot", "ls")
	t.Setenv("PATH", t.TempDir())
	check(t, os.RemoveAll("store"))
	if r := run(t, "", "--driver", "zfs:tank", "import", "files.tar"); r.code != 1 || !strings.Contains(r.errOut, "zfs") {
		t.Errorf("%+v", r)
	}
}
