package command_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/command"
)

// vacuumed is what the command says as JSON.
type vacuumed struct {
	File        string `json:"file"`
	DryRun      bool   `json:"dry_run"`
	Done        bool   `json:"vacuumed"`
	Interrupted bool   `json:"interrupted"`
	Before      int64  `json:"size_before_bytes"`
	After       int64  `json:"size_after_bytes"`
	GivenBack   int64  `json:"given_back_bytes"`
	Estimate    int64  `json:"size_after_bytes_estimate"`
	Gain        int64  `json:"given_back_bytes_estimate"`
	FreeBefore  int64  `json:"free_before_bytes"`
	Written     int64  `json:"written_bytes"`
	Steps       int    `json:"steps"`
}

func vacuumJSON(t *testing.T, args ...string) (v vacuumed, out string) {
	t.Helper()
	out = must(t, append([]string{"vacuum", "--json"}, args...)...)
	check(t, json.Unmarshal([]byte(out), &v))
	return v, out
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	check(t, err)
	return info.Size()
}

// makeBloated makes a database of which most is free pages: n keys were put, one of
// ten is left.
func makeBloated(t *testing.T, path string, n int) {
	t.Helper()
	db, err := holdfast.Open(path, 0o640, &holdfast.Options{NoSync: true, PageSize: 4096})
	check(t, err)
	each := func(do func(b *holdfast.Bucket, i int)) {
		for at := 0; at < n; at += 1000 {
			check(t, db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				for i := at; i < min(at+1000, n); i++ {
					do(b, i)
				}
				return err
			}))
		}
	}
	each(func(b *holdfast.Bucket, i int) { check(t, b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 1000))) })
	each(func(b *holdfast.Bucket, i int) {
		if i%10 != 0 {
			check(t, b.Delete(fmt.Appendf(nil, "%08d", i)))
		}
	})
	check(t, db.Close())
}

// off is by which share a differs from b, but for 64 KiB.
func off(a, b int64) float64 {
	return max(math.Abs(float64(a-b))-64<<10, 0) / float64(b)
}

// TestVacuum: the file becomes as short as a copy by compact, about, and says the
// same; estimate and result are what the file has.
func TestVacuum(t *testing.T) {
	dir := workdir(t)
	makeMixed(t, "mixed.db", &holdfast.Options{NoSync: true, PageSize: 4096})
	makeBloated(t, "bloated.db", 20_000)
	for _, file := range []string{"bloated.db", "mixed.db"} {
		check(t, os.Chmod(file, 0o640))
		want, before, was := content(t, file), fileSize(t, file), snapshot(t, dir)
		must(t, "compact", "-o", "copy.db", file)
		compacted := fileSize(t, "copy.db")
		check(t, os.Remove("copy.db"))

		dry, _ := vacuumJSON(t, file, "--dry-run")
		if !dry.DryRun || dry.Done || dry.Before != before || dry.After != before || dry.Written != 0 || dry.Gain != before-dry.Estimate {
			t.Errorf("%s: %+v", file, dry)
		}
		out := must(t, "vacuum", file, "--dry-run")
		if !strings.HasPrefix(out, file+": about ") || !strings.Contains(out, " can be given back; about ") || strings.Count(out, "\n") != 1 {
			t.Errorf("got %q", out)
		}
		if now := snapshot(t, dir); now != was {
			t.Errorf("--dry-run changed files: before\n%s\nafter\n%s", was, now)
		}

		out = must(t, "vacuum", file)
		after := fileSize(t, file)
		t.Logf("a copy has %d bytes, %+v\n%s", compacted, dry, out)
		if lines := strings.Split(out, "\n"); len(lines) != 4 || !strings.Contains(lines[1], fmt.Sprintf("%s: ", file)) ||
			!strings.Contains(lines[1], " -> ") || !strings.Contains(lines[2], " written in ") {
			t.Errorf("got %q", out)
		}
		if off(after, compacted) > 0.05 || off(after, dry.Estimate) > 0.05 {
			t.Errorf("%s has %d bytes, a copy %d, estimated were %d", file, after, compacted, dry.Estimate)
		}
		if content(t, file) != want {
			t.Errorf("%s: the content is another", file)
		}
		wantIn(t, run(t, "check", file), 0, ": sound\n", "")
		wantIn(t, run(t, "info", file), 0, "for bbolt there is the freelist in page ", "")
		wantMode(t, file, 0o640)

		// What is left is not tried again.
		was = snapshot(t, dir)
		out = must(t, "vacuum", file)
		if !strings.HasPrefix(out, file+": nothing to do: about ") || strings.Count(out, "\n") != 1 {
			t.Errorf("the second time: %q", out)
		}
		if now := snapshot(t, dir); now != was {
			t.Errorf("nothing to do, and files changed: before\n%s\nafter\n%s", was, now)
		}
	}
}

// durationMS is the only figure of a vacuum of the sample that is another each time.
var durationMS = regexp.MustCompile(`"duration_ms": [0-9]+`)

func TestVacuumJSON(t *testing.T) {
	here, err := os.Getwd()
	check(t, err)
	dir := withSample(t)
	before := snapshot(t, dir)
	v, out := vacuumJSON(t, "sample.db")
	golden(t, here, "vacuum-none.json.golden", durationMS.ReplaceAllString(out, `"duration_ms": 0`))
	if v.Done || v.DryRun || v.GivenBack != 0 || v.Before != 32768 || v.After != 32768 {
		t.Errorf("%+v", v)
	}
	golden(t, here, "vacuum-none.golden", must(t, "vacuum", "sample.db"))
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	makeBloated(t, "bloated.db", 20_000)
	size := fileSize(t, "bloated.db")
	v, out = vacuumJSON(t, "bloated.db")
	golden(t, here, "vacuum.json.golden", zero(out))
	if !v.Done || v.DryRun || v.Before != size || v.After != fileSize(t, "bloated.db") || v.GivenBack != size-v.After ||
		v.GivenBack < size/2 || v.FreeBefore < size/2 || v.Steps == 0 || v.Written < 4096 || v.Written > size {
		t.Errorf("of a file of %d bytes: %+v", size, v)
	}
}

// TestVacuumRefuses: a file that nothing can work on stays as it is.
func TestVacuumRefuses(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			dir := withSample(t)
			if c.make != nil {
				c.make(t)
			}
			before := snapshot(t, dir)
			for _, args := range [][]string{{"vacuum", c.file}, {"vacuum", c.file, "--dry-run"}, {"vacuum", c.file, "--json"}} {
				r := run(t, append(args, "--timeout", "10ms")...)
				want := "holdfast: " + c.want
				if slices.Contains(args, "--json") {
					want = `{"error":{"message":"` + c.want
				}
				if r.code != command.ExitFailed || !strings.HasPrefix(r.errOut, want) || r.out != "" {
					t.Errorf("holdfast %s: %s\nwant %s", strings.Join(args, " "), r, want)
				}
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
			}
		})
	}
	wantIn(t, run(t, "vacuum"), command.ExitUsage, "", "FILE is missing")
	wantIn(t, run(t, "vacuum", "a", "b"), command.ExitUsage, "", "unexpected argument \"b\"")
	wantIn(t, execute(command.NewBboltCommand(), "", "vacuum", "sample.db"), command.ExitUsage, "", `unknown command "vacuum"`)
	wantIn(t, run(t, "completion", "bash"), 0, "holdfast", "")
	wantIn(t, run(t, "__complete", "vac"), 0, "vacuum\tMake the file of a database shorter", "")
	wantIn(t, run(t, "__complete", "vacuum", "x.db", "--dry"), 0, "--dry-run\t", "")
}

// TestVacuumLocked: who cannot stop the program is told what else there is.
func TestVacuumLocked(t *testing.T) {
	withSample(t)
	db, err := holdfast.Open("sample.db", 0o600, nil)
	check(t, err)
	defer db.Close()
	for _, args := range []string{"", "--dry-run"} {
		r := run(t, append([]string{"vacuum", "sample.db", "--timeout", "10ms"}, strings.Fields(args)...)...)
		wantIn(t, r, 1, "", "sample.db: locked by another process for longer than 10ms")
		wantIn(t, r, 1, "", "; stop that program, or wait longer with --timeout; a program can also vacuum its own file while it runs: see docs/operating.md\n")
	}
}

// firstLeaf is the page of the first leaf of a bucket, in a file with pages of 4096 bytes.
func firstLeaf(t *testing.T, path, bucket string) (id uint64) {
	t.Helper()
	const flags, leaf, child = 8, 2, 16 + 8 // in a page; in a branch page
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	check(t, db.View(func(tx *holdfast.Tx) error {
		id = uint64(tx.Bucket([]byte(bucket)).RootPage())
		return nil
	}))
	data, err := os.ReadFile(path)
	check(t, err)
	for binary.NativeEndian.Uint16(data[id*4096+flags:]) != leaf {
		id = binary.NativeEndian.Uint64(data[id*4096+child:])
	}
	return id
}

// TestVacuumDamaged: all that is in use is read before anything is written.
func TestVacuumDamaged(t *testing.T) {
	dir := workdir(t)
	makeBloated(t, "bloated.db", 20_000)
	leaf := firstLeaf(t, "bloated.db", "b")
	damage(t, "bloated.db", func(b []byte) []byte { b[leaf*4096+11] = 0x7f; return b }) // its number of elements
	before := snapshot(t, dir)
	for _, args := range []string{"", "--dry-run", "--json"} {
		r := run(t, append([]string{"vacuum", "bloated.db"}, strings.Fields(args)...)...)
		first := "nothing was changed: "
		if args == "--dry-run" { // then it goes without saying
			first = ""
		}
		wantIn(t, r, command.ExitFailed, "", fmt.Sprintf("bloated.db: %sdamaged: page %d: ", first, leaf))
		wantIn(t, r, command.ExitFailed, "", "; run: holdfast check bloated.db")
		if r.out != "" {
			t.Errorf("%q was printed", r.out)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestVacuumInterrupted: wherever it ends, the content is the same, and the next run
// goes on.
func TestVacuumInterrupted(t *testing.T) {
	dir := workdir(t)
	makeBloated(t, "bloated.db", 50_000)
	want, before := content(t, "bloated.db"), snapshot(t, dir)
	for after := time.Duration(0); ; after += 4 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		root := command.NewRootCommand()
		var out, errOut strings.Builder
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs([]string{"vacuum", "bloated.db", "--json"})
		code := command.Execute(ctx, root)
		cancel()
		var v vacuumed
		check(t, json.Unmarshal([]byte(out.String()), &v))
		if v.After != fileSize(t, "bloated.db") || v.Interrupted != (code == 1) {
			t.Errorf("after %s: exit code %d, %+v", after, code, v)
		}
		if content(t, "bloated.db") != want {
			t.Fatalf("after %s: the content is another", after)
		}
		if code == 0 {
			break
		}
		t.Logf("after %s: %s", after, errOut.String())
		if !strings.HasPrefix(errOut.String(), `{"error":{"message":"bloated.db: interrupted`) || !strings.Contains(errOut.String(), `; run it again","kind":`) {
			t.Errorf("after %s: exit code %d, %s", after, code, &errOut)
		}
		if after == 0 && snapshot(t, dir) != before {
			t.Error("interrupted at once, it changed files")
		}
	}
	wantIn(t, run(t, "vacuum", "bloated.db"), 0, "nothing to do", "")
	wantIn(t, run(t, "check", "bloated.db"), 0, ": sound\n", "")
}

// TestVacuumWhatWasLeft: of a file that was not closed the newest state is kept.
func TestVacuumWhatWasLeft(t *testing.T) {
	workdir(t)
	db, err := holdfast.Open("live.db", 0o600, &holdfast.Options{SettleDelay: -1, PageSize: 4096})
	check(t, err)
	put := func(key string, size int) {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			check(t, err)
			return b.Put([]byte(key), make([]byte, size))
		}))
	}
	put("large", 2<<20)
	put("large", 10)
	put("last", 20)
	data, err := os.ReadFile("live.db")
	check(t, err)
	check(t, db.Close())
	check(t, os.WriteFile("left.db", data, 0o600))
	wantIn(t, run(t, "vacuum", "left.db"), 0, "given back", "")
	wantIn(t, run(t, "info", "left.db"), 0, "\nbbolt finds  the newest state\n", "")
	if got, want := content(t, "left.db"), content(t, "live.db"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if size := fileSize(t, "left.db"); size > 100<<10 {
		t.Errorf("the file has %d bytes", size)
	}
}

// TestVacuumTorn: that the last flush is not there is told before the file is written and nothing
// shows it any more.
func TestVacuumTorn(t *testing.T) {
	withSample(t)
	damage(t, "sample.db", func(b []byte) []byte { b[samplePage+metaChecksum]++; return b })
	for _, args := range []string{"vacuum sample.db --dry-run", "vacuum sample.db"} {
		wantIn(t, run(t, strings.Fields(args)...), 0, "", "holdfast: note: meta page 1 is not whole (checksum error), the other one is used: the last flush is not there: ")
	}
}
