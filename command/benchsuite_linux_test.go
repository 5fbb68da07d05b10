package command_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/command"
)

// TestBenchRunSignal: Ctrl-C ends the process in the middle of its work, and no file is left.
func TestBenchRunSignal(t *testing.T) {
	withoutSettings(t)
	dir := workdir(t)
	cmd := process(t, "bench", "run", "commit", "--time", "1h", "--dir", dir)
	out, err := cmd.StdoutPipe()
	check(t, err)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	check(t, cmd.Start())
	lines := bufio.NewReader(out)
	for range 2 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatalf("%v: %s", err, &errOut)
		}
	}
	check(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, lines)
	check(t, err)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != command.ExitInterrupted || !strings.Contains(errOut.String(), "interrupted, the files were removed") {
		t.Errorf("exit code %d, %s", code, &errOut)
	}
	wantFiles(t, dir, "")
}

// TestTemporaryFilesAndClosedPipe: when what is printed has no reader the process ends soon,
// without an error, and no file is left. (demo left its directory: SIGPIPE ended it.)
func TestTemporaryFilesAndClosedPipe(t *testing.T) {
	withoutSettings(t)
	for _, args := range [][]string{
		{"bench", "run", "commit", "--time", "1h"},
		{"demo", "--size", "8MiB", "--time", "1ms"},
	} {
		dir := workdir(t)
		cmd := process(t, append(args, "--dir", dir)...)
		out, err := cmd.StdoutPipe()
		check(t, err)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		check(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 1))
		check(t, err)
		check(t, out.Close())
		if err := cmd.Wait(); err != nil || errOut.Len() > 0 {
			t.Errorf("%s: %v: %s", args[0], err, &errOut)
		}
		wantFiles(t, dir, "")
	}
}

// TestBenchRunFull: a disk without the room is left alone, and one that gets full meanwhile
// is an error that names the file; nothing is left.
func TestBenchRunFull(t *testing.T) {
	withoutSettings(t)
	dir := workdir(t)
	check(t, os.Mkdir("small", 0o755))
	if err := unix.Mount("tmpfs", "small", "tmpfs", 0, "size=170m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "small"), unix.MNT_DETACH) })
	wantIn(t, run(t, "bench", "run", "aged", "--dir", "small", "--size", "40MiB"), 1, "",
		"holdfast: small: its disk has 170 MiB left, and up to 176 MiB are written; give another place with --dir, or a smaller --size\n")
	wantFiles(t, "small", "")
	for workload, file := range map[string]string{
		"aged": "aged-young", "commit": "commit-update", "readers": "readers", "scan": "scan", "import": "import-in_order",
		"large": "large", "open": "open-young", "vacuum": "vacuum",
	} {
		fill := func() {
			f, err := os.Create("small/other")
			check(t, err)
			defer f.Close()
			if _, err := io.Copy(f, endless{}); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
				t.Errorf("the disk is not full: %v", err)
			}
		}
		root := command.NewRootCommand()
		var errOut bytes.Buffer
		root.SetOut(&whenSays{text: "To write a page", do: fill})
		root.SetErr(&errOut)
		root.SetArgs([]string{"bench", "run", workload, "--dir", "small", "--count", "2", "--size", "1MiB"})
		want := regexp.MustCompile(`^holdfast: small/holdfast-bench-\d+/` + file + `\.db: no space left on its disk; free some space on that disk and try again\n$`)
		if code := command.Execute(t.Context(), root); code != 1 || !want.MatchString(errOut.String()) {
			t.Errorf("%s: exit code %d, %s", workload, code, &errOut)
		}
		wantFiles(t, "small", "other")
		check(t, os.Remove("small/other"))
	}
}

// endless is a source without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
