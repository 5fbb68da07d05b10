package command_test

import (
	"os"
	"strings"
	"testing"
)

// TestResultsDamaged: with a damaged results.db no step ran, and nothing said what to do, nor that hardly anything is
// lost without it.
func TestResultsDamaged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs a step")
	}
	work(t)
	busybox(t)
	must(t, "import", "busybox.tar", "bb")
	step := []string{"step", "--base", "bb", "--", "sh", "-c", "echo hello | tee /made"}
	made := run(t, "", step...)
	name := resultName.FindString(made.errOut)
	good, err := os.ReadFile("store/results.db")
	check(t, err)
	damaged := map[string][]byte{
		"no metas": append(make([]byte, 8192), good[8192:]...), "no pages": append(good[:8192:8192], make([]byte, len(good)-8192)...),
		"cut off": good[:8192], "short": good[:5000],
	}
	for what, content := range damaged {
		check(t, os.WriteFile("store/results.db", content, 0o600))
		for _, args := range [][]string{step, {"logs", name}} {
			r := run(t, "", args...)
			if r.code == 0 || !strings.Contains(r.errOut, "the file of results is damaged: ") || !strings.Contains(r.errOut, "; move it away (mv ") {
				t.Errorf("%s: %v: %+v", what, args, r)
			}
		}
	}
	check(t, os.Rename("store/results.db", "store/results.db.damaged"))
	if r := run(t, "", step...); r.code != 0 || r.out != "" || !strings.Contains(r.errOut, "hit "+name) || !strings.Contains(r.errOut, "what it wrote is lost") {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "step", "--no-cache", "--base", "bb", "--", "sh", "-c", "echo hello | tee /made"); r.code != 0 || r.out != "hello\n" {
		t.Errorf("%+v", r)
	}
}
