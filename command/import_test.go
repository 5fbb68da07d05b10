package command_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/command"
)

const (
	exportHead = `{"format":"holdfast-export","version":1}` + "\n"
	exportEnd  = `{"end":true,"buckets":%d,"keys":%d}` + "\n"
)

// badInputs are inputs that cannot be imported into the sample, with what the error says.
var badInputs = []struct{ in, want string }{
	{"", "standard input: the input is empty: an export begins with a line that names its format"},
	{"\n", "line 1: this does not begin as an export: column 2: \"{\" expected"},
	{"\x1f\x8b\x08binary", "line 1: this does not begin as an export"},
	{strings.Repeat("x", 3000), "line 1: longer than 2.0 KiB; --max-line allows more"},
	{exportHead + strings.Repeat(" ", 3000) + "{}\n", "line 2: longer than 2.0 KiB"},
	{`{"format":"other","version":1}` + "\n", `line 1: the format is "other" and not "holdfast-export"`},
	{`{"format":"holdfast-export","version":2}` + "\n", "line 1: version 2 of the format: this command knows version 1"},
	{`{"bucket":["a"]}` + "\n", "line 1: the first line, and no other, is"},
	{exportHead + exportHead, "line 2: the first line, and no other, is"},
	{exportHead, "the input is cut off after line 1: the line is missing that ends an export"},
	{exportHead + `{"bucket":["alpha"],"key":"n","value":"v"}` + "\n", "the input is cut off after line 2"},
	{exportHead + `{"bucket":["alpha"],"key":"n","val`, "line 2: the input is cut off in this line: column 35: unexpected EOF"},
	{exportHead + fmt.Sprintf(exportEnd, 0, 9), "line 2: the export had 0 buckets and 9 keys, and here are 0 and 0"},
	{exportHead + fmt.Sprintf(exportEnd, 0, 0) + "{}\n", "line 3: something follows the line that ends an export"},
	{exportHead + "{}\n", "line 2: its fields are those of no line of an export"},
	{exportHead + "[]\n", `line 2: column 1: "{" expected`},
	{exportHead + `{"bucket":["a"]} x` + "\n", "line 2: column 18: something follows the object"},
	{exportHead + `{"bucket":["a"],"bucket":["a"]}` + "\n", `line 2: column 26: the field "bucket" is there twice`},
	{exportHead + `{"Bucket":["a"]}` + "\n", `unknown field "Bucket"`},
	{exportHead + `{"bucket":[]}` + "\n", "line 2: column 12"},
	{exportHead + `{"bucket":[""]}` + "\n", "a bucket without a name"},
	{exportHead + `{"bucket":["a" "b"]}` + "\n", `column 16: invalid character '"' after array element`},
	{exportHead + `{"bucket":"a"}` + "\n", `"[" expected`},
	{exportHead + `{"bucket":["a"],"sequence":-1}` + "\n", "a whole number of up to 64 bits expected"},
	{exportHead + `{"bucket":["a"],"sequence":01}` + "\n", "column 29: invalid character '1' after object value"},
	{exportHead + `{"bucket":["a"],"sequence":18446744073709551616}` + "\n", "a whole number of up to 64 bits expected"},
	{exportHead + `{"bucket":["a"],"key":"k"}` + "\n", "its fields are those of no line"},
	{exportHead + `{"bucket":["a"],"key":"k","value":null}` + "\n", "a string expected, or"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{}}` + "\n", "a string expected, or"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"rot13":"x"}}` + "\n", `unknown encoding "rot13": there are hex and base64`},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"hex":"0"}}` + "\n", "hex: encoding/hex: odd length"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"hex":"00","hex":"00"}}` + "\n", "a second encoding of the same"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"base64":"AP8"}}` + "\n", "base64: illegal base64"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"base64":"AP9="}}` + "\n", "base64: illegal base64"},
	{exportHead + `{"bucket":["a"],"key":"k","value":{"base64":"AP\n8="}}` + "\n", "base64: a line break in it"},
	{exportHead + "{\"bucket\":[\"a\"],\"key\":\"k\",\"value\":\"\xff\"}\n", "invalid UTF-8"},
	{exportHead + "{\"bucket\":[\"a\"],\"key\":\"k\",\"value\":\"\x01\"}\n", `invalid character '\x01' in string`},
	{exportHead + `{"bucket":["a"],"key":"k","value":"\x"}` + "\n", "invalid escape sequence"},
	{exportHead + `{"bucket":["a"],"key":"k","value":"\ud800"}` + "\n", "invalid surrogate pair"},
	{exportHead + `{"bucket":["a"],"key":"k","value":"\ud800\u0041"}` + "\n", "invalid surrogate pair"},
	{exportHead + `{"bucket":["a"],"key":"k","value":"\u00"}` + "\n", "invalid escape sequence"},
	{exportHead + `{"bucket":["a"],"key":"","value":"v"}` + "\n", "line 2: the key is empty"},
	{exportHead + `{"bucket":["alpha"],"key":"new","value":"v"}` + "\n" + `{"bucket":["alpha"],"key":"key-1","value":"v"}` + "\n",
		"line 3: key key-1 in alpha has another value already; nothing was imported; --replace replaces it\n"},
	{exportHead + `{"bucket":["many"],"sequence":8}` + "\n", "line 2: bucket many has the sequence 7 already, not 8; nothing was imported; --replace replaces it\n"},
	{exportHead + `{"bucket":["alpha","key-1"]}` + "\n", "line 2: alpha/key-1 is a key in sample.db and cannot be a bucket; nothing was imported\n"},
	{exportHead + `{"bucket":["alpha","key-1","x"],"key":"k","value":""}` + "\n", "line 2: alpha/key-1 is a key in sample.db and cannot be a bucket"},
	{exportHead + `{"bucket":["nested"],"key":"inner","value":""}` + "\n", "line 2: inner is a bucket in sample.db and cannot have a value"},
	{exportHead + `{"bucket":["new"],"key":"k","value":"1"}` + "\n" + `{"bucket":["new"],"key":"k","value":"2"}` + "\n", "line 3: key k in new has another value already"},
}

// importing runs import with an input.
func importing(in string, args ...string) result {
	return execute(command.NewRootCommand(), in, append([]string{"import"}, args...)...)
}

// TestImportRefuses inputs that are wrong, or do not fit: nothing changes, also where the wrong line
// comes after others. A dry run finds the same.
func TestImportRefuses(t *testing.T) {
	dir := withSample(t)
	before := snapshot(t, dir)
	good := exportHead + `{"bucket":["alpha"],"key":"another","value":"v"}` + "\n"
	for _, c := range badInputs {
		for _, args := range []string{"sample.db --max-line 2KiB", "sample.db --dry-run --max-line 2KiB"} {
			r := importing(c.in, strings.Fields(args)...)
			if r.code != 1 || r.out != "" || !strings.HasPrefix(r.errOut, "holdfast: standard input: ") || !strings.Contains(r.errOut, c.want) ||
				!strings.Contains(r.errOut, "; nothing was imported") {
				t.Errorf("import %s of %q: %s\nwant %s", args, c.in, r, c.want)
			}
		}
		if rest, ok := strings.CutPrefix(c.in, exportHead); ok {
			if r := importing(good+rest, "sample.db", "--max-line", "2KiB"); r.code != 1 {
				t.Errorf("import of %q: %s", good+rest, r)
			}
			if r := importing(good+rest, "new.db", "--create", "--max-line", "2KiB"); r.code != 1 &&
				!strings.Contains(c.want, "already") && !strings.Contains(c.want, "in sample.db") {
				t.Errorf("import into a new file of %q: %s", good+rest, r)
			}
			_ = os.Remove("new.db") // the sample was needed for the conflict
		}
	}
	long := strings.Repeat("k", 32769)
	wantIn(t, importing(exportHead+`{"bucket":["alpha"],"key":"`+long+`","value":""}`+"\n", "sample.db"), 1, "",
		"line 2: the key "+long[:60]+"... (32,769 bytes) is too large: at most 32 KiB (32,768 bytes)")
	for _, dry := range []string{"--dry-run=false", "--dry-run"} {
		wantIn(t, importing(exportHead+`{"bucket":["`+long+`"]}`+"\n", "sample.db", dry), 1, "", "of a bucket is too large: at most")
		deep := `{"bucket":[` + strings.Repeat(`"a",`, 10_000) + `"a"]}` + "\n"
		wantIn(t, importing(exportHead+deep, "sample.db", dry), 1, "", "a bucket in more than 10,000 others")
	}
	wantFiles(t, dir, "sample.db")
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
}

// TestDryRunWithinInput: what contradicts itself in the input is found without a database.
func TestDryRunWithinInput(t *testing.T) {
	workdir(t)
	key := func(bucket, key, value string) string {
		return fmt.Sprintf("{\"bucket\":[%s],\"key\":%q,\"value\":%q}\n", bucket, key, value)
	}
	for _, c := range []struct {
		lines string
		code  int
		want  string
	}{
		{key(`"a"`, "k", "1") + key(`"a"`, "k", "2"), 1, "line 3: key k in a has another value already"},
		{key(`"a"`, "k", "1") + `{"bucket":["a","k"]}` + "\n", 1, "line 3: a/k is both a key and a bucket in the input"},
		{key(`"a"`, "k", "1") + key(`"a","k","x"`, "y", "2"), 1, "line 3: a/k is both a key and a bucket in the input"},
		{`{"bucket":["a","k"]}` + "\n" + key(`"a"`, "k", "1"), 1, "line 3: a/k is both a key and a bucket in the input"},
		{key(`"a"`, "k", "1") + key(`"a"`, "j", "2") + fmt.Sprintf(exportEnd, 0, 2), 0, "The input is not in the order of the keys"},
		{key(`"a"`, "k", "1") + key(`"a"`, "k", "1") + fmt.Sprintf(exportEnd, 0, 2), 0, "2 keys would be imported into new.db"},
	} {
		r := importing(exportHead+c.lines, "new.db", "--create", "--dry-run")
		if r.code != c.code || !strings.Contains(r.out+r.errOut, c.want) || c.code == 0 && strings.Contains(r.out, "order") != strings.Contains(c.want, "order") {
			t.Errorf("dry run of %s: %s\nwant %s", c.lines, r, c.want)
		}
		if wet := importing(exportHead+c.lines, "new.db", "--create"); wet.code != c.code {
			t.Errorf("import of %s: %s", c.lines, wet)
		}
		_ = os.Remove("new.db")
	}
	wantFiles(t, ".", "")
}

// TestImportReplace replaces what is there only if it may, and leaves what is not in the input.
func TestImportReplace(t *testing.T) {
	withSample(t)
	in := exportHead + `{"bucket":["many"],"sequence":3}` + "\n" + `{"bucket":["alpha"],"key":"key-1","value":"\u00e9\ud83d\ude00\n"}` + "\r\n" +
		`  { "bucket" : [ { "hex" : "0001FEFF" } ] , "key" : {"base64":"AAH+/w=="} , "value" : { "hex" : "" } }  ` + "\n" + fmt.Sprintf(exportEnd, 1, 2)
	before := content(t, "sample.db")
	dry := importing(in, "sample.db", "--replace", "--dry-run")
	wantIn(t, dry, 0, "2 keys would be imported into sample.db: 0 new, 2 replaced, 0 unchanged; 0 buckets created, 1 sequence set\n", "")
	if content(t, "sample.db") != before {
		t.Error("a dry run changed the database")
	}
	wantIn(t, importing(in, "sample.db", "--replace"), 0, "2 keys imported into sample.db: 0 new, 2 replaced, 0 unchanged; 0 buckets created, 1 sequence set\n", "")
	want := strings.NewReplacer(
		"6d616e79 7\n", "6d616e79 3\n",
		fmt.Sprintf("%x=%x\n", "key-1", "value 1"), fmt.Sprintf("%x=%x\n", "key-1", "é😀\n"),
		"0001feff=ff0078\n", "0001feff=\n").Replace(before)
	if got := content(t, "sample.db"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A file that is empty is not a database yet, and keeps its mode.
	check(t, os.WriteFile("empty.db", nil, 0o640))
	check(t, os.Chmod("empty.db", 0o640))
	wantIn(t, importing(in, "empty.db"), 1, "", "empty.db: empty: not a bbolt database")
	wantIn(t, importing(in, "empty.db", "--create"), 0, "created the database empty.db\n", "")
	wantMode(t, "empty.db", 0o640)
}

// TestImportOvertaken: a database that another program makes under the name of a new one
// while its import goes on stays.
func TestImportOvertaken(t *testing.T) {
	dir := workdir(t)
	in, feed := io.Pipe()
	root := command.NewRootCommand()
	var out, errOut strings.Builder
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs([]string{"import", "new.db", "--create"})
	code := make(chan int)
	go func() { code <- command.Execute(t.Context(), root) }()
	_, err := io.WriteString(feed, exportHead)
	check(t, err)
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(dir)
		check(t, err)
		begun = len(entries) > 0
	}
	must(t, "put", "new.db", "theirs", "key", "value", "--create")
	want := content(t, "new.db")
	_, err = fmt.Fprintf(feed, exportEnd, 0, 0)
	check(t, err)
	check(t, feed.Close())
	if got := <-code; got != 1 || out.String() != "" || !strings.Contains(errOut.String(), "new.db: another program has made it") {
		t.Errorf("exit code %d: %s%s", got, out.String(), errOut.String())
	}
	if got := content(t, "new.db"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	wantFiles(t, dir, "new.db")
}

// TestCSV exports keys and values of any bytes as CSV and imports them, and takes columns from
// where they are.
func TestCSV(t *testing.T) {
	withSample(t)
	values := []string{"", "a,b", `"quoted"`, "two\nlines", "cr\r\nlf", "\x00\xff", "\ufeffé", `\.`, " space ", "\\x41"}
	lines, n := exportHead, 0
	for _, v := range values {
		lines += fmt.Sprintf("{\"bucket\":[\"b\"],\"key\":{\"hex\":\"%x\"},\"value\":{\"hex\":\"%x\"}}\n", "k"+v, v)
		n++
	}
	wantIn(t, importing(lines+fmt.Sprintf(exportEnd, 0, n), "a.db", "--create"), 0, "", "")
	for _, format := range []string{"hex", "ascii-encoded"} {
		for _, header := range []string{"--header=false", "--header"} {
			out := must(t, "export", "a.db", "b", "--csv", header, "--key-format", format, "--value-format", format)
			r := importing(out, "b.db", "b", "--csv", "--create", header, "--key-format", format, "--value-format", format)
			wantIn(t, r, 0, "10 keys imported into b.db: 10 new", "")
			must(t, "diff", "a.db", "b.db")
			check(t, os.Remove("b.db"))
		}
	}
	const asHex = "what is not text was written as hexadecimal, which import cannot tell from text; to import it again, export with --key-format hex --value-format hex"
	wantIn(t, run(t, "export", "a.db", "b", "--csv"), 0, "", asHex)
	if r := run(t, "export", "sample.db", "alpha", "--csv"); r.errOut != "" {
		t.Errorf("a note on text: %s", r.errOut)
	}
	must(t, "put", "empty.db", "in", "k", "v", "--create")
	must(t, "delete", "empty.db", "in", "k")
	wantIn(t, importing(must(t, "export", "empty.db", "in", "--csv"), "again.db", "in", "--csv", "--create"), 0, "0 keys imported into again.db", "")
	must(t, "diff", "empty.db", "again.db")
	check(t, os.WriteFile("rows.csv", []byte("\ufeffid,name,note\n1,anna,\"x,\n\"\"y\"\"\"\n2,bert,\n"), 0o600))
	must(t, "import", "c.db", "people", "--csv", "-i", "rows.csv", "--create", "--header", "--key-column", "name", "--value-column", "3")
	must(t, "import", "c.db", "ids", "in", "--csv", "-i", "rows.csv", "--create", "--header", "--key-column", "id", "--value-column", "name")
	if got, want := content(t, "c.db"), fmt.Sprintf("%[1]x 0\n%[1]x/%[2]x 0\n%[1]x/%[2]x/31=%[3]x\n%[1]x/%[2]x/32=%[4]x\n%[5]x 0\n%[5]x/%[3]x=%[6]x\n%[5]x/%[4]x=\n",
		"ids", "in", "anna", "bert", "people", "x,\n\"y\""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	dir := snapshot(t, ".")
	for _, c := range []struct {
		in, args string
		code     int
		want     string
	}{
		{"k\n", "alpha", 1, "standard input: line 1: there is no column 2: the row has 1 column; nothing was imported\n"},
		{"new,v\n\nkey-1,v\n", "alpha", 1, "standard input: line 3: key key-1 in alpha has another value already; nothing was imported; --replace replaces it"},
		{"new,\"v\n\nx", "alpha", 1, `standard input: line 1: extraneous or missing " in quoted-field; nothing was imported`},
		{"a,b\n\"x", "alpha", 1, "standard input: line 2: extraneous"},
		{"a,b\nc\"d,e\n", "alpha", 1, `standard input: line 2: bare " in non-quoted-field`},
		{",v\n", "alpha", 1, "line 1: the key is empty"},
		{"a,\"" + strings.Repeat("x", 100_000), "alpha", 1, "the row after that of line 0: longer than 1.0 KiB; --max-line allows more"},
		{"zz,v\n", "alpha --key-format hex", 1, "line 1: key zz: not hexadecimal"},
		{"zz,v\n", "alpha --value-format ascii-encoded", 1, "line 1: value v: not in quotes with escapes"},
		{"zz,`v`\n", "alpha --value-format ascii-encoded", 1, "line 1: value `v`: not in quotes with escapes"},
		{"", "alpha --header", 1, "standard input: the input is empty: there is no line with the names of the columns"},
		{"a,b\n", "alpha --header --key-column c", 2, `--key-column: no column has the name "c"; there are a, b`},
		{"a,a\n", "alpha --header --key-column a", 2, "--key-column: several columns have the name a; give a number"},
		{"a,b\n", "alpha --key-column c", 2, `--key-column: "c" is not a column number`},
		{"a,b\n", "alpha --key-column 0", 2, `--key-column: "0" is not a column number`},
		{"a,b\n", "alpha --key-column 2", 2, "the key and the value are both taken from column 2"},
		{"a,b\n", "alpa", 1, "sample.db: no bucket alpa; similar: alpha; list them with: holdfast buckets sample.db; --create creates it"},
		{"a,b\n", "alpha key-1 --create", 1, "alpha/key-1 is a key in sample.db and cannot be a bucket"},
		{"", "alpa", 1, "sample.db: no bucket alpa; "},
		{"", "alpha rows.csv", 1, "--create creates it; if the file rows.csv is the input, give it as --input\n"},
		{"a,b\n", "alpha --key-format octal", 2, "--key-format: unsupported format: octal"},
		{"a,b\n", "", 2, "BUCKET is missing: --csv is for one bucket"},
	} {
		r := importing(c.in, append([]string{"sample.db", "--csv", "--max-line", "1KiB"}, strings.Fields(c.args)...)...)
		if r.code != c.code || r.out != "" || !strings.Contains(r.errOut, c.want) {
			t.Errorf("import --csv %s of %.50q: %s\nwant %d, %s", c.args, c.in, r, c.code, c.want)
		}
	}
	if after := snapshot(t, "."); after != dir {
		t.Errorf("files changed: before\n%s\nafter\n%s", dir, after)
	}
}

// TestTransferUsage gives command lines that are wrong.
func TestTransferUsage(t *testing.T) {
	dir := withSample(t)
	must(t, "export", "sample.db", "-o", "x.jsonl")
	check(t, os.Mkdir("sub", 0o700))
	before := snapshot(t, dir)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"export", 2, "FILE is missing"},
		{"export sample.db --header", 2, "--header is for --csv"},
		{"export sample.db --key-format hex", 2, "--key-format is for --csv"},
		{"export sample.db --csv", 2, "--csv is for one bucket: name it after the file"},
		{"export sample.db --force", 2, "--force is for --output"},
		{"export sample.db alpha --csv --value-format x", 2, "--value-format: unsupported format: x"},
		{"export sample.db alpa", 1, "sample.db: no bucket alpa; similar: alpha"},
		{"export sample.db -o x.jsonl", 1, "x.jsonl: exists already; --force replaces it"},
		{"export sample.db -o sample.db --force", 2, "sample.db: the output cannot replace the database that it is made from"},
		{"export sample.db -o gone/x", 1, "gone/x: the directory gone does not exist"},
		{"export sample.db -o sub", 1, "sub: is not a regular file"},
		{"import", 2, "FILE is missing"},
		{"import gone.db x.jsonl", 1, "gone.db: no such file; --create makes it"},
		{"import gone.db x.jsonl --dry-run", 1, "gone.db: no such file; --create makes it"},
		{"import gone/gone.db x.jsonl --create", 1, "gone/gone.db: the directory gone does not exist"},
		{"import sample.db gone.jsonl", 1, "gone.jsonl: no such file"},
		{"import sample.db sub", 1, "sub: read: is a directory"},
		{"import sub x.jsonl --create", 1, "sub: is a directory; give a file"},
		{"import x.jsonl x.jsonl --create", 1, "x.jsonl: not a bbolt database"},
		{"import sample.db x.jsonl -i x.jsonl", 2, "the input is given twice: x.jsonl and --input x.jsonl"},
		{"import sample.db x.jsonl --header", 2, "--header is for --csv"},
		{"import sample.db x.jsonl --max-line x", 2, "--max-line x: not a size"},
		{"import sample.db x.jsonl --max-line 1B", 2, "--max-line 1B: outside of 1KiB to 8GiB"},
		{"diff sample.db", command.ExitTrouble, "B is missing"},
		{"diff sample.db gone.db", command.ExitTrouble, "gone.db: no such file"},
		{"diff gone.db sample.db", command.ExitTrouble, "gone.db: no such file"},
		{"diff sample.db sample.db alpa", command.ExitTrouble, "no bucket alpa; similar: alpha"},
		{"diff sample.db sample.db --format x", command.ExitTrouble, "--format: unsupported format: x"},
		{"diff sample.db x.jsonl", command.ExitTrouble, "x.jsonl: not a bbolt database"},
	} {
		r := run(t, strings.Fields(c.args)...)
		if r.code != c.code || r.out != "" || !strings.HasPrefix(r.errOut, "holdfast: ") || !strings.Contains(r.errOut, c.want) ||
			(c.code == 2) != strings.Contains(r.errOut, "\nUsage: ") && !strings.HasPrefix(c.args, "diff") {
			t.Errorf("holdfast %s: %s\nwant %d, %s", c.args, r, c.code, c.want)
		}
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("files changed: before\n%s\nafter\n%s", before, after)
	}
	stock := execute(command.NewBboltCommand(), "", "diff", "sample.db", "gone.db")
	wantIn(t, stock, command.ExitTrouble, "", "Error: gone.db: no such file\n")
	must(t, "put", "other.db", "b", "k", "v", "--create")
	stock = execute(command.NewBboltCommand(), "", "diff", "sample.db", "other.db", "b")
	if stock.code != command.ExitDifferent || stock.errOut != "" || !strings.HasPrefix(stock.out, "+ b/: a bucket with 1 key in it\n") {
		t.Errorf("got %s", stock)
	}
}
