package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/worker/command"
)

// TestMan: holdfast had manual pages, holdfastd had none. Each command has one, as a file and on standard output.
func TestMan(t *testing.T) {
	work(t)
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
	for _, cmd := range command.NewRootCommand().Commands() {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("deep/er", "holdfastd-"+cmd.Name()+".1"))
		check(t, err)
		if out := must(t, "man", cmd.Name()); out != string(data) || !strings.Contains(out, cmd.Short) {
			t.Errorf("%s: %.200s", cmd.Name(), out)
		}
	}
	if out := must(t, "man"); !strings.Contains(out, "Exit codes: 0 done") {
		t.Errorf("%.300s", out)
	}
	if r := run(t, "", "man", "nothing"); r.code != command.ExitUsage {
		t.Errorf("%+v", r)
	}
}
