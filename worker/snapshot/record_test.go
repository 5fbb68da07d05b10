package snapshot

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func sampleRecords() []record {
	return []record{
		{kind: Active, id: 7, created: 1, updated: 2, used: 3},
		{kind: View, id: 9, parent: 7, created: 1, updated: 1 << 60, used: 3, flags: flagPinned},
		{kind: Committed, id: 1 << 63, parent: 1, flags: flagPinned | flagListed, created: 1, updated: 2, used: 3,
			usage: Usage{Size: 1 << 40, Inodes: 12}, commit: 99, labels: map[string]string{"a": "b", "c/d": "é", "z": strings.Repeat("x", 300)}},
		{kind: Committed, id: 3, flags: flagPending, created: 1},
		{kind: Committed, id: 3, flags: flagUnmeasured | flagListed, created: 1, commit: 7},
		{kind: Committed, id: 3, flags: flagDigest | flagDamaged | flagPinned, created: 1, labels: map[string]string{"a": "b"}, digest: Digest{1, 31: 2}, verified: 1 << 60},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for _, r := range sampleRecords() {
		b := r.append(nil)
		got, err := parseRecord(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
		for n := range b {
			if _, err := parseRecord(b[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("the first %d bytes of %x: %v", n, b, err)
			}
		}
		if _, err := parseRecord(append(b, 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a byte in excess: %v", err)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	good := record{kind: Committed, id: 7, created: 1, labels: map[string]string{"a": "b"}}
	for name, change := range map[string]func(*record){
		"kind 0":                          func(r *record) { r.kind = 0 },
		"kind 4":                          func(r *record) { r.kind = 4 },
		"a flag":                          func(r *record) { r.flags = 0x80 },
		"no ID":                           func(r *record) { r.id = 0 },
		"its own parent":                  func(r *record) { r.parent = 7 },
		"a younger parent":                func(r *record) { r.kind, r.parent = Active, 8 },
		"a listed active one":             func(r *record) { r.kind, r.flags = Active, flagListed },
		"an empty label":                  func(r *record) { r.labels = map[string]string{"a": ""} },
		"an empty label key":              func(r *record) { r.labels = map[string]string{"": "a"} },
		"an active one with a digest":     func(r *record) { r.kind, r.flags, r.verified = Active, flagDigest, 1 },
		"an active one that waits for it": func(r *record) { r.kind, r.flags = Active, flagPending },
		"a digest of no time":             func(r *record) { r.flags = flagDigest },
		"a digest, and none yet":          func(r *record) { r.flags, r.verified = flagDigest|flagPending, 1 },
		"damaged without a digest":        func(r *record) { r.flags = flagDamaged },
		"an active one to be measured":    func(r *record) { r.kind, r.flags = Active, flagUnmeasured },
		"a size that was not measured":    func(r *record) { r.flags, r.usage.Inodes = flagUnmeasured, 1 },
		"a negative size":                 func(r *record) { r.usage.Size = -1 },
	} {
		r := good
		change(&r)
		if got, err := parseRecord(r.append(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	b := good.append(nil)
	b[0] = 2
	if _, err := parseRecord(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
	long := bytes.Replace(good.append(nil), []byte{1, 'a', 1, 'b'}, []byte{0x81, 0, 'a', 1, 'b'}, 1)
	if _, err := parseRecord(long); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a number longer than it needs to be: %v", err)
	}
	many := append(good.append(nil)[:12], 0xff, 0xff, 0xff, 0xff, 0x0f)
	if _, err := parseRecord(many); !errors.Is(err, ErrCorrupt) {
		t.Errorf("four billion labels: %v", err)
	}
}

// FuzzMetadata: whatever is in the file, decoding gives a value that encodes to the same bytes,
// or ErrCorrupt.
func FuzzMetadata(f *testing.F) {
	for _, r := range sampleRecords() {
		f.Add(r.append(nil))
	}
	f.Add((&totals{3, 2, Usage{5, 6}}).append(nil))
	f.Add((&syncState{"boot", 7, 5}).append(nil))
	f.Add(nameKey("namespace", "name"))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(what string, encoded []byte, err error) {
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s %x: %v", what, b, err)
			}
			if err == nil && !bytes.Equal(encoded, b) {
				t.Errorf("%s %x encodes to %x", what, b, encoded)
			}
		}
		r, err := parseRecord(b)
		check("record", r.append(nil), err)
		if len(b) > 0 { // nothing at all is a new store's
			sum, err := parseTotals(b)
			check("totals", sum.append(nil), err)
			st, err := parseSyncState(b)
			check("state", st.append(nil), err)
		}
		namespace, name, err := splitKey(b)
		check("key", nameKey(namespace, name), err)
		client, err := parseNamespace(b)
		flag := byte(0)
		if client {
			flag = namespaceClient
		}
		check("namespace", []byte{recordVersion, flag}, err)
		one, _, err := fixed("number", b, 1)
		check("number", number(one), err)
		one, two, err := fixed("numbers", b, 2)
		check("numbers", numbers(one, two), err)
	})
}
