package command_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/worker/command"
)

type result struct {
	code        int
	out, errOut string
}

// run runs holdfastd on a store in the working directory.
func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	return runIn(t, context.Background(), in, args...)
}

func runIn(t *testing.T, ctx context.Context, in string, args ...string) result {
	t.Helper()
	return runFrom(ctx, strings.NewReader(in), args...)
}

// byInit is what each step says on kernels without what user namespaces of steps need.
var byInit = regexp.MustCompile(`(?m)^.*a step begins with this program, .*\n`)

func runFrom(ctx context.Context, in io.Reader, args ...string) result {
	var out, errOut bytes.Buffer
	root := command.NewRootCommand()
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append([]string{"--root", "store", "--run", "run"}, args...))
	code := command.Execute(ctx, root)
	return result{code, out.String(), byInit.ReplaceAllString(errOut.String(), "")}
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, "", args...)
	if r.code != 0 || r.errOut != "" {
		t.Fatalf("holdfastd %s: %+v", strings.Join(args, " "), r)
	}
	return r.out
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files is an archive in the working directory.
func files(t *testing.T, name string, content map[string]string) {
	t.Helper()
	f, err := os.Create(name)
	check(t, err)
	w := tar.NewWriter(f)
	for _, path := range []string{"bin/hello", "etc/name", "../evil", "bad/../name", "dev/null"} {
		data, ok := content[path]
		if !ok {
			continue
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: int64(len(data)), Mode: 0o755, ModTime: time.Unix(1_700_000_000, 0), Uid: os.Geteuid(), Gid: os.Getegid()}
		if path == "dev/null" {
			h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, 1, 3
		}
		check(t, w.WriteHeader(h))
		_, err := w.Write([]byte(data))
		check(t, err)
	}
	check(t, w.Close())
	check(t, f.Close())
}

func work(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	files(t, "files.tar", map[string]string{"bin/hello": "hello", "etc/name": "base"})
}

// Of outputs, what differs from run to run.
var differs = []struct{ is, reads string }{
	{`[0-9a-f]{64}`, "DIGEST"}, {`\b[0-9a-f]{12}\b`, "DIGEST"}, {`\d{4}-\d\d-\d\d[ T][\d:.]+( UTC|Z)`, "TIME"}, {`\d+ second(s)? ago|now`, "AGO"},
	{`[\d.,]+ (KiB|bytes)( \([\d,]+ bytes\))?`, "SIZE"}, {`"bytes": \d+`, `"bytes": N`}, {` {2,}`, "  "},
}

func steady(s string) string {
	dir, _ := os.Getwd()
	s = strings.ReplaceAll(s, dir, "DIR")
	for _, d := range differs {
		s = regexp.MustCompile(d.is).ReplaceAllString(s, d.reads)
	}
	return s
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got := steady(got); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("printed is\n%s\nand should be\n%s", got, want)
	}
}

// TestCommands: with the driver copy as anybody, and with overlay.
func TestCommands(t *testing.T) {
	// With the directories of its own that a snapshot has.
	for driver, inodes := range map[string]string{"copy": "6", "overlay": "7"} {
		t.Run(driver, func(t *testing.T) {
			work(t)
			want(t, must(t, "--driver", driver, "import", "files.tar", "tiny"), `
Base  tiny
Snapshot  sha256:DIGEST
Layers  1, 1 new
`)
			want(t, must(t, "import", "files.tar", "tiny"), `
Base  tiny
Snapshot  sha256:DIGEST
Layers  1, 0 new
`)
			want(t, must(t, "snapshot", "ls"), strings.ReplaceAll(`
NAME  KIND  PARENT  SIZE  FILES  LAST USED
DIGEST  committed  -  SIZE  N  AGO
tiny  base  DIGEST  -  -  AGO
`, "N  AGO", inodes+"  AGO"))
			want(t, must(t, "snapshot", "tree"), "DIGEST  committed, SIZE\n`-- tiny  base\n")
			want(t, must(t, "snapshot", "stat", "tiny"), `
Name  tiny
Kind  base
Parent  sha256:DIGEST
Size  SIZE
Files  1
Created  TIME
Last used  TIME
Directory  DIR/store/snapshots/2
Label  holdfast.base = archive
`)
			if out := must(t, "df"); !strings.Contains(out, "("+driver+")") || !strings.Contains(out, "2, 1 committed") {
				t.Error(out)
			}
			for _, args := range [][]string{{"df"}, {"snapshot", "ls"}, {"snapshot", "tree"}, {"snapshot", "stat", "tiny"}, {"mount", "ls"}, {"import", "files.tar"}} {
				if out := must(t, append(args, "--json")...); !json.Valid([]byte(out)) {
					t.Errorf("%q: not JSON: %s", args, out)
				}
			}
			remove(t)
		})
	}
}

// remove removes a base and what it stands on, which only goes after it.
func remove(t *testing.T) {
	t.Helper()
	var list []struct{ Name, Kind string }
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "ls", "--json")), &list))
	i := slices.IndexFunc(list, func(s struct{ Name, Kind string }) bool { return s.Kind == "committed" })
	if i < 0 {
		t.Fatalf("%+v", list)
	}
	short := strings.TrimPrefix(list[i].Name, "sha256:")[:12]
	r := run(t, "", "snapshot", "rm", short)
	if r.code != 1 || !strings.Contains(r.errOut, "kept by 1 snapshot made from it, such as tiny") {
		t.Errorf("in use: %+v", r)
	}
	want(t, must(t, "snapshot", "rm", "tiny", short), "removed tiny\nremoved sha256:DIGEST\n")
	want(t, must(t, "snapshot", "ls"), "no snapshots\n")
	entries, err := os.ReadDir(filepath.Join("store", "snapshots"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestDevices: the archive of a debootstrap directory was refused for its /dev/full. Device nodes are left
// out, and counted: steps have a /dev of their own.
func TestDevices(t *testing.T) {
	work(t)
	files(t, "dev.tar", map[string]string{"bin/hello": "x", "dev/null": ""})
	if out := must(t, "--driver", "copy", "import", "dev.tar", "tiny"); !strings.Contains(out, "left out: 1 device node\n") {
		t.Error(out)
	}
	for devices, says := range map[string]string{"refuse": "--devices skip leaves them out", "make": "without the device nodes of its layer (1); remove it, with what stands on it"} {
		if os.Geteuid() != 0 && devices == "make" {
			continue
		}
		if r := run(t, "", "import", "dev.tar", "tiny", "--devices", devices); r.code != 1 || !strings.Contains(r.errOut, says) {
			t.Errorf("--devices %s, when they were left out before: %+v", devices, r)
		}
	}
}

// TestErrors: each names what is meant and the next step, with the exit code.
func TestErrors(t *testing.T) {
	work(t)
	files(t, "bad.tar", map[string]string{"../evil": "x"})
	files(t, "more.tar", map[string]string{"bin/hello": "more", "etc/name": "more"})
	files(t, "inside.tar", map[string]string{"bad/../name": "x"})
	files(t, "dev.tar", map[string]string{"dev/null": ""})
	check(t, os.WriteFile("zeros.tar", make([]byte, 1<<20), 0o600))
	check(t, os.WriteFile("cut.tar", []byte("not an archive"), 0o600))
	try := func(code int, says string, args ...string) {
		t.Helper()
		r := run(t, "", args...)
		if r.code != code || !strings.Contains(r.errOut, says) || r.out != "" {
			t.Errorf("%q: %+v, and should end with %d and say %q", args, r, code, says)
		}
	}
	try(1, "there is no store; holdfastd import makes one", "snapshot", "ls")
	try(1, "there is no store", "df")
	try(1, "nothing.tar: no such file", "import", "nothing.tar", "x")
	if _, err := os.Stat("store"); err == nil {
		t.Error("a command that failed has made a store")
	}
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	try(1, `entry "../evil": refused: a name with .. in it; the archive must not be used as it is`, "import", "bad.tar", "x")
	try(1, "--devices skip leaves them out", "import", "dev.tar", "x", "--devices", "refuse")
	try(1, "a name with .. in it", "import", "inside.tar", "x")
	try(1, "it begins with zeros", "import", "zeros.tar", "x")
	try(2, "a part between slashes is empty, . or ..", "import", "files.tar", "bad/../name")
	try(1, "malformed: cut off", "import", "cut.tar", "x")
	try(1, "allow more with --max-bytes", "import", "more.tar", "x", "--max-entries", "1")
	try(1, "leave --driver out", "--driver", "overlay", "snapshot", "ls")
	try(1, "holdfastd snapshot ls lists all names", "snapshot", "stat", "nobody")
	try(1, "and whether this machine reaches it", "pull", "127.0.0.1:1/x")
	try(1, "not an OCI image layout", "import", ".")
	try(2, `there is no completion for the shell "tcsh"; there is for bash, fish, powershell, zsh`, "completion", "tcsh")
	try(2, `there is no driver "ext9"; there are overlay, copy`, "--driver", "ext9", "snapshot", "ls")
	try(2, "SOURCE is missing", "import")
	try(2, "Usage: holdfastd import", "import", "a", "b", "c")
	try(2, "--devices is", "import", "files.tar", "--devices", "all")
	try(2, "--max-bytes", "import", "files.tar", "--max-bytes", "0")
	try(2, "a platform is OS/ARCHITECTURE", "import", "files.tar", "--platform", "linux")
	try(2, "cannot be read from standard input", "import", "-", "--format", "oci")
	try(2, "are those of other snapshots", "import", "files.tar", "sha256:x")
	try(2, "the name is empty", "import", "files.tar", "")
	try(2, "--driver is empty; give a value, or leave the flag out", "snapshot", "ls", "--driver", "")
	try(2, "--filter is empty", "prune", "--filter", "")
	try(2, "--rate 0: no bound: give at least 1, or leave the flag out", "verify", "--rate", "0")
	try(2, `invalid duration "0": 0 is not a bound; leave it out instead`, "prune", "--keep", "0")
	try(2, `"[" is not a regular expression: missing closing ]`, "prune", "--filter", "name~=[")
	try(2, "PATH is missing", "mount", "tiny")
	try(2, `unexpected argument "c"`, "mount", "a", "b", "c")
	try(125, "--cpus is NaN; it is a number of processors", "step", "--base", "tiny", "--cpus", "nan", "--", "true")
	other := must(t, "snapshot", "ls")
	files(t, "files.tar", map[string]string{"etc/name": "another"})
	try(1, "give another name, or --replace", "import", "files.tar", "tiny")
	if now := must(t, "snapshot", "ls"); steady(now) != steady(other) {
		t.Errorf("there was\n%s\nand is\n%s", other, now)
	}
	must(t, "import", "files.tar", "tiny", "--replace")
}

func TestStandardInput(t *testing.T) {
	work(t)
	b, err := os.ReadFile("files.tar")
	check(t, err)
	r := run(t, string(b), "--driver", "copy", "import", "-", "tiny")
	if r.code != 0 || !strings.Contains(r.out, "Layers    1, 1 new") {
		t.Errorf("%+v", r)
	}
	want(t, must(t, "import", "files.tar"), "Snapshot  sha256:DIGEST\nLayers  1, 0 new\n")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := runIn(t, ctx, string(b), "import", "-", "other"); r.code != 130 || !strings.Contains(r.errOut, "interrupted; nothing is left") {
		t.Errorf("interrupted: %+v", r)
	}
}

// Errors of standard input did not say that it was meant, and those of the output advised to free space on the disk of
// the store.
func TestErrorsOfStreams(t *testing.T) {
	work(t)
	r := run(t, strings.Repeat("no archive ", 100), "--driver", "copy", "import", "-", "x")
	if r.code != 1 || !strings.Contains(r.errOut, "import standard input: malformed: invalid tar header") {
		t.Errorf("%+v", r)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		return // it is Linux's
	}
	var errOut bytes.Buffer
	root := command.NewRootCommand()
	root.SetOut(full)
	root.SetErr(&errOut)
	root.SetArgs([]string{"--root", "store", "df"})
	if code := command.Execute(context.Background(), root); code != 1 || !strings.Contains(errOut.String(), "write the output") || strings.Contains(errOut.String(), "free some space") {
		t.Errorf("%d, %s", code, &errOut)
	}
	check(t, full.Close())
}

// There was no --version.
func TestVersion(t *testing.T) {
	if r := run(t, "", "--version"); r.code != 0 || !strings.HasPrefix(r.out, "holdfastd version ") || r.errOut != "" {
		t.Errorf("%+v", r)
	}
}

func TestCompletion(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	for args, offered := range map[string]string{"snapshot stat t": "tiny", "--driver e": "erofs", "import x --devices s": "skip", "mount t": "tiny", "import x --format o": "oci", "step --userns o": "off", "step --network h": "host"} {
		out := run(t, "", append([]string{"__complete"}, strings.Fields(args)...)...).out
		if !strings.HasPrefix(out, offered+"\n") {
			t.Errorf("%s: offered is %q, and should be %q", args, out, offered)
		}
	}
}

// TestDoctor: it says what is missing, with the package, and by the exit code.
func TestDoctor(t *testing.T) {
	work(t)
	t.Setenv("PATH", t.TempDir())
	r := run(t, "", "--driver", "erofs", "doctor")
	if r.code != 1 || !strings.Contains(r.out, "missing  mkfs.erofs") || !strings.Contains(r.out, "apt install erofs-utils") || !strings.Contains(r.out, "lacking  runc") {
		t.Errorf("without programs: %+v", r)
	}
	r = run(t, "", "doctor", "--json")
	var report struct {
		Driver   string
		OK       bool
		Findings []struct{ Topic, Name, State, Detail, Next string }
	}
	check(t, json.Unmarshal([]byte(r.out), &report))
	if report.OK != (r.code == 0) || os.Geteuid() == 0 && !report.OK || r.errOut != "" {
		t.Errorf("%+v", r)
	}
	for _, f := range report.Findings {
		if f.State != "ok" && f.Next == "" && f.Topic == "Programs" {
			t.Errorf("no next step: %+v", f)
		}
	}
	must := fmt.Sprintf("%+v", report.Findings)
	for _, name := range []string{"kernel", "privileges", "cgroups", "overlay", "openat2", "disk", "directory"} {
		if !strings.Contains(must, "Name:"+name+" ") {
			t.Errorf("nothing on %s", name)
		}
	}
}
