package command_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/command"
)

// doctor printed nested/inner, and no command took it.
func TestBucketPaths(t *testing.T) {
	withSample(t)
	for _, c := range []struct{ args, same string }{
		{"keys sample.db nested/inner/deep", "keys sample.db nested inner deep"},
		{"keys sample.db nested inner/deep", "keys sample.db nested inner deep"},
		{"buckets sample.db nested/inner", "buckets sample.db nested inner"},
		{"get sample.db nested/inner/deep k", "get sample.db nested inner deep k"},
		{"get sample.db nested/inner/deep k --json", "get sample.db nested inner deep k --json"},
		{"export sample.db nested/inner", "export sample.db nested inner"},
		{"diff sample.db sample.db nested/inner", "diff sample.db sample.db nested inner"},
		{`keys sample.db \x00\x01\xfe\xff`, "keys sample.db --bucket-format hex 0001feff"},
		{"keys sample.db --bucket-format hex 6e6573746564/696e6e6572", "keys sample.db nested inner"},
	} {
		if got, want := must(t, strings.Fields(c.args)...), must(t, strings.Fields(c.same)...); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", c.args, got, want)
		}
	}
	must(t, "put", "sample.db", "new/path", "k", "v", "--create")
	must(t, "put", "sample.db", "new", "path", "k", "w")
	must(t, "delete", "sample.db", "new/path", "k")
	must(t, "put", "sample.db", `new\/path`, "k", "slash", "--create") // a bucket with a slash in its name
	if out := must(t, "keys", "sample.db", "new/path"); out != "k\n" {
		t.Errorf("a name comes before a path: %s", out)
	}
	if out := must(t, "keys", "sample.db", "new", "path"); out != "" {
		t.Errorf("a path in two arguments is that: %s", out)
	}
	must(t, "delete", "sample.db", `new\/path`, "--bucket")
	must(t, "delete", "sample.db", "new/path", "--bucket")
	if out := must(t, "buckets", "sample.db", "new"); out != "" {
		t.Errorf("left: %s", out)
	}
	check(t, os.WriteFile("rows.csv", []byte("a,1\nb,2\n"), 0o600))
	must(t, "import", "sample.db", "nested/inner", "--csv", "--input", "rows.csv")
	wantIn(t, run(t, "get", "sample.db", "nested", "inner", "b"), 0, "2\n", "")
	wantIn(t, run(t, "keys", "sample.db", "nested/inner/dep"), 1, "", "no bucket nested/inner/dep; similar: deep")
	// Where a path is printed it can be given.
	for _, name := range []string{"a/b", `back\slash`, "\x00\x01", "tab\t", "é/\xff"} {
		args := []string{"put", "paths.db", "--bucket-format", "hex", hexOf(name) + "/" + hexOf("in"), "k", "v", "--create"}
		out := must(t, args...)
		_, path, _ := strings.Cut(out[:strings.LastIndex(out, " to 1 byte")], "set k in ")
		if got := must(t, "keys", "paths.db", path); got != "k\n" {
			t.Errorf("%q is printed as %s, of which the keys are %s", name, path, got)
		}
	}
}

func hexOf(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	return b.String()
}

// To see whether there is a key, or how many, one had to print all.
func TestSomeKeys(t *testing.T) {
	workdir(t)
	for _, k := range []string{"a", "a1", "a2", "a3", "b"} {
		must(t, "put", "x.db", "b", k, "v", "--create")
	}
	must(t, "put", "x.db", "b/a4", "k", "v", "--create")
	for args, want := range map[string]string{
		"--prefix a": "a\na1\na2\na3\na4\n", "--prefix a --limit 2": "a\na1\n", "--limit 1": "a\n", "--limit 0 --prefix b": "b\n", "--prefix c": "",
		"--count": "6\n", "--prefix a --count": "5\n", "--count --limit 3": "3\n", "--prefix c --count": "0\n",
		"--prefix 6132 --parse-format hex": "a2\n",
	} {
		if got := must(t, append([]string{"keys", "x.db", "b"}, strings.Fields(args)...)...); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	wantIn(t, run(t, "keys", "x.db", "b", "--prefix", "a", "--limit", "2", "--json"), 0, `"count": 2`, "")
	wantIn(t, run(t, "keys", "x.db", "b", "--count", "--json"), 0, `"count": 6`, "")
	wantIn(t, run(t, "keys", "x.db", "b", "--limit", "-1"), command.ExitUsage, "", "--limit is -1")
}

// check and doctor took one file, and said of none in a word how it is.
func TestVerdicts(t *testing.T) {
	withSample(t)
	data, err := os.ReadFile("sample.db")
	check(t, err)
	clear(data[11*samplePage : 12*samplePage])
	check(t, os.WriteFile("bad.db", data, 0o600))
	makeBig(t, "bloated.db", 20_000)
	must(t, "delete", "bloated.db", "b", "--bucket")
	type answer struct {
		Files []struct {
			File, Verdict, Error string
		}
		Verdicts map[string]int
	}
	for _, c := range []struct {
		args, verdicts string
		code           int
	}{
		{"check sample.db bloated.db", "sound sound", 0},
		{"check sample.db bad.db", "sound damaged", command.ExitDamaged},
		{"check gone.db bad.db sample.db", "unknown damaged sound", command.ExitDamaged},
		{"check sample.db gone.db", "sound unknown", command.ExitFailed},
		{"check sample.db bloated.db --quick", "sound sound", 0},
		{"doctor sample.db bloated.db", "sound bloated", 0},
		{"doctor sample.db gone.db bloated.db", "sound unknown bloated", command.ExitFailed},
	} {
		r := run(t, append(strings.Fields(c.args), "--json")...)
		var got answer
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != c.code {
			t.Errorf("%s: %s", c.args, r)
			continue
		}
		var verdicts []string
		for i, f := range got.Files {
			if f.File != strings.Fields(c.args)[1+i] {
				t.Errorf("%s: file %d is %s", c.args, i, f.File)
			}
			verdicts = append(verdicts, f.Verdict)
		}
		if strings.Join(verdicts, " ") != c.verdicts {
			t.Errorf("%s: %v", c.args, verdicts)
		}
		text := run(t, strings.Fields(c.args)...)
		if text.code != c.code {
			t.Errorf("%s: %s", c.args, text)
		}
		for i, v := range verdicts {
			if line := got.Files[i].File + ": " + v + "\n"; !strings.Contains(text.out, line) {
				t.Errorf("%s: no %q in %s", c.args, line, text)
			}
		}
		if c.code != 0 {
			wantIn(t, text, c.code, "", "holdfast: of "+[]string{"", "", "2 files ", "3 files "}[len(verdicts)])
		}
	}
	wantIn(t, run(t, "check", "sample.db", "--json"), 0, `"verdict": "sound"`, "")
	wantIn(t, run(t, "check", "bad.db", "--json"), command.ExitDamaged, `"verdict": "damaged"`, `"kind":"damaged"`)
	wantIn(t, run(t, "doctor", "bloated.db", "--json"), 0, `"verdict": "bloated"`, "")
	wantIn(t, run(t, "check", "a", "b", "--from-page", "3"), command.ExitUsage, "", "--from-page is for one FILE")
}

// put --into names a row, and to get the blob back one had to look up its digest.
func TestBlobByRow(t *testing.T) {
	workdir(t)
	content := strings.Repeat("some text ", 1000)
	check(t, os.WriteFile("in", []byte(content), 0o600))
	for _, name := range []string{"readme", "dir/readme", `odd\name`} {
		must(t, "blob", "put", "x.db", "blobs", "in", "--create", "--into", "docs/texts", "--name", name)
		if out := must(t, "blob", "cat", "x.db", "blobs", "docs/texts/"+name); out != content {
			t.Errorf("%s: %d bytes", name, len(out))
		}
		must(t, "blob", "get", "x.db", "blobs", "docs/texts/"+name, "-o", "out", "--force")
		if out, err := os.ReadFile("out"); err != nil || string(out) != content {
			t.Errorf("%s: %v, %d bytes", name, err, len(out))
		}
		wantIn(t, run(t, "blob", "stat", "x.db", "blobs", "docs/texts/"+name), 0, "Digest ", "")
	}
	must(t, "put", "x.db", "docs", "plain", "no reference")
	wantIn(t, run(t, "blob", "cat", "x.db", "blobs", "docs/plain"), 1, "", "row docs/plain does not hold a reference to a blob")
	for _, none := range []string{"docs/texts/gone", "docs/texts", "gone/readme", "docs/", "/", "docs/texts/readme/x"} {
		wantIn(t, run(t, "blob", "cat", "x.db", "blobs", none), 1, "", "x.db: no row "+none+"; give a digest, or BUCKET/KEY as of put --into")
	}
}

// A diff of databases with long values filled the terminal, and a file, with them.
func TestDiffCutsLongValues(t *testing.T) {
	workdir(t)
	long := strings.Repeat("long ", 100)
	must(t, "put", "a.db", "b", "k", long+"A", "--create")
	must(t, "put", "b.db", "b", "k", long+"B", "--create")
	r := run(t, "diff", "a.db", "b.db")
	if r.code != command.ExitDifferent || len(r.out) > 400 || !strings.Contains(r.out, "... (501 bytes)") {
		t.Errorf("%s", r)
	}
	for _, args := range []string{"--full", "--format bytes", "--json"} {
		r := run(t, append([]string{"diff", "a.db", "b.db"}, strings.Fields(args)...)...)
		if !strings.Contains(r.out, long+"A") || !strings.Contains(r.out, long+"B") {
			t.Errorf("%s: %s", args, r)
		}
	}
}
