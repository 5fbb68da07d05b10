package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is a row of the table in docs/testing.md, and one of the tests that find it.
type mutant struct {
	name string
	dir  string   // of the tests' package, from the top
	test string   // that finds it
	env  []string // further environment of it
}

var (
	row  = regexp.MustCompile("^\\| `([a-z-]+)` \\| .+ \\|((?: `[a-z/]+/Test[A-Za-z]+`(?: `[A-Z_]+=[0-9]+`)*)+) \\|$")
	cell = regexp.MustCompile("`([a-z/]+)/(Test[A-Za-z]+)`((?: `[A-Z_]+=[0-9]+`)*)")
)

// usual is the environment of tests for which a row says no other.
var usual = map[string][]string{
	"TestPowerCut":    {"HOLDFAST_SEED=1", "HOLDFAST_HISTORIES=48"},
	"TestEveryMoment": {"HOLDFAST_SEED=1", "HOLDFAST_HISTORIES=100"},
}

// table reads the rows of docs/testing.md.
func table(t *testing.T) []mutant {
	doc, err := os.ReadFile(filepath.Join(top, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "| mutant |")
	var all []mutant
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("docs/testing.md has a row that cannot be read: %s", line)
			continue
		}
		for _, found := range cell.FindAllStringSubmatch(m[2], -1) {
			env := slices.Concat(usual[found[2]], strings.Fields(strings.ReplaceAll(found[3], "`", ""))) // the later of two counts
			all = append(all, mutant{m[1], packageDir(t, found[1]), found[2], env})
		}
	}
	return all
}

// packageDir is the directory of the package that a row calls name.
func packageDir(t *testing.T, name string) string {
	for _, dir := range []string{"test/" + name, "internal/" + name} {
		if _, err := os.Stat(filepath.Join(top, dir)); err == nil {
			return dir
		}
	}
	t.Fatalf("docs/testing.md names a test in %s, which is not a directory", name)
	return ""
}
