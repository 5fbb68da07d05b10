package mountinfo

import (
	"path/filepath"
	"testing"
)

func TestPathsOnMounts(t *testing.T) {
	for _, c := range []struct{ root, point, path, inside, onSystem string }{
		{"/", "/", "/var/store", "/var/store", "/var/store"},
		{"/", "/mnt", "/mnt/store", "/store", "/store"},
		{"/volumes/a", "/mnt", "/mnt/store", "/store", "/volumes/a/store"},
		{"/", "/mnt", "/mnt", "", "/"},
	} {
		m := &Mount{Root: c.root, Point: c.point}
		if inside, on := m.Inside(c.path), m.OnSystem(c.path); inside != c.inside || on != c.onSystem {
			t.Errorf("%+v: %q, %q", c, inside, on)
		}
	}
}

// The mount of /proc is listed under its ID, and of nothing there is none.
func TestIDAt(t *testing.T) {
	id, ok := IDAt("/proc")
	if !ok {
		t.Fatal("the kernel does not tell")
	}
	point := ""
	if err := Each(Own, func(m *Mount) {
		if m.ID == id {
			point = m.Point
		}
	}); err != nil || point != "/proc" {
		t.Errorf("%d is %q, %v", id, point, err)
	}
	if _, ok := IDAt(filepath.Join(t.TempDir(), "none")); ok {
		t.Error("what is not there is on a mount")
	}
}
