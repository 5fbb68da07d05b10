package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/worker/command"
)

// TestChangedSource: make ran once. Then its source file was changed, and the step that the help of the
// command shows was a hit: it gave the old result.
func TestChangedSource(t *testing.T) {
	stand(t, "overlay")
	check(t, os.Mkdir("src", 0o755))
	source := func(text string) { check(t, os.WriteFile("src/main", []byte(text), 0o644)) }
	build := func(args ...string) result {
		return run(t, "", append(append([]string{"step", "--base", "bb"}, args...), "--", "cat", "/src/main")...)
	}
	for _, how := range []string{"--mount", "--copy"} {
		what := map[string]string{"--mount": "src:/src:ro", "--copy": "src:/src"}[how]
		source("one\n")
		if r := build(how, what); r.out != "one\n" || !strings.HasPrefix(r.errOut, "ran ") {
			t.Fatalf("%s: %+v", how, r)
		}
		source("two\n")
		if r := build(how, what); r.out != "two\n" || !strings.HasPrefix(r.errOut, "ran ") {
			t.Errorf("%s: of a changed source: %+v", how, r)
		}
		if r := build(how, what); r.out != "two\n" || !strings.HasPrefix(r.errOut, "hit ") {
			t.Errorf("%s: of the same source: %+v", how, r)
		}
		source("one\n") // what was built of this once is a hit again
		if r := build(how, what); r.out != "one\n" || !strings.HasPrefix(r.errOut, "hit ") {
			t.Errorf("%s: of the first source: %+v", how, r)
		}
		check(t, os.RemoveAll("elsewhere"))
		check(t, os.CopyFS("elsewhere", os.DirFS("src"))) // another directory with the same content is the same
		check(t, os.Chmod("elsewhere", 0o755))
		if r := build(how, "elsewhere"+what[3:]); !strings.HasPrefix(r.errOut, "hit ") {
			t.Errorf("%s: of a copy: %+v", how, r)
		}
	}
}

// TestWritableMount: a step whose mount can be written ran once, and the next time nothing was written there.
func TestWritableMount(t *testing.T) {
	stand(t, "overlay")
	check(t, os.Mkdir("out", 0o777))
	var names []string
	for i := range 2 {
		r := run(t, "", "step", "--base", "bb", "--mount", "out:/out", "--", "sh", "-c", "echo x >>/out/log; echo made >/made")
		if r.code != 0 || !strings.HasPrefix(r.errOut, "ran ") || !strings.Contains(r.errOut, "not cached: /out can be written") {
			t.Errorf("%d: %+v", i, r)
		}
		names = append(names, resultName.FindString(r.errOut))
	}
	if b, err := os.ReadFile("out/log"); err != nil || string(b) != "x\nx\n" || names[0] == names[1] {
		t.Errorf("written is %q, %v; the results are %v", b, err, names)
	}
	if r := run(t, "", "step", "-q", "--base", names[0], "cat", "/made"); r.out != "made\n" {
		t.Errorf("on the result: %+v", r)
	}
	var report struct{ Uncached string }
	check(t, json.Unmarshal([]byte(must(t, "step", "--json", "--base", "bb", "--mount", "out:/out", "id")), &report))
	if report.Uncached != "/out can be written" {
		t.Errorf("%+v", report)
	}
}

// TestCacheMount: what a step leaves in a cache is there for the next one, and is not part of what they are.
func TestCacheMount(t *testing.T) {
	stand(t, "overlay")
	cached := func(name, script string) result {
		return run(t, "", "step", "--base", "bb", "--mount", "type=cache,id="+name+",target=/cache", "--user", "7", "--", "sh", "-c", script)
	}
	if r := cached("go", "echo kept >/cache/file"); r.code != 0 || !strings.HasPrefix(r.errOut, "ran ") {
		t.Fatalf("%+v", r)
	}
	if r := cached("go", "cat /cache/file"); r.out != "kept\n" {
		t.Errorf("%+v", r)
	}
	if r := cached("go", "echo kept >/cache/file"); !strings.HasPrefix(r.errOut, "hit ") {
		t.Errorf("%+v", r)
	}
	if r := cached("other", "cat /cache/file"); r.code != 1 {
		t.Errorf("another cache: %+v", r)
	}
	if out := must(t, "snapshot", "ls"); !regexp.MustCompile(`!cache/go +cache `).MatchString(out) || !strings.Contains(out, "!cache/other") {
		t.Errorf("%s", out)
	}
	if out := must(t, "df"); !strings.Contains(out, " in 2 caches\n") {
		t.Errorf("caches are not counted:\n%s", out)
	}
	must(t, "snapshot", "rm", "!cache/go")
	if r := cached("go", "cat /cache/file # again"); r.code != 1 {
		t.Errorf("removed: %+v", r)
	}
	const some = "1000000"
	if out := must(t, "prune", "--max-snapshots", some); strings.Contains(out, "cache") {
		t.Errorf("a cache that was just used: %s", out)
	}
	if out := must(t, "prune", "--max-snapshots", some, "--caches", "0", "--dry-run"); !strings.Contains(out, "the cache other would go, with ") || !strings.Contains(out, "nothing was changed") {
		t.Error(out)
	}
	if out := must(t, "prune", "--max-snapshots", some, "--caches", "0"); !strings.Contains(out, "removed the cache other with ") || !strings.Contains(out, "nothing to remove") {
		t.Error(out)
	}
	if out := must(t, "snapshot", "ls"); strings.Contains(out, "!cache/") {
		t.Error(out)
	}
}

// TestNoCache: --no-cache runs the command, and what it leaves takes the place of the earlier result.
func TestNoCache(t *testing.T) {
	stand(t, "overlay")
	args := []string{"--base", "bb", "--", "sh", "-c", "cat /proc/sys/kernel/random/uuid"}
	first := run(t, "", append([]string{"step"}, args...)...)
	second := run(t, "", append([]string{"step", "--no-cache"}, args...)...)
	third := run(t, "", append([]string{"step"}, args...)...)
	if first.out == second.out || !strings.HasPrefix(second.errOut, "ran ") || second.code != 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	if third.out != second.out || !strings.HasPrefix(third.errOut, "hit ") || resultName.FindString(third.errOut) != resultName.FindString(first.errOut) {
		t.Errorf("%+v, %+v", second, third)
	}
	// While something stands on it, it stays.
	base := resultName.FindString(first.errOut)
	if r := run(t, "", "step", "--base", base, "id"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	fourth := run(t, "", append([]string{"step", "--no-cache"}, args...)...)
	if name := resultName.FindString(fourth.errOut); fourth.code != 0 || fourth.out == second.out || name == base || !strings.Contains(fourth.errOut, "not cached: ") {
		t.Errorf("%+v", fourth)
	}
	if r := run(t, "", append([]string{"step", "--no-cache"}, "--base", "bb", "--", "sh", "-c", "exit 4")...); r.code != 4 {
		t.Errorf("%+v", r)
	}
}

// TestOutput: outputs are there after a run and after a hit.
func TestOutput(t *testing.T) {
	stand(t, "overlay")
	args := []string{"step", "--base", "bb", "--output", "/made/dir:out", "--output", "/made/file:bin/", "--", "sh", "-c",
		"mkdir -p /made/dir/deep; echo a >/made/dir/deep/a; echo b >/made/file; chmod 4755 /made/file"}
	args[len(args)-1] = strings.NewReplacer("mkdir", "busybox mkdir", "chmod", "busybox chmod").Replace(args[len(args)-1])
	for _, is := range []string{"ran ", "hit "} {
		check(t, os.RemoveAll("out"))
		check(t, os.RemoveAll("bin"))
		if r := run(t, "", args...); r.code != 0 || !strings.HasPrefix(r.errOut, is) {
			t.Fatalf("%+v", r)
		}
		for name, want := range map[string]string{"out/deep/a": "a\n", "bin/file": "b\n"} {
			if b, err := os.ReadFile(name); err != nil || string(b) != want {
				t.Errorf("%s%s: %q, %v", is, name, b, err)
			}
		}
		if info, err := os.Stat("bin/file"); err != nil || info.Mode() != 0o755 { // not with set-user-ID: it is root's here
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	nothingLeft(t, 3)
	if r := run(t, "", "step", "--base", "bb", "--output", "/nothing:out", "id"); r.code != 125 || !strings.Contains(r.errOut, "/nothing") {
		t.Errorf("%+v", r)
	}
	// A link in the result leads to nothing of this machine.
	check(t, os.WriteFile("secret", []byte("of the host"), 0o600))
	dir, err := os.Getwd()
	check(t, err)
	for _, script := range []string{"busybox ln -s " + dir + "/secret /x", "busybox ln -s " + dir + " /d; busybox mkdir -p /x; busybox ln -s " + dir + "/secret /x/link"} {
		r := run(t, "", "step", "--base", "bb", "--output", "/x:taken", "--", "sh", "-c", script)
		if b, err := os.ReadFile("taken"); err == nil {
			t.Errorf("%q: %q, %+v", script, b, r)
		}
		if to, err := os.Readlink("taken/link"); err == nil && to != dir+"/secret" {
			t.Errorf("%q: %s", script, to)
		}
		check(t, os.RemoveAll("taken"))
	}
}

// imageWith is a layout of an image, busybox and a user, with a configuration.
func imageWith(t *testing.T, config map[string]any) {
	t.Helper()
	busybox(t)
	layout(t, "image", "busybox.tar", config)
}

// TestConfigCarried: a step on the result of another ran as root, without the image's PATH and directory.
func TestConfigCarried(t *testing.T) {
	stand(t, "overlay")
	imageWith(t, map[string]any{"User": "7:8", "Env": []string{"PATH=/image:/bin", "A=image"}, "WorkingDir": "/work", "Entrypoint": []string{"/bin/e"}})
	must(t, "import", "image", "app")
	const script = "id -u; id -g; pwd; echo $PATH $A"
	const want = "7\n8\n/work\n/image:/bin image\n"
	name := "app"
	for i := range 3 {
		r := run(t, "", "step", "--base", name, "--", "sh", "-c", script+fmt.Sprint(" # ", i))
		if r.out != want {
			t.Errorf("step %d: %+v", i, r)
		}
		name = resultName.FindString(r.errOut)
	}
	// What is given is of that step alone: RUN in a Dockerfile does not change the configuration either.
	r := run(t, "", "step", "--base", name, "--user", "0", "--env", "A=flag", "--workdir", "/", "--", "sh", "-c", script)
	if r.out != "0\n0\n/\n/image:/bin flag\n" {
		t.Errorf("%+v", r)
	}
	name = resultName.FindString(r.errOut)
	if r := run(t, "", "step", "--base", name, "--", "sh", "-c", script+" # last"); r.out != want {
		t.Errorf("%+v", r)
	}
	if out := must(t, "snapshot", "stat", name, "--json"); !strings.Contains(out, `"holdfast.base.entrypoint"`) {
		t.Errorf("%s", out)
	}
	// Another configuration of the same layers is another base: else its results would have that of the first.
	imageWith(t, map[string]any{"User": "9"})
	must(t, "import", "image", "other")
	same := []string{"--user", "0", "--env", "PATH=/bin", "--workdir", "/", "--", "sh", "-c", "echo same"}
	plain := run(t, "", append([]string{"step", "--base", "bb"}, same...)...)
	other := run(t, "", append([]string{"step", "--base", "other"}, same...)...)
	if plain.code != 0 || other.code != 0 || !strings.HasPrefix(other.errOut, "ran ") {
		t.Errorf("%+v, %+v", plain, other)
	}
}

// TestSameElsewhere: what a step is does not depend on the store: its result could be used by another machine.
func TestSameElsewhere(t *testing.T) {
	stand(t, "overlay")
	must(t, "--root", "store2", "import", "busybox.tar", "other") // what it is called does not matter
	check(t, os.Mkdir("src", 0o755))
	name := func(args ...string) string {
		r := run(t, "", append(args, "--mount", "src:/src:ro", "--", "sh", "-c", "echo same")...)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return resultName.FindString(r.errOut)
	}
	one, two := name("step", "--base", "bb"), name("--root", "store2", "step", "--base", "other")
	if one != two {
		t.Errorf("%s, and on another store %s", one, two)
	}
	if runc := name("step", "--base", "bb", "--runtime", "runc"); runc == one {
		t.Errorf("%s of both runtimes", runc)
	}
}

// TestBadSources: what cannot be known by its content is run and not cached, or refused.
func TestBadSources(t *testing.T) {
	stand(t, "overlay")
	check(t, os.Mkdir("fifo", 0o755))
	check(t, exec.Command("mkfifo", "fifo/pipe").Run())
	check(t, os.Symlink("loop", "loop"))
	check(t, os.Mkdir("links", 0o755))
	check(t, os.Symlink("self", "links/self"))
	dir, err := os.Getwd()
	check(t, err)
	for _, c := range []struct {
		code int
		says string
		args string
	}{
		{0, "fifo/pipe: its content cannot be known", "--mount fifo:/src:ro id"},
		{125, "pipe: its content cannot be known", "--copy fifo:/src id"},
		{125, "too many levels of symbolic links", "--mount loop:/src:ro id"},
		{0, "ran ", "--mount links:/src:ro id"},
		{0, "hit ", "--mount links:/src:ro id"},
		{0, "ran ", "--copy links:/src id"},
		{125, "no such file", "--copy nothing:/src id"},
		{125, "the store", "--mount store:/src:ro id"},
		{125, "the store", "--mount store/snapshots:/src id"},
		{125, "the store", "--mount " + dir + ":/src:ro id"},
		{125, "the store", "--copy " + dir + ":/src id"},
		{125, "--copy is", "--copy links id"},
		{125, "--copy is", "--copy links:src id"},
		{125, "--output is", "--output links id"},
		{125, "--output is", "--output links:x id"},
		{125, "--mount is", "--mount type=cache,target=/x id"},
		{125, "--mount is", "--mount type=cache,id=x,target=x id"},
		{125, "--mount is", "--mount type=cache,id=x,target=/x,what=1 id"},
		{125, "--mount is", "--mount type=volume,id=x,target=/x id"},
	} {
		r := run(t, "", append([]string{"step", "--base", "bb"}, split(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.errOut, c.says) {
			t.Errorf("%s: %+v, and should be %d: %s", c.args, r, c.code, c.says)
		}
	}
}

// TestHelpExamples: the second example of the help could not run as it was printed, and gave an old result
// when its source had changed. Each is run by a shell, on bases of the names that it has.
func TestHelpExamples(t *testing.T) {
	stand(t, "overlay")
	dir, err := os.Getwd()
	check(t, err)
	check(t, os.Mkdir("path", 0o755))
	check(t, os.WriteFile("path/holdfastd", []byte(fmt.Sprintf("#!/bin/sh\n%s=1 exec %s --root %s/store --run %s/run \"$@\"\n", envMain, selfPath(t), dir, dir)), 0o755))
	tools(t)
	cmd, _, err := command.NewRootCommand().Find([]string{"step"})
	check(t, err)
	examples := strings.Split(strings.TrimSpace(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(cmd.Example, "")), "\n")
	if len(examples) < 3 {
		t.Fatalf("%q", examples)
	}
	for _, line := range examples {
		for _, is := range []string{"ran ", "hit "} {
			sh := exec.Command("sh", "-c", strings.TrimSpace(line))
			sh.Env = []string{"PATH=" + filepath.Join(dir, "path") + ":" + os.Getenv("PATH"), "PWD=" + dir, "TMPDIR=" + dir}
			check(t, os.MkdirAll("project/src", 0o755))
			sh.Dir = filepath.Join(dir, "project")
			b, err := sh.CombinedOutput()
			if err != nil || !strings.Contains(string(b), is+"step-") {
				t.Errorf("%s: %v: %s", line, err, b)
			}
		}
	}
}

func selfPath(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	check(t, err)
	return path
}

// TestServeCacheLocked: who is killed while it has a locked cache leaves it to those who wait; further instances are
// seen, counted and pruned as the cache is.
func TestServeCacheLocked(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	step := func(sharing, script string) []string {
		return []string{"step", "--base", "bb", "--mount", "type=cache,id=c,target=/cache,sharing=" + sharing, "--", "sh", "-c", script}
	}
	for range 3 {
		holder := holdfastd(t, step("locked", "echo begun; sleep 600; exit")...)
		untilBegun(t, holder)
		waiter := holdfastd(t, step("locked", "echo begun; sleep 601; exit")...)
		var out bytes.Buffer
		waiter.Stdout = &out
		check(t, waiter.Start())
		private := served(t, step("private", "echo x >>/cache/x; busybox wc -l </cache/x; exit")...)
		if private.code != 0 || private.out != "1\n" {
			t.Errorf("private meanwhile: %+v", private)
		}
		check(t, waiter.Process.Kill()) // it waits, or is about to
		_ = waiter.Wait()
		next := holdfastd(t, step("locked", "echo begun; exit")...)
		var nextOut bytes.Buffer
		next.Stdout = &nextOut
		check(t, next.Start())
		check(t, holder.Process.Kill())
		_ = holder.Wait()
		if err := next.Wait(); err != nil || nextOut.String() != "begun\n" || out.Len() > 0 {
			t.Errorf("the next one: %v, %q; the one that waited: %q", err, &nextOut, &out)
		}
		for _, name := range resultName.FindAllString(must(t, "snapshot", "ls", "--full"), -1) {
			must(t, "snapshot", "rm", name)
		}
		must(t, "snapshot", "rm", "!cache/c//2")
	}
	served(t, step("private", "true")...)
	holder := holdfastd(t, step("locked", "echo begun; sleep 600; exit")...)
	untilBegun(t, holder)
	served(t, step("private", "true; true")...)
	if out := served(t, "snapshot", "ls").out; !regexp.MustCompile(`(?m)^!run/[0-9a-f]{12} +active `).MatchString(out) {
		t.Errorf("what runs is listed so: %s", out)
	}
	if r := served(t, "--driver", "ext9", "snapshot", "ls"); r.code != 2 || !strings.Contains(r.errOut, `there is no driver "ext9"`) {
		t.Errorf("a driver that there is not: %+v", r)
	}
	check(t, holder.Process.Kill())
	_ = holder.Wait()
	eventually(t, "the step is gone", func() bool { return !strings.Contains(served(t, "snapshot", "ls").out, "!run/") })
	if out := must(t, "df"); !strings.Contains(out, " in 2 caches\n") {
		t.Errorf("the instances are not counted:\n%s", out)
	}
	if out := must(t, "prune", "--max-snapshots", "1000", "--caches", "0"); !strings.Contains(out, "removed the cache c with ") || !strings.Contains(out, "removed the cache c//2 with ") {
		t.Errorf("%s", out)
	}
	for _, bad := range []string{"type=cache,id=c,target=/c,sharing=some", "type=cache,id=c,target=/c,ro,ro", "type=cache,id=c//2,target=/c", "type=cache,id=c,target=/c,ro=yes"} {
		if r := served(t, "step", "--base", "bb", "--mount", bad, "--", "true"); r.code != 125 {
			t.Errorf("%s: %+v", bad, r)
		}
	}
	if r := served(t, "step", "--base", "bb", "--mount", "type=cache,id=c,target=/cache,ro", "--", "sh", "-c", "echo x >/cache/x"); r.code != 1 {
		t.Errorf("read-only: %+v", r)
	}
}
