package mount

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplitLowers(t *testing.T) {
	cases := []struct {
		in           string
		lowers, data []string
	}{
		{"/a", []string{"/a"}, nil},
		{"/a:/b", []string{"/a", "/b"}, nil},
		{`/a\:b:/c\\d`, []string{"/a:b", `/c\d`}, nil},
		{"/a:/b::/d::/e", []string{"/a", "/b"}, []string{"/d", "/e"}},
		{`/a\`, []string{`/a\`}, nil},
	}
	for _, c := range cases {
		lowers, data, err := splitLowers(c.in)
		if err != nil || !reflect.DeepEqual(lowers, c.lowers) || !reflect.DeepEqual(data, c.data) {
			t.Errorf("%q: %q, %q, %v", c.in, lowers, data, err)
		}
	}
	for _, bad := range []string{"", ":", "/a:", ":/a", "/a:::/b", "/a::"} {
		if lowers, data, err := splitLowers(bad); err == nil {
			t.Errorf("%q: %q, %q, and no error", bad, lowers, data)
		}
	}
}

func TestOptions(t *testing.T) {
	p, err := parse(&Spec{Mount: Mount{Type: "overlay", Options: []string{
		"ro", "rw", "nosuid", "noatime", "relatime", "index=off", "userxattr", `upperdir=/u\,p`, "workdir=/w", "lowerdir=/l",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []param{{"index", "off", false}, {"userxattr", "", true}}
	if p.attr != attrNoSuid || !reflect.DeepEqual(p.params, want) || p.upper != "/u,p" || !p.writable() {
		t.Errorf("%+v", p)
	}
	for _, m := range []Mount{
		{Type: "bind", Source: "/a", Options: []string{"rbind"}},
		{Type: "none", Source: "/a", Options: []string{"rbind"}},
		{Type: "rbind", Source: "/a"},
	} {
		if p, err := parse(&Spec{Mount: m}); err != nil || p.kind != "bind" || !p.recursive || !p.writable() {
			t.Errorf("%+v: %+v, %v", m, p, err)
		}
	}
	if _, err := parse(&Spec{Mount: Mount{Type: "ext4", Source: "/x", Options: []string{"bind"}}}); err == nil {
		t.Error("a bind of type ext4")
	}
}

func TestFromMounts(t *testing.T) {
	a, b := Mount{Type: "erofs", Source: "/a"}, Mount{Type: "erofs", Source: "/b"}
	over := Mount{Type: "overlay", Options: []string{"lowerdir=/c"}}
	s, err := FromMounts([]Mount{a, b, over})
	if err != nil || !reflect.DeepEqual(s, Spec{Mount: over, Lowers: []Spec{{Mount: a}, {Mount: b}}}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range [][]Mount{nil, {a, b}} {
		if s, err := FromMounts(bad); err == nil {
			t.Errorf("%+v: %+v, and no error", bad, s)
		}
	}
}

// No two specs have one key.
func TestKeys(t *testing.T) {
	specs := []Spec{
		{},
		{Mount: Mount{Type: "a"}},
		{Mount: Mount{Source: "a"}},
		{Mount: Mount{Options: []string{"a"}}},
		{Mount: Mount{Options: []string{"a", ""}}},
		{Mount: Mount{Options: []string{"", "a"}}},
		{Mount: Mount{Options: []string{"ab"}}},
		{Mount: Mount{Options: []string{"a", "b"}}},
		{Lowers: []Spec{{}}},
		{Lowers: []Spec{{}, {}}},
		{Lowers: []Spec{{Lowers: []Spec{{}}}}},
		{Lowers: []Spec{{Mount: Mount{Type: "a"}}}},
	}
	seen := map[string]int{}
	for i := range specs {
		if j, twice := seen[specs[i].key()]; twice {
			t.Errorf("%+v and %+v have one key", specs[i], specs[j])
		}
		seen[specs[i].key()] = i
	}
}

func TestRunOf(t *testing.T) {
	run, rest, ok := runOf("holdfast-0123456789abcdef-17")
	if run != "0123456789abcdef" || rest != "17" || !ok {
		t.Errorf("%q %q %t", run, rest, ok)
	}
	for _, bad := range []string{
		"", "overlay", "holdfast", "holdfast-", "holdfast-0123456789abcdef", "holdfast-0123456789abcdef-",
		"holdfast-0123456789abcdeF-1", "holdfast-0123456789abcde-1", "xholdfast-0123456789abcdef-1",
	} {
		if run, rest, ok := runOf(bad); ok {
			t.Errorf("%q: %q %q", bad, run, rest)
		}
	}
}

func TestRecordsRoundTrip(t *testing.T) {
	run := runRecord{pid: 1 << 40, boot: "boot"}
	attached := attachedRecord{dev: 1<<64 - 1, path: "/a/b"}
	upper := upperRecord{upper: "/u", work: strings.Repeat("w", 5000), dev: 300}
	if got, err := decodeRun(run.encode()); err != nil || got != run {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeAttached(attached.encode()); err != nil || got != attached {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := decodeUpper(upper.encode()); err != nil || got != upper {
		t.Errorf("%+v, %v", got, err)
	}
	// Every truncation, and anything behind, is noticed.
	for _, b := range [][]byte{run.encode(), attached.encode(), upper.encode()} {
		for cut := range b {
			_, e1 := decodeRun(b[:cut])
			_, e2 := decodeUpper(b[:cut])
			if e1 == nil && e2 == nil {
				t.Errorf("%q, cut to %d bytes, is taken", b, cut)
			}
		}
	}
	if _, err := decodeRun(append(run.encode(), 0)); err == nil {
		t.Error("a byte behind the record is not noticed")
	}
	if _, err := decodeRun(append([]byte{recordVersion + 1}, run.encode()[1:]...)); err == nil {
		t.Error("another version is taken")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(runRecord{pid: 7, boot: "x"}.encode())
	f.Add(attachedRecord{dev: 7, path: "x"}.encode())
	f.Add(upperRecord{"a", "b", 3}.encode())
	f.Add([]byte{recordVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRun(b); err == nil {
			if again, err := decodeRun(r.encode()); err != nil || again != r {
				t.Errorf("%+v, %v", again, err)
			}
		}
		if r, err := decodeAttached(b); err == nil {
			if again, err := decodeAttached(r.encode()); err != nil || again != r {
				t.Errorf("%+v, %v", again, err)
			}
		}
		if r, err := decodeUpper(b); err == nil {
			if again, err := decodeUpper(r.encode()); err != nil || again != r {
				t.Errorf("%+v, %v", again, err)
			}
		}
	})
}

func FuzzRunOf(f *testing.F) {
	f.Add("holdfast-0123456789abcdef-1")
	f.Fuzz(func(t *testing.T, source string) {
		if run, rest, ok := runOf(source); ok && prefix(run)+rest != source {
			t.Errorf("%q is taken apart to %q and %q", source, run, rest)
		}
	})
}

func FuzzSplitLowers(f *testing.F) {
	f.Add(`/a:/b::/c\:`)
	f.Fuzz(func(t *testing.T, value string) {
		lowers, data, err := splitLowers(value)
		if err != nil {
			return
		}
		if len(lowers) == 0 {
			t.Errorf("%q: no layer", value)
		}
		// Written again they are the same.
		escape := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace
		again := ""
		for i, l := range lowers {
			if i > 0 {
				again += ":"
			}
			again += escape(l)
		}
		for _, d := range data {
			again += "::" + escape(d)
		}
		l2, d2, err := splitLowers(again)
		if err != nil || !reflect.DeepEqual(lowers, l2) || !reflect.DeepEqual(data, d2) {
			t.Errorf("%q: %q %q; again %q: %q %q, %v", value, lowers, data, again, l2, d2, err)
		}
	})
}
