package command_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestHeld: a prune between two lines of a script took away what the second line stood on, though the first
// had said that it was a hit.
func TestHeld(t *testing.T) {
	stand(t, "overlay")
	result := func(args ...string) string {
		t.Helper()
		r := run(t, "", append([]string{"step"}, args...)...)
		if r.code != 0 {
			t.Fatalf("%v: %+v", args, r)
		}
		return resultName.FindString(r.errOut)
	}
	first := result("--base", "bb", "--hold", "0", "--", "sh", "-c", "echo 1 >/one")
	if out := must(t, "prune", "--all", "--dry-run"); !strings.Contains(out, "1 snapshot would go") || strings.Contains(out, "held") {
		t.Errorf("nothing is held: %s", out)
	}
	if again := result("--base", "bb", "--", "sh", "-c", "echo 1 >/one"); again != first {
		t.Fatalf("no hit: %s and %s", first, again)
	}
	out := must(t, "prune", "--all")
	if !strings.HasPrefix(out, "nothing to remove; ") || !strings.Contains(out, "\n1 result with ") || !strings.Contains(out, " stays, held for the next step on it, until ") {
		t.Errorf("pruned: %s", out)
	}
	out = must(t, "why", first)
	if !strings.Contains(out, " stays\n  it is held for the next step on it, until ") || !strings.Contains(out, "--held") {
		t.Errorf("why: %s", out)
	}
	if out := must(t, "df"); !strings.Contains(out, "\nHeld ") || !strings.Contains(out, "1 result with ") {
		t.Errorf("df: %s", out)
	}
	if out := run(t, "", "doctor").out; !strings.Contains(out, "held results") {
		t.Errorf("doctor: %s", out)
	}
	second := result("--base", first, "--", "cat", "/one")
	var report struct {
		Held struct{ Results, Bytes int64 }
	}
	check(t, json.Unmarshal([]byte(must(t, "df", "--json")), &report))
	if report.Held.Results != 1 {
		t.Errorf("the next result is not the one that is held: %+v", report)
	}
	if out := must(t, "why", first); !strings.Contains(out, "\n  "+second[:len("step-")+12]+" stands on it, and stays: it is held for the next step on it, until ") || strings.Contains(out, "--held") {
		t.Errorf("why: %s", out)
	}
	if out := must(t, "why", "--full", first); !strings.Contains(out, "\n  "+second+" stands on it, and stays: ") {
		t.Errorf("why --full: %s", out)
	}
	var bb struct{ Parent string }
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "stat", "bb", "--json")), &bb))
	if out := must(t, "why", bb.Parent); !strings.Contains(out, "\n  bb stands on it, and stays: it is a base\n") {
		t.Errorf("why: %s", out)
	}
	must(t, "snapshot", "rm", second)
	if out := must(t, "prune", "--all"); !strings.HasPrefix(out, "removed 1 snapshot with ") || strings.Contains(out, "held") {
		t.Errorf("what was under a removed result: %s", out)
	}
	third := result("--base", "bb", "--", "sh", "-c", "true")
	check(t, json.Unmarshal([]byte(must(t, "prune", "--all", "--held", "--dry-run", "--json")), &report))
	if report.Held.Results != 0 {
		t.Errorf("what would go is said to stay: %+v", report)
	}
	if out := must(t, "prune", "--all", "--held"); !strings.HasPrefix(out, "removed 1 snapshot with ") || strings.Contains(names(t), third) {
		t.Errorf("in spite of that: %s", out)
	}
}

// TestHeldRoom: a step that lacks room gets what is held for others, when nothing else can go.
func TestHeldRoom(t *testing.T) {
	smallDisk(t, "tmpfs", "size=64m")
	busybox(t)
	must(t, "--driver", "copy", "import", "busybox.tar", "bb")
	check(t, os.WriteFile("policy.toml", []byte("[[policy]]\nall = true\n"), 0o600))
	made := func(name, hold string) string {
		t.Helper()
		r := run(t, "", "step", "--base", "bb", "--reserve", "1MiB", "--hold", hold, "--", "sh", "-c", "dd if=/dev/zero of=/"+name+" bs=1024 count=8192 2>/dev/null")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return resultName.FindString(r.errOut)
	}
	old, free := made("old", "1h"), made("free", "0")
	with := func(reserve string) {
		t.Helper()
		if r := run(t, "", "step", "--base", "bb", "--policy", "policy.toml", "--reserve", reserve, "--", "sh", "-c", "echo "+reserve); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	with("45MiB") // of 64: the base has 2, and each result its 8 besides
	if left := names(t); !strings.Contains(left, old) || strings.Contains(left, free) {
		t.Errorf("there are %s; %s was to go, and not %s", left, free, old)
	}
	with("53MiB")
	if left := names(t); strings.Contains(left, old) {
		t.Errorf("there are %s; %s was to go", left, old)
	}
}

// TestPruneCacheInUse: prune leaves the cache of a step that runs, and says that it has removed the others.
func TestPruneCacheInUse(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	step := func(cache, script string) []string {
		return []string{"step", "--base", "bb", "--mount", "type=cache,target=/c,id=" + cache, "--", "sh", "-c", script}
	}
	served(t, step("other", "true")...)
	holder := holdfastd(t, step("used", "echo begun; sleep 600; exit")...)
	untilBegun(t, holder)
	r := served(t, "prune", "--max-snapshots", "1000", "--caches", "0")
	if r.code != 0 || !strings.Contains(r.out, "removed the cache other with ") || strings.Contains(r.out, "cache used") {
		t.Errorf("%+v", r)
	}
	check(t, holder.Process.Kill())
	_ = holder.Wait()
	eventually(t, "the step is gone", func() bool { return !strings.Contains(served(t, "snapshot", "ls").out, "!run/") })
	if r := served(t, "prune", "--max-snapshots", "1000", "--caches", "0"); r.code != 0 || !strings.Contains(r.out, "removed the cache used with ") {
		t.Errorf("%+v", r)
	}
}
