package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMan: each command has a manual page, with each of its flags, as a file and on
// standard output.
func TestMan(t *testing.T) {
	workdir(t)
	var r struct {
		Dir   string   `json:"dir"`
		Pages []string `json:"pages"`
	}
	check(t, json.Unmarshal([]byte(must(t, "man", "--dir", "deep/er", "--json")), &r))
	files, err := os.ReadDir("deep/er")
	check(t, err)
	if len(files) != len(r.Pages) || r.Dir != "deep/er" {
		t.Errorf("%d files, %+v", len(files), r)
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("deep/er", "holdfast-"+cmd.Name()+".1"))
		check(t, err)
		page := strings.ReplaceAll(string(data), `\-`, "-")
		for _, flag := range append(flagNames(cmd), "json", "timeout") {
			if !strings.Contains(page, "--"+flag) {
				t.Errorf("%s: nothing on --%s", cmd.Name(), flag)
			}
		}
		if !strings.Contains(page, cmd.Short) || !strings.HasPrefix(page, ".nh\n.TH \"HOLDFAST-") || strings.Contains(page, "Auto generated") {
			t.Errorf("%s: %s", cmd.Name(), page)
		}
		if out := must(t, "man", cmd.Name()); out != string(data) {
			t.Errorf("%s: printed is another page", cmd.Name())
		}
	}
	if out := must(t, "man"); !strings.Contains(out, "Exit codes: 0 done") {
		t.Errorf("of the root: %s", out)
	}
	wantIn(t, run(t, "man", "--dir", "deep/er"), 0, " pages written to deep/er\n", "")
	wantIn(t, run(t, "man", "nothing"), 2, "", "no command nothing; holdfast --help lists them")
	wantIn(t, run(t, "man", "info", "--dir", "x"), 2, "", "--dir writes the pages of all commands")
	wantIn(t, run(t, "man", "info", "--json"), 2, "", "a manual page has no JSON")
	check(t, os.WriteFile("file", nil, 0o600))
	wantIn(t, run(t, "man", "--dir", "file/x"), 1, "", "file/x: ")
	if names, files := completed(t, "man", "com"); files || len(names) < 10 {
		t.Errorf("offered %q", names)
	}
}
