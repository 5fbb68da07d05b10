package command_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/worker/command"
)

var update = flag.Bool("update", false, "write the outputs that docs/holdfastd.md shows anew")

const docsPath = "../../docs/holdfastd.md"

// Figures and names that vary, of what is shown and what is printed.
var varies = []struct{ is, reads string }{
	{`[0-9a-f]{64}`, "DIGEST"}, {`\b[0-9a-f]{12}\b`, "DIGEST"},
	{`/tmp/\S*/store\b`, "/var/lib/holdfast"},
	{`\bholdfastd --root store --run run\b`, "holdfastd"},
	{`\d+ (second|minute)s? ago|\bnow\b`, "AGO"}, {`just AGO`, "AGO"},
	{`\d[\d.,:]*(m?s)?\b`, "N"}, {`N (B|KiB|MiB|GiB|TiB)\b`, "SIZE"}, {`\((ext4|xfs|btrfs|tmpfs)\)`, "(FS)"},
	{` {2,}`, "  "},
}

func masked(s string) string {
	for _, v := range varies {
		s = regexp.MustCompile(v.is).ReplaceAllString(s, v.reads)
	}
	return s
}

// page goes through the page, and runs what it shows.
type page struct {
	t          *testing.T
	dirs       map[string]string // sections -> working directories
	ids        map[string]string // of digests that are shown, what they are here
	section    string
	code       int
	shown, now strings.Builder
}

var someID = regexp.MustCompile(`\b([0-9a-f]{12})(?:[0-9a-f]{52})?\b`)

// run runs a line of the page, below which it shows so much.
func (p *page) run(line, shows string) {
	line = someID.ReplaceAllStringFunc(line, func(id string) string {
		if here := p.ids[id]; here != "" {
			return here
		}
		return id
	})
	printed := fmt.Sprintln(p.code)
	if args, ok := strings.CutPrefix(line, "holdfastd "); ok {
		if dir := p.dirs[p.section]; dir != "" {
			p.t.Chdir(dir)
		}
		r := run(p.t, "", split(strings.TrimSpace(args))...)
		p.code, printed = r.code, r.out+r.errOut
	}
	there, here := someID.FindAllStringSubmatch(shows, -1), someID.FindAllStringSubmatch(printed, -1)
	for i := range min(len(there), len(here)) {
		p.ids[there[i][1]] = here[i][1]
	}
	dir, err := os.Getwd()
	check(p.t, err)
	printed = strings.NewReplacer(filepath.Join(dir, "store"), command.DefaultRoot, filepath.Join(dir, "at"), "/mnt").Replace(printed)
	if p.section == "mount" { // its first column is as wide as the path was
		printed = regexp.MustCompile(` {2,}`).ReplaceAllString(printed, "  ")
	}
	p.shown.WriteString(line + "\n" + shows)
	p.now.WriteString(line + "\n" + printed)
}

// archives makes those that the page imports.
func archives(t *testing.T) {
	t.Helper()
	files(t, "bad.tar", map[string]string{"../evil": "x"})
	f, err := os.Create("files.tar.gz")
	check(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, name := range []string{"etc/hosts", "etc/name"} {
		check(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(name)), Mode: 0o644, Uid: os.Geteuid(), Gid: os.Getegid()}))
		_, err := w.Write([]byte(name))
		check(t, err)
	}
	check(t, w.Close())
	check(t, z.Close())
	check(t, f.Close())
}

// TestDocs runs the commands that docs/holdfastd.md shows, one after the other, and compares what they
// print, but for figures and digests. With -update the page gets what they print now.
func TestDocs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs steps and mounts")
	}
	data, err := os.ReadFile(docsPath)
	check(t, err)
	path, err := filepath.Abs(docsPath)
	check(t, err)
	one, two := t.TempDir(), t.TempDir()
	p := &page{t: t, ids: map[string]string{}, dirs: map[string]string{"import": one, "snapshot": one, "mount": one, "step": two, "logs": two, "df": two, "prune": two}}
	t.Chdir(one)
	archives(t)
	check(t, os.Mkdir("at", 0o755))
	t.Chdir(two)
	busybox(t)
	must(t, "import", "busybox.tar", "busybox")
	check(t, os.Mkdir("src", 0o755))
	check(t, os.WriteFile("src/main", []byte("int main;\n"), 0o644))
	var page strings.Builder
	for part := range strings.SplitSeq(string(data), "```") {
		if head := strings.LastIndex(part, "\n## "); head >= 0 {
			p.section, _, _ = strings.Cut(strings.TrimSpace(part[head+4:]), " ")
			p.section, _, _ = strings.Cut(p.section, "\n")
		}
		if page.Len() > 0 {
			page.WriteString("```")
		}
		first := strings.HasPrefix(part, "text\n$ ")
		if !first || p.section == "doctor" {
			page.WriteString(part)
			continue
		}
		if p.section == "mount" {
			t.Chdir(one)
			defer whileMounted(t, "tiny", "at")()
		}
		p.shown.Reset()
		p.now.Reset()
		for command := range strings.SplitSeq(strings.TrimPrefix(part, "text\n$ "), "\n$ ") {
			line, shows, _ := strings.Cut(command, "\n")
			if shows != "" && !strings.HasSuffix(shows, "\n") {
				shows += "\n"
			}
			before := p.now.Len()
			p.run(line, shows)
			if before == 0 {
				page.WriteString("text\n")
			}
			page.WriteString("$ " + p.now.String()[before:])
		}
		if shown, now := masked(p.shown.String()), masked(p.now.String()); shown != now && !*update {
			t.Errorf("section %s shows\n%s\nand printed is\n%s", p.section, shown, now)
		}
	}
	if *update {
		check(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
}

// whileMounted mounts a snapshot until the function is called that it returns.
func whileMounted(t *testing.T, name, path string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := &watched{wrote: make(chan struct{}, 1)}
	root := command.NewRootCommand()
	root.SetOut(out)
	root.SetErr(io.Discard) // the manager tells of what it has found
	root.SetArgs([]string{"--root", "store", "--run", "run", "mount", name, path})
	ended := make(chan int, 1)
	go func() { ended <- command.Execute(ctx, root) }()
	select {
	case <-out.wrote:
	case code := <-ended:
		t.Fatalf("mounting ended with %d", code)
	}
	return func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("mounting ended with %d", code)
		}
	}
}

// block is the block of a section of the page.
func block(t *testing.T, section string) []string {
	t.Helper()
	data, err := os.ReadFile(docsPath)
	check(t, err)
	_, rest, ok := strings.Cut(string(data), "\n## "+section+"\n")
	parts := strings.SplitN(rest, "```", 3)
	if !ok || len(parts) != 3 {
		t.Fatalf("no block in the section %s", section)
	}
	return strings.Split(strings.TrimSpace(strings.TrimPrefix(parts[1], "text\n")), "\n")
}

// TestDocsDoctor: what the page shows of doctor is a part of what it prints. What it finds differs from
// machine to machine.
func TestDocsDoctor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: doctor has less to say to others")
	}
	lines := block(t, "doctor")
	t.Chdir(t.TempDir())
	printed := run(t, "", "doctor").out
	finding := regexp.MustCompile(`^  (ok|lacking|missing) +(\S+( \S+)*)  .*$`)
	for _, line := range lines[1:] {
		is := regexp.QuoteMeta(line)
		if m := finding.FindStringSubmatch(line); m != nil {
			is = "  (ok|lacking|missing) +" + regexp.QuoteMeta(m[2]) + "  .+"
		}
		if strings.HasPrefix(line, "Driver ") {
			is = `Driver overlay on linux/\w+`
		}
		if found, err := regexp.MatchString("(?m)^"+is+"$", printed); err != nil || !found {
			t.Errorf("the page shows %q, and printed is\n%s", line, printed)
		}
	}
}

// TestDocsTop: the page shows the screen that top draws while a step runs.
func TestDocsTop(t *testing.T) {
	shown := block(t, "top")
	stand(t, "overlay")
	t.Setenv("TERM", "dumb") // that draws the same without escapes
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	must(t, "import", "busybox.tar", "busybox")
	dir, err := os.Getwd()
	check(t, err)
	cmd := program("/proc/self/exe", dir, "--run", "run", "step", "--base", "busybox", "--", "sh", "-c", "echo begun; sleep 4 & yes >/dev/null")
	cmd.Args = append([]string{"holdfastd", "--root", "store"}, cmd.Args[3:]...)
	untilBegun(t, cmd)
	defer func() {
		check(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
	}()
	var drawn string
	tty, end := terminal(t, 24, 160, func(all string) { drawn = all })
	root := command.NewRootCommand()
	root.SetOut(tty)
	root.SetArgs([]string{"--root", "store", "--run", "run", "top", "--count", "1"})
	if code := command.Execute(ctx, root); code != 0 {
		t.Errorf("exit code %d", code)
	}
	end()
	// Of what a line says, all but figures; the columns of the step are those of the header.
	steady := func(lines []string) (all []string) {
		for _, line := range lines {
			line = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(line), "echo begun; ", ""), "--root store --run run ", "")
			line = strings.ReplaceAll(line, filepath.Join(dir, "store"), command.DefaultRoot)
			all = append(all, masked(line))
		}
		return all
	}
	got := strings.Join(steady(strings.Split(strings.TrimSpace(strings.ReplaceAll(drawn, "\r", "")), "\n")), "\n")
	if want := strings.Join(steady(shown), "\n"); got != want {
		t.Errorf("drawn is\n%s\nand the page shows\n%s", got, want)
	}
}

// TestDocsComplete: the page has all commands and all flags.
func TestDocsComplete(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	check(t, err)
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(data), "")
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if name := cmd.Name(); name == "help" || name == "completion" {
			return
		}
		if !strings.Contains(text, cmd.Name()) {
			t.Errorf("nothing on %s", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !regexp.MustCompile("`[^`]*--"+f.Name+"\\b[^`]*`").MatchString(text) {
				t.Errorf("%s: nothing on --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(command.NewRootCommand())
}
