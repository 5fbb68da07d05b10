package statsfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFile: the file has the same name by any path of the database, also of one with the longest name that there can be; it is
// replaced as a whole, and a link that was put where it is written is not followed.
func TestFile(t *testing.T) {
	dir, path := filepath.Join(t.TempDir(), "deep", "er"), filepath.Join(t.TempDir(), strings.Repeat("n", 250)+".db")
	must(t, os.WriteFile(path, nil, 0o600))
	file, err := Make(dir, path)
	must(t, err)
	victim, link := filepath.Join(t.TempDir(), "victim"), filepath.Join(t.TempDir(), "link")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	if os.Symlink(victim, file+".tmp") == nil && os.Symlink(path, link) == nil { // which takes a privilege on Windows
		if same, err := Name(dir, link); same != file {
			t.Errorf("%s by the link, %s by the path: %v", same, file, err)
		}
	}
	for _, document := range []string{"the first", "2nd"} {
		must(t, Replace(file, []byte(document)))
		if got, err := os.ReadFile(file); string(got) != document {
			t.Errorf("%q: %v", got, err)
		}
	}
	if got, err := os.ReadFile(victim); string(got) != "precious" {
		t.Errorf("the file that a link leads to holds %q: %v", got, err)
	}
	must(t, Remove(file))
	must(t, Remove(file))
	if left, err := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
