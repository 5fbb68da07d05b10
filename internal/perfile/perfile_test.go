package perfile

import "testing"

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
