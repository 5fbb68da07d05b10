package downstream

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Results are what each test of a run gave: "pass", "fail" or "skip", by package and name. A package that does not build, or whose
// process ends early, is a test without a name.
type Results map[Test]string

// A Test is one of a package; Name is "" for the package itself.
type Test struct{ Package, Name string }

func (t Test) String() string {
	if t.Name == "" {
		return t.Package
	}
	return t.Package + "." + t.Name
}

// top is the test of which t is a part.
func (t Test) top() Test {
	name, _, _ := strings.Cut(t.Name, "/")
	return Test{t.Package, name}
}

// readResults reads the output of go test -json. log gets what the tests printed.
func readResults(r io.Reader, log io.Writer) (Results, error) {
	results := Results{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil { // such as an error of go itself
			if _, err := log.Write(append(lines.Bytes(), '\n')); err != nil {
				return nil, err
			}
			continue
		}
		switch e.Action {
		case "output", "build-output":
			if _, err := io.WriteString(log, e.Output); err != nil {
				return nil, err
			}
		case "pass", "fail", "skip":
			results[Test{e.Package, e.Test}] = e.Action
		}
	}
	return results, lines.Err()
}

// Count is how many tests passed, failed and skipped themselves, without parts of tests. A package counts where it failed
// and no test of it did.
type Count struct{ Passed, Failed, Skipped int }

// Count counts the results.
func (r Results) Count() (c Count) {
	failed := map[string]bool{}
	for t, result := range r {
		if t.Name == "" || t != t.top() {
			continue
		}
		switch result {
		case "pass":
			c.Passed++
		case "fail":
			c.Failed++
			failed[t.Package] = true
		case "skip":
			c.Skipped++
		}
	}
	for t, result := range r {
		if t.Name == "" && result == "fail" && !failed[t.Package] {
			c.Failed++
		}
	}
	return c
}

// A Difference is a test that did not give the same on both.
type Difference struct {
	Test            Test
	Stock, Holdfast string // "": it gave no result
}

// compare returns the tests whose results differ, in order: of a test with parts that differ only the parts, and of a package only if
// no test of it differs.
func compare(stock, holdfast Results) (all []Difference) {
	seen := map[Test]bool{}
	look := func(t Test) {
		if stock[t] != holdfast[t] && !seen[t] {
			seen[t] = true
			all = append(all, Difference{t, stock[t], holdfast[t]})
		}
	}
	for t := range stock {
		look(t)
	}
	for t := range holdfast {
		look(t)
	}
	within := func(d, part Difference) bool {
		return part.Test != d.Test && part.Test.Package == d.Test.Package &&
			(d.Test.Name == "" || strings.HasPrefix(part.Test.Name, d.Test.Name+"/"))
	}
	whole := slices.Clone(all)
	all = slices.DeleteFunc(all, func(d Difference) bool {
		return slices.ContainsFunc(whole, func(part Difference) bool { return within(d, part) })
	})
	slices.SortFunc(all, func(a, b Difference) int { return strings.Compare(a.Test.String(), b.Test.String()) })
	return all
}
