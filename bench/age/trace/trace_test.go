package trace

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

func sample() *Trace {
	blobs := []Name{{Fixed, "v1"}, {Fixed, "blobs"}}
	digest := Name{Fresh, "sha256:00aa11"}
	revision := Name{Revision, "\x00\x00\x00\x00\x00\x00\x00\x07_\x00\x00\x00\x00\x00\x00\x00\x00"}
	return &Trace{Program: "a program 1.0", Revisions: 3, Make: []Tx{
		{{Op: Create, Bucket: append(blobs[:2:2], digest)}, {Op: Put, Bucket: append(blobs[:2:2], digest), Key: Name{Fixed, "size"}, Size: 3}},
		{{Op: Put, Bucket: blobs[:1], Key: revision, Size: 100}},
	}, Remove: []Tx{{{Op: Drop, Bucket: append(blobs[:2:2], digest)}}, {{Op: Delete, Bucket: blobs[:1], Key: revision}}}}
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range b.Len() {
		if got, err := Read(bytes.NewReader(b.Bytes()[:n])); err == nil && !reflect.DeepEqual(got, sample()) {
			t.Errorf("the first %d bytes are %+v", n, got)
		}
	}
}

// TestNames: names are the same in a cycle each time, others in other cycles, of the same length, and stay where they belong.
func TestNames(t *testing.T) {
	tr := sample()
	digest := Name{Fresh, "sha256:00aa11"}
	one, two := string(tr.In(nil, digest, 1)), string(tr.In(nil, digest, 2))
	if one == two || len(one) != len(digest.Text) || !strings.HasPrefix(one, "sha256:") || string(tr.In(nil, digest, 1)) != one {
		t.Errorf("%q, %q", one, two)
	}
	if got := tr.In(nil, Name{Revision, "\x00\x00\x00\x00\x00\x00\x00\x07_x"}, 2); string(got) != "\x00\x00\x00\x00\x00\x00\x00\x0d_x" {
		t.Errorf("%q", got)
	}
	if got := tr.In(nil, Name{Fixed, "size"}, 2); string(got) != "size" {
		t.Errorf("%q", got)
	}
}
