package command_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast"
	"holdfast/command"
	"holdfast/command/exporter"
	"holdfast/internal/page"
)

var update = flag.Bool("update", false, "rewrite testdata")

// asCommand in the environment turns the test binary into the holdfast command.
const asCommand = "HOLDFAST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command.Execute(context.Background(), newRoot()))
	}
	// Files are read whole, by the hundred, and little else is in use: the usual 100 collects for
	// each, and takes half of all processor time.
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// result is what a command did.
type result struct {
	code   int
	out    string
	errOut string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout:\n%s\nstderr:\n%s", r.code, r.out, r.errOut)
}

func execute(root *cobra.Command, in string, args ...string) result {
	var out, errOut bytes.Buffer
	root.SetIn(strings.NewReader(in))
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(args)
	code := command.Execute(context.Background(), root)
	return result{code, out.String(), errOut.String()}
}

// run runs the holdfast command.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return execute(newRoot(), "", args...)
}

// must runs the holdfast command, which has to succeed quietly.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 || r.errOut != "" {
		t.Fatalf("holdfast %s: %s", strings.Join(args, " "), r)
	}
	return r.out
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// workdir makes an empty directory the working directory, so that file names
// in messages are short and always the same.
func workdir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	return dir
}

const samplePath = "testdata/sample.db"

// withSample is workdir with the sample database in it as sample.db.
func withSample(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(samplePath)
	check(t, err)
	dir := workdir(t)
	check(t, os.WriteFile("sample.db", data, 0o600))
	return dir
}

// binaryName is a bucket and a key that are not text.
var binaryName = []byte{0, 1, 0xfe, 0xff}

// smallPages makes a database with pages of 512 bytes, as bbolt does if it is asked for that,
// if they are to have so many.
func smallPages(t testing.TB, path string, pageSize int) {
	t.Helper()
	if pageSize == page.MinPageSize {
		if err := os.WriteFile(path, page.NewFile(pageSize, true), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// makeSample makes the database that the golden files are about: nested,
// inline and binary buckets, a value longer than a page, branches, free pages.
func makeSample(t *testing.T, path string) {
	t.Helper()
	_ = os.Remove(path)
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{PageSize: 1024, StrictCompat: true, SettleDelay: -1})
	check(t, err)
	update := func(fn func(*holdfast.Tx) error) { check(t, db.Update(fn)) }
	bucket := func(tx *holdfast.Tx, names ...string) *holdfast.Bucket {
		b, err := tx.CreateBucketIfNotExists([]byte(names[0]))
		check(t, err)
		for _, name := range names[1:] {
			b, err = b.CreateBucketIfNotExists([]byte(name))
			check(t, err)
		}
		return b
	}
	update(func(tx *holdfast.Tx) error {
		for i := range 3 {
			check(t, bucket(tx, "alpha").Put(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value %d", i)))
		}
		check(t, bucket(tx, "alpha").Put([]byte("empty"), nil))
		check(t, bucket(tx, string(binaryName)).Put(binaryName, []byte{0xff, 0, 'x'}))
		check(t, bucket(tx, "nested", "inner", "deep").Put([]byte("k"), []byte("v")))
		check(t, bucket(tx, "nested").Put([]byte("plain"), []byte("é\n")))
		return bucket(tx, "nested").Put([]byte("long"), bytes.Repeat([]byte("long "), 500))
	})
	for range 2 {
		update(func(tx *holdfast.Tx) error {
			for i := range 60 {
				check(t, bucket(tx, "many").Put(fmt.Appendf(nil, "%05d", i*37), make([]byte, 100)))
			}
			return nil
		})
	}
	update(func(tx *holdfast.Tx) error {
		for i := range 30 {
			check(t, bucket(tx, "many").Delete(fmt.Appendf(nil, "%05d", i*37)))
		}
		return bucket(tx, "many").SetSequence(7)
	})
	check(t, db.Close())
}

// golden compares got with testdata/NAME, and rewrites that with -update.
func golden(t *testing.T, dir, name, got string) {
	t.Helper()
	path := filepath.Join(dir, "testdata", name)
	if *update {
		check(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	check(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// snapshot is everything about the files of a directory that must not change.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	check(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode())
		if info.Mode().IsRegular() {
			fmt.Fprintln(&b, " ", info.ModTime().UnixNano())
			data, err := os.ReadFile(path)
			if os.IsPermission(err) {
				return nil
			}
			fmt.Fprintf(&b, "  %d %x\n", info.Size(), sha256.Sum256(data))
			return err
		}
		return nil
	}))
	return b.String()
}

// numbers are what differs from run to run.
var numbers = regexp.MustCompile(`\d+(\.\d+)?`)

func zero(s string) string { return numbers.ReplaceAllString(s, "0") }

func wantIn(t *testing.T, r result, code int, out, errOut string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.out, out) || !strings.Contains(r.errOut, errOut) {
		t.Errorf("got %s\nwant exit code %d, stdout with %q, stderr with %q", r, code, out, errOut)
	}
}

// contextDone is a context that has been cancelled.
func contextDone(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// newRoot has what the program has.
func newRoot() *cobra.Command { return command.NewRootCommand(exporter.NewCommand) }

// flagNames are the flags of a command, those of all commands among them.
func flagNames(cmd *cobra.Command) (names []string) {
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}
