package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/bench/age/trace"
	"holdfast/test/record/hook"
)

// bbolt copies the module.
func bbolt(t *testing.T) (dir string) {
	t.Helper()
	source := strings.TrimSpace(goCommand(t, "list", "-m", "-f", "{{.Dir}}", "go.etcd.io/bbolt"))
	dir = filepath.Join(t.TempDir(), "bbolt")
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// program builds the program of testdata on a bbolt in a directory: a package internal to bbolt is part of it, so it is built there.
func program(t *testing.T, bbolt string) (path string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "program.go"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(bbolt, "internal", "program")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "main.go"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	// The versions of this module are those that it has been fetched with.
	mod := filepath.Join(t.TempDir(), "go.mod")
	for from, to := range map[string]string{"go.mod": mod, "go.sum": strings.TrimSuffix(mod, "mod") + "sum"} {
		b, err := os.ReadFile(filepath.Join("..", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goCommand(t, "mod", "edit", "-replace=go.etcd.io/bbolt="+bbolt, mod)
	path = filepath.Join(t.TempDir(), "program")
	goCommand(t, "build", "-modfile="+mod, "-o", path, "go.etcd.io/bbolt/internal/program")
	return path
}

// logged is what a log has, as text.
func logged(t *testing.T, dir, phase string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, phase+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := trace.ReadLog(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, tx := range all {
		for _, e := range tx {
			fmt.Fprintf(&b, "%c", e.Op)
			for _, n := range e.Bucket {
				fmt.Fprintf(&b, " %q", n.Text)
			}
			fmt.Fprintf(&b, " %q %d\n", e.Key.Text, e.Size)
		}
		fmt.Fprintln(&b, ".")
	}
	return b.String()
}

// TestInsert runs a program on bbolt with hooks. What it committed is logged, and nothing else.
func TestInsert(t *testing.T) {
	dir := bbolt(t)
	if err := Insert(dir); err != nil {
		t.Fatal(err)
	}
	path := program(t, dir)
	log := t.TempDir()
	run := func(env string, args ...string) ([]byte, error) {
		cmd := exec.Command(path, append([]string{t.TempDir()}, args...)...)
		cmd.Env = append(os.Environ(), hook.Env+"="+env)
		return cmd.CombinedOutput()
	}
	if out, err := run(log); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const first = `c "one.db" "a" "" 0
c "one.db" "a" "b" "" 0
p "one.db" "a" "b" "k1" 0
p "one.db" "a" "b" "k2" 4
p "one.db" "a" "k3" 5000
d "one.db" "a" "b" "k1" 0
.
c "two.db" "\x00\xff" "" 0
.
`
	if got := logged(t, log, "first"); got != first {
		t.Errorf("logged first\n%s", got)
	}
	if got, want := logged(t, log, "second"), "d \"one.db\" \"a\" \"b\" \"k2\" 0\n.\nx \"one.db\" \"a\" \"\" 0\n.\n"; got != want {
		t.Errorf("logged second\n%s", got)
	}
	if out, err := run(t.TempDir(), "move"); err == nil || !strings.Contains(string(out), "was moved") {
		t.Errorf("a bucket was moved: %v: %s", err, out)
	}
	if err := Insert(dir); err == nil {
		t.Error("hooks were inserted twice")
	}
}

// TestInsertElsewhere refuses a source that is not as bbolt's.
func TestInsertElsewhere(t *testing.T) {
	for _, change := range [][3]string{
		{"bucket.go", "func (b *Bucket) Put(", "func (b *Bucket) Set("},
		{"bucket.go", "type Bucket struct {", "type Pail struct {"},
		{"tx.go", "func (tx *Tx) Commit(", "func (tx Tx) Commit("},
		{"cursor.go", "package bbolt", "package"},
	} {
		dir := bbolt(t)
		file := filepath.Join(dir, change[0])
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), change[1], change[2], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Insert(dir); err == nil {
			t.Errorf("%s with %q for %q: no error", change[0], change[2], change[1])
		}
	}
	if err := Insert(t.TempDir()); err == nil {
		t.Error("an empty directory: no error")
	}
}
