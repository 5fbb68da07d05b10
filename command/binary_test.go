package command_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"holdfast"
)

// hardNames are names, keys and values that are hard to print.
func hardNames() [][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	names := [][]byte{
		all, bytes.Repeat(all, holdfast.MaxKeySize/256), {0}, {0xff}, {0xff, 0xfe, 0}, []byte("\n"), []byte("\r\n"), []byte("a\tb"), []byte("\x1b[31mred\x1b[0m"),
		[]byte("\""), []byte("'"), []byte("`"), []byte(`\`), []byte("<&>"), []byte(",;"), []byte("=1+1"), []byte(" "), []byte("-"), []byte("\u2028"), []byte("\u202e"),
		[]byte("\ufeffmark"), []byte("é"), []byte("\xc3"), []byte("a/b"), []byte("00ff"), []byte("true"), []byte("{\"hex\":\"00\"}"), []byte("# x"), []byte("%s%n"), []byte("💾"), []byte("\x7f"), []byte("\u0085"),
	}
	sort.Slice(names, func(i, j int) bool { return bytes.Compare(names[i], names[j]) < 0 })
	return names
}

// makeHard makes a database with each hard name as a bucket and as a key in it, and each as a value.
func makeHard(t *testing.T, path string) {
	t.Helper()
	db, err := holdfast.Open(path, 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
	check(t, err)
	names := hardNames()
	check(t, db.Update(func(tx *holdfast.Tx) error {
		for i, name := range names {
			b, err := tx.CreateBucket(name)
			check(t, err)
			check(t, b.Put(name, names[len(names)-1-i]))
		}
		b, err := tx.CreateBucket([]byte("all"))
		check(t, err)
		for _, name := range names {
			check(t, b.Put(name, name))
		}
		_, err = b.CreateBucket([]byte("in\x00side"))
		check(t, err)
		return b.Put([]byte("empty"), nil)
	}))
	check(t, db.Close())
}

// decoded is what a string in JSON with its encoding stands for.
func decoded(t *testing.T, value, encoding string) []byte {
	t.Helper()
	var b []byte
	var err error
	switch encoding {
	case "text":
		b = []byte(value)
	case "hex":
		b, err = hex.DecodeString(value)
	case "base64":
		b, err = base64.StdEncoding.DecodeString(value)
	case "ascii-encoded":
		var s string
		s, err = strconv.Unquote(value)
		b = []byte(s)
	default:
		t.Fatalf("encoding %q", encoding)
	}
	check(t, err)
	return b
}

// exact are the formats from which the bytes can be told.
var exact = []string{"auto", "ascii-encoded", "hex", "bytes"}

// TestBinaryNames lists names in all formats, as lines and as JSON, and reads them back.
func TestBinaryNames(t *testing.T) {
	workdir(t)
	makeHard(t, "hard.db")
	names := hardNames()
	inAll := append([][]byte{[]byte("empty"), []byte("in\x00side")}, names...)
	sort.Slice(inAll, func(i, j int) bool { return bytes.Compare(inAll[i], inAll[j]) < 0 })
	buckets := append([][]byte{[]byte("all")}, names...)
	sort.Slice(buckets, func(i, j int) bool { return bytes.Compare(buckets[i], buckets[j]) < 0 })
	for _, c := range []struct {
		args []string
		list string
		name string
		want [][]byte
	}{{[]string{"keys", "hard.db", "all"}, "keys", "key", inAll}, {[]string{"buckets", "hard.db"}, "buckets", "name", buckets}} {
		for _, format := range exact {
			args := append(c.args, "--format", format)
			var got map[string]any
			check(t, json.Unmarshal([]byte(must(t, append(args, "--json")...)), &got))
			entries := got[c.list].([]any)
			if len(entries) != len(c.want) {
				t.Fatalf("%v: %d of %d", args, len(entries), len(c.want))
			}
			for i, e := range entries {
				e := e.(map[string]any)
				if b := decoded(t, e[c.name].(string), e["encoding"].(string)); !bytes.Equal(b, c.want[i]) {
					t.Errorf("%v --json: %q, want %.80q", args, b, c.want[i])
				}
			}
			out := must(t, args...)
			var lines []string
			for _, name := range c.want {
				lines = append(lines, inFormat(name, format))
			}
			if want := strings.Join(lines, "\n") + "\n"; out != want {
				t.Errorf("%v: got\n%.500q\nwant\n%.500q", args, out, want)
			}
		}
		if out := must(t, append(c.args, "--format", "redacted")...); strings.Count(out, "\n") != len(c.want) || strings.Count(out, "<redacted len:") != len(c.want) {
			t.Errorf("redacted: %.500q", out)
		}
	}
}

// inFormat is a second opinion on what formatting gives.
func inFormat(b []byte, format string) string {
	text := utf8.Valid(b)
	for _, r := range string(b) {
		text = text && unicode.IsPrint(r)
	}
	switch {
	case format == "bytes" || format == "auto" && text:
		return string(b)
	case format == "ascii-encoded":
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("%x", b)
}

// TestBinaryValues gets each value by its bucket and key, in all formats, sets and deletes it.
func TestBinaryValues(t *testing.T) {
	workdir(t)
	makeHard(t, "hard.db")
	for i, name := range hardNames() {
		x := fmt.Sprintf("%x", name)
		names := []string{"hard.db", x, x, "--bucket-format", "hex", "--parse-format", "hex"}
		want := hardNames()[len(hardNames())-1-i]
		for _, format := range exact {
			args := append(append([]string{"get"}, names...), "--format", format)
			end := "\n"
			if format == "bytes" { // as they are
				end = ""
			}
			if out := must(t, args...); out != inFormat(want, format)+end {
				t.Errorf("get %.40q as %s: %.200q", name, format, out)
			}
			var got struct {
				Key         string `json:"key"`
				KeyEncoding string `json:"key_encoding"`
				Value       string `json:"value"`
				Encoding    string `json:"value_encoding"`
				Bytes       int    `json:"value_bytes"`
			}
			check(t, json.Unmarshal([]byte(must(t, append(args, "--json")...)), &got))
			if !bytes.Equal(decoded(t, got.Key, got.KeyEncoding), name) || !bytes.Equal(decoded(t, got.Value, got.Encoding), want) || got.Bytes != len(want) {
				t.Errorf("get %.40q as %s --json: %+v", name, format, got)
			}
		}
		if len(name) < 1000 { // a command line takes so much
			must(t, "put", "hard.db", x, x, "00ff0a", "--bucket-format", "hex", "--parse-format", "hex", "--value-format", "hex")
			if out := must(t, append([]string{"get"}, append(names, "--format", "bytes")...)...); out != "\x00\xff\n" {
				t.Errorf("%q", out)
			}
		}
		out := must(t, append([]string{"delete"}, names...)...)
		if unprintable(out) != "" {
			t.Errorf("delete prints %q", out)
		}
	}
	if out := must(t, "get", "hard.db", "all", "empty"); out != "\n" {
		t.Errorf("an empty value: %q", out)
	}
	if out := must(t, "get", "hard.db", "all", "empty", "--format", "ascii-encoded"); out != "\"\"\n" {
		t.Errorf("an empty value: %q", out)
	}
}

// unprintable is the first part of what a command prints for people that a terminal may take for
// something else.
func unprintable(out string) string {
	for i, r := range out {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError {
			return out[i:min(len(out), i+40)]
		}
	}
	return ""
}

// TestBinaryPrinted: no command prints bytes of the database as they are unless it is told to, in
// messages neither, and all JSON is JSON.
func TestBinaryPrinted(t *testing.T) {
	workdir(t)
	makeHard(t, "hard.db")
	makeHard(t, "other.db")
	for _, name := range hardNames()[:len(hardNames())/2] {
		x := fmt.Sprintf("%x", name)
		must(t, "delete", "other.db", x, x, "--bucket-format", "hex", "--parse-format", "hex")
		must(t, "delete", "other.db", "--bucket", x, "--bucket-format", "hex")
	}
	data, err := os.ReadFile("hard.db")
	check(t, err)
	check(t, os.WriteFile("bad.db", flippedAt(data, 8*4096+2000), 0o600))
	for _, args := range []string{
		"info hard.db", "check hard.db", "stats hard.db", "stats hard.db a", "doctor hard.db", "pages hard.db", "pages hard.db --map", "inspect hard.db",
		"buckets hard.db", "keys hard.db all", "page hard.db --all", "page hard.db --all --value-format ascii-encoded", "page hard.db --all --value-format hex",
		"diff hard.db other.db", "diff other.db hard.db", "diff hard.db other.db --format ascii-encoded", "diff hard.db other.db --format hex", "diff hard.db other.db --format redacted",
		"check bad.db", "pages bad.db", "page bad.db --all", "salvage -o out bad.db --force", "export bad.db", "inspect bad.db", "doctor bad.db", "compact -o out bad.db --force",
		"get hard.db 0a 00 --bucket-format hex --parse-format hex", "keys hard.db 0a0a --bucket-format hex", "keys hard.db all ff --bucket-format hex", "delete hard.db 61ff 00 --bucket-format hex --parse-format hex",
		"stats hard.db \x1b", "import hard.db --csv a\x1bb --input other.db", "import hard.db other.db", "get hard.db all \x1b[31m", "keys hard.db \x1b[31m",
		"surgery meta validate hard.db", "put hard.db all \x1b[31m x", "delete hard.db all \x1b[31m",
	} {
		r := run(t, strings.Fields(args)...)
		if bad := unprintable(r.out + r.errOut); bad != "" {
			t.Errorf("holdfast %q prints %q", args, bad)
		}
		if name := strings.Fields(args)[0]; name == "export" || name == "delete" || name == "put" {
			continue
		}
		r = run(t, append(strings.Fields(args), "--json")...)
		if r.out != "" && !json.Valid([]byte(r.out)) && r.code == 0 {
			t.Errorf("holdfast %q --json: %.300q", args, r.out)
		}
		if bad := unprintable(strings.ReplaceAll(r.out, "\u2028", "")); bad != "" {
			t.Errorf("holdfast %q --json prints %q", args, bad)
		}
	}
}

func flippedAt(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 0x40
	return data
}

// TestBinaryRoundTrip: what is exported and imported again is the same, as JSON, and as CSV in the
// formats for that.
func TestBinaryRoundTrip(t *testing.T) {
	workdir(t)
	makeHard(t, "hard.db")
	want := content(t, "hard.db")
	must(t, "export", "hard.db", "-o", "hard.jsonl")
	must(t, "import", "new.db", "hard.jsonl", "--create")
	if got := content(t, "new.db"); got != want {
		t.Error("the database is another")
	}
	must(t, "diff", "hard.db", "new.db")
	must(t, "delete", "hard.db", "all", "--bucket", "in\x00side") // which CSV leaves out
	for _, format := range []string{"hex", "ascii-encoded"} {
		path := format + ".db"
		must(t, "export", "hard.db", "all", "--csv", "--key-format", format, "--value-format", format, "-o", format+".csv")
		must(t, "put", path, "x", "k", "v", "--create")
		must(t, "import", path, "all", "--csv", "--input", format+".csv", "--key-format", format, "--value-format", format, "--create")
		must(t, "diff", "hard.db", path, "all")
	}
}
