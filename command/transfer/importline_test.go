package transfer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// FuzzLine reads a line of any bytes: what is accepted is JSON that says the same, and written
// again it is read the same.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		`{"format":"holdfast-export","version":1}`,
		`{"bucket":["a",{"hex":"00"}],"sequence":7}`,
		`{"bucket":["a"],"key":"k\u00e9\ud83d\ude00","value":{"base64":"AP8="}}` + "\r\n",
		` { "end" : true , "buckets":0,"keys":18446744073709551615}`,
		`{"bucket":["a"],"key":"\"","value":"\\\/\b\f\n\r\t"}`, `{"bucket":["`, `{"a":"\`, `{}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p lineParser
		r, err := p.parse(line)
		if err != nil {
			return
		}
		var known struct {
			Bucket   []any
			Key      any
			Value    any
			Sequence uint64
		}
		if err := json.Unmarshal(line, &known); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		if r.sequence != known.Sequence || len(r.path) != len(known.Bucket) {
			t.Fatalf("%q: read %v", line, r)
		}
		for i, name := range known.Bucket {
			if s, ok := name.(string); ok && s != string(r.path[i]) {
				t.Fatalf("%q: read %q", line, r.path[i])
			}
		}
		if s, ok := known.Key.(string); ok && s != string(r.key) {
			t.Fatalf("%q: read %q", line, r.key)
		}
		if s, ok := known.Value.(string); ok && s != string(r.value) {
			t.Fatalf("%q: read %q", line, r.value)
		}
		checkWritten(t, r)
	})
}

// checkWritten writes what a line says and reads it again.
func checkWritten(t *testing.T, r record) {
	t.Helper()
	var out bytes.Buffer
	e := exportLines{w: bufio.NewWriter(&out)}
	var path []byte
	for _, name := range r.path {
		path = bucketPath(path, name)
	}
	switch r.kind {
	case bucketLine:
		_ = e.bucket(path, r.sequence)
	case keyLine:
		_ = e.key(path, r.key, r.value)
	default:
		return
	}
	_ = e.w.Flush() // to memory
	if !json.Valid(out.Bytes()) {
		t.Fatalf("wrote %s", &out)
	}
	var p lineParser
	again, err := p.parse(out.Bytes())
	if err != nil || again.kind != r.kind || again.sequence != r.sequence || !bytes.Equal(again.key, r.key) || !bytes.Equal(again.value, r.value) ||
		!slices.EqualFunc(again.path, r.path, bytes.Equal) {
		t.Fatalf("wrote %s, and read %v (%v)", &out, again, err)
	}
}
