package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is a mutant, and one of the tests that find it by the list in tests.txt.
type mutant struct {
	name string
	dir  string   // of the tests' package, from the top
	test string   // that finds it
	env  []string // further environment of it
}

var (
	entry    = regexp.MustCompile(`^(Test[A-Za-z]+)((?: [A-Z_]+=[0-9]+)*): ([a-z-]+(?:, [a-z-]+)*)$`)
	sentence = regexp.MustCompile(`^[A-Z].+[.]\n$`) // before a diff
)

// usual is the environment of tests for which an entry says no other.
var usual = map[string][]string{
	"TestPowerCut":    {"HOLDFAST_SEED=1", "HOLDFAST_HISTORIES=48"},
	"TestEveryMoment": {"HOLDFAST_SEED=1", "HOLDFAST_HISTORIES=100"},
}

// table reads the list of mutants, tests.txt. A line that ends with a slash is the directory of the tests after it; a
// test with all that it finds is an entry of one line or several.
func table(t *testing.T) []mutant {
	list, err := os.ReadFile("tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	dir := ""
	for line := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(string(list), "\n  ", " ")), "\n") {
		if name, ok := strings.CutSuffix(line, "/"); ok {
			dir = packageDir(t, name)
			continue
		}
		m := entry.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("tests.txt has an entry that cannot be read: %s", line)
			continue
		}
		env := slices.Concat(usual[m[1]], strings.Fields(m[2])) // the later of two counts
		for name := range strings.SplitSeq(m[3], ", ") {
			all = append(all, mutant{name, dir, m[1], env})
		}
	}
	return all
}

// packageDir is the directory of the package that the list calls name.
func packageDir(t *testing.T, name string) string {
	for _, dir := range []string{"test/" + name, "internal/" + name} {
		if _, err := os.Stat(filepath.Join(top, dir)); err == nil {
			return dir
		}
	}
	t.Fatalf("tests.txt names tests in %s, which is not a directory", name)
	return ""
}
