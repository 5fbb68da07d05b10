package perfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	const buildkit = "full,mounts.db=periodic,/var/lib/buildkit/*=none,/var/lib/buildkit/*/history.db=full"
	for _, c := range []struct{ text, file, want string }{
		{"full", "/a/b.db", "full"},
		{buildkit, "/a/b.db", "full"},
		{buildkit, "/var/lib/containerd/mounts.db", "periodic"},
		{buildkit, "/var/lib/buildkit/cache.db", "none"},
		{buildkit, "/var/lib/buildkit/mounts.db", "none"}, // the last that matches
		{buildkit, "/var/lib/buildkit/runc/metadata.db", "none"},
		{buildkit, "/var/lib/buildkit/runc/history.db", "full"},
		{buildkit, "/var/lib/buildkit", "full"},
		{buildkit, "/mnt/var/lib/buildkit/cache.db", "full"},
		{"*.db=on", "/a/b.db", "on"},
		{"*.db=on", "/a.db/b", "-"}, // a name is that of the file
		{"/*=on", "/a/b/c", "on"},
		{"/a/[bc].db=on,off", "/a/b.db", "off"},
		{"", "/a", ""},
		{"a=", "/a", ""},
		{"a=x=y", "/a", "x=y"},
	} {
		items, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got, ok := Of(items, c.file)
		if !ok {
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.text, c.file, got, c.want)
		}
	}
	for _, wrong := range []string{"[=on", "=on", "on,", ",on", "on,,a=off", "a/b=on", "on,a/*.db=off", "*/b=off"} {
		if items, err := Parse(wrong); err == nil {
			t.Errorf("%s: %v", wrong, items)
		}
	}
}

// What happened: a directory was given without symbolic links, or with them, and the program opened its database by the other
// path: the setting had no effect.
func TestOfLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip("links cannot be made here:", err)
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(filepath.Join(real, "x.db"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct{ pattern, opened string }{{real, real}, {real, link}, {link, link}} {
			items, err := Parse("full," + c.pattern + "/*=none")
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := Of(items, filepath.Join(c.opened, "x.db")); got != "none" {
				t.Errorf("%s for %s, there: %v: %s", c.pattern, c.opened, there, got)
			}
		}
	}
}
