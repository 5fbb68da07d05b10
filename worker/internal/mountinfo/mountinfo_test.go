package mountinfo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	m, err := Parse(`46 27 0:39 /r\040x /mnt/a\040b ro,relatime shared:1 master:2 - overlay holdfast-x rw,lowerdir+=/a,upperdir=/u\054\040p,workdir=/w`)
	want := &Mount{46, 0, 39, "/r x", "/mnt/a b", "overlay", "holdfast-x", `rw,lowerdir+=/a,upperdir=/u\054\040p,workdir=/w`}
	if err != nil || *m != *want {
		t.Errorf("%+v, %v", m, err)
	}
	if got := m.Option("upperdir"); got != "/u, p" {
		t.Errorf("upperdir %q", got)
	}
	for _, bad := range []string{"", " - ", "1 2 3 4 5 6 - a b c", "1 2 0:x / / rw - a b c", "1 2 0:1 / / rw a b c", "1 2 0:1 / / rw - a"} {
		if m, err := Parse(bad); err == nil {
			t.Errorf("%q: %+v", bad, m)
		}
	}
}

// Where cgroups are was read by a scanner that ends with an error at a line of 64 KiB, as an overlay of
// many layers has: then no step could be run on that machine.
func TestLongLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mountinfo")
	long := "1 2 0:1 / /long rw - overlay x rw,lowerdir=" + strings.Repeat("/some/layer:", 10000) + "/last\n"
	if err := os.WriteFile(path, []byte(long+"2 2 0:2 / /sys/fs/cgroup rw - cgroup2 none rw\n3 2 0:3 / /proc rw - proc none rw"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ contain, want []string }{
		{nil, []string{"/long", "/sys/fs/cgroup", "/proc"}},
		{[]string{""}, []string{"/long", "/sys/fs/cgroup", "/proc"}},
		{[]string{" /sys/", "lowerdir"}, []string{"/long", "/sys/fs/cgroup"}},
		{[]string{"none"}, []string{"/sys/fs/cgroup", "/proc"}},
		{[]string{"nothing"}, nil},
	} {
		var got []string
		err := Each(path, func(m *Mount) { got = append(got, m.Point) }, c.contain...)
		if err != nil || strings.Join(got, " ") != strings.Join(c.want, " ") {
			t.Errorf("%q: %q, %v", c.contain, got, err)
		}
	}
	if err := Each(filepath.Join(t.TempDir(), "none"), nil); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// The process's own list can be read.
func TestOwn(t *testing.T) {
	points := 0
	err := Each(Own, func(*Mount) { points++ })
	if os.IsNotExist(err) {
		t.Skip("left out: this system has no /proc")
	}
	if err != nil || points == 0 {
		t.Errorf("%d mounts, %v", points, err)
	}
}

// What is escaped is found, and is what it was.
func TestEscape(t *testing.T) {
	for _, name := range []string{"/a", "/a b", "/a\tb\nc", `/a\040b`, "/\xff#,:"} {
		found := 0
		err := Read(strings.NewReader("1 2 0:1 / "+Escape(name)+" rw - tmpfs x rw\n"), func(m *Mount) {
			found++
			if m.Point != name {
				t.Errorf("%q is read as %q", name, m.Point)
			}
		}, " "+Escape(name)+" ")
		if err != nil || found != 1 {
			t.Errorf("%q: %d, %v", name, found, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`46 27 0:39 /r\040x /mnt ro shared:1 - overlay holdfast-0123456789abcdef-1 rw,upperdir=/u`)
	f.Add(`1 2 0:1 / / rw - a \1 \`)
	f.Fuzz(func(_ *testing.T, line string) {
		if m, err := Parse(line); err == nil {
			_ = m.Option("upperdir")
		}
	})
}
