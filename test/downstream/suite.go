// Package downstream runs the tests of programs that embed bbolt, on bbolt and on Holdfast, and compares the results test
// by test. modules.txt names the modules, which come from the Go module proxy, explained.txt the differences that are as they
// should be. It is run by cmd/downstream (make downstream).
package downstream

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed modules.txt
var modules string

//go:embed explained.txt
var explained string

// A Suite is the tests of some packages of a module.
type Suite struct {
	Name     string
	Module   string // path and version, as of go get
	Minutes  int    // that it takes at most on two cores, with what Go must build for it
	Packages []string
	Skip     string // pattern of tests that do not run here on either engine; "": none
}

// Suites are those of modules.txt.
func Suites() ([]Suite, error) { return parseSuites(modules) }

// Quick is how many minutes a suite may take that is part of make test.
const Quick = 2

// parseSuites reads a line for each suite: its name, the module, how many minutes it takes, and packages; after "skip:" comes a pattern
// of tests that are left out. Lines that begin with # are comments.
func parseSuites(text string) (suites []Suite, err error) {
	names := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		line, skip, _ := strings.Cut(line, " skip:")
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < 4 {
			return nil, fmt.Errorf("modules.txt:%d: want NAME MODULE@VERSION MINUTES PACKAGE..., got %q", i+1, line)
		}
		s := Suite{Name: fields[0], Module: fields[1], Packages: fields[3:], Skip: strings.TrimSpace(skip)}
		s.Minutes, err = strconv.Atoi(fields[2])
		switch {
		case err != nil || s.Minutes < 1:
			return nil, fmt.Errorf("modules.txt:%d: want a number of minutes, got %q", i+1, fields[2])
		case !strings.Contains(s.Module, "@v"):
			return nil, fmt.Errorf("modules.txt:%d: module %s has no version", i+1, s.Module)
		case names[s.Name]:
			return nil, fmt.Errorf("modules.txt:%d: suite %s is there twice", i+1, s.Name)
		}
		if _, err := regexp.Compile(s.Skip); err != nil {
			return nil, fmt.Errorf("modules.txt:%d: %w", i+1, err)
		}
		names[s.Name] = true
		suites = append(suites, s)
	}
	return suites, nil
}

// Explained are the differences of explained.txt, by suite and test, with the reason.
func Explained() (map[string]string, error) { return parseExplained(explained) }

// parseExplained reads lines of the form SUITE PACKAGE.TEST: REASON.
func parseExplained(text string) (map[string]string, error) {
	reasons := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		test, reason, ok := strings.Cut(line, ": ")
		if !ok || len(strings.Fields(test)) != 2 || reason == "" {
			return nil, fmt.Errorf("explained.txt:%d: want SUITE PACKAGE.TEST: REASON, got %q", i+1, line)
		}
		reasons[strings.Join(strings.Fields(test), " ")] = reason
	}
	return reasons, nil
}
