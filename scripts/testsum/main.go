// Command testsum reads the output of `go test -json` on its standard input,
// prints what a person wants to see of it (what failed, what skipped itself,
// one line per package) and counts the tests.
//
// Only top-level tests, examples and fuzz targets are counted, so that the
// figure does not depend on how a test divides its work; a subtest that fails
// makes its parent fail. A package that fails without a failing test (it does
// not build, or its process ended early) counts as one failure.
//
// It exits with 1 if anything failed or if the input held no result at all.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	name := flag.String("name", "tests", "what the summary line calls this run")
	counts := flag.String("counts", "", "append a line 'name passed failed skipped' to this `file`")
	times := flag.String("times", "", "append a line 'seconds name package test' for each test to this `file`")
	wanted := flag.String("tests", "", "`file` with the names of all tests that must have a result, one on a line")
	flag.Parse()

	sum, err := summarize(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum: read go test -json:", err)
		os.Exit(1)
	}
	if *wanted != "" {
		list, err := os.ReadFile(*wanted)
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			os.Exit(1)
		}
		for _, test := range strings.Fields(string(list)) {
			if !sum.seen[test] {
				fmt.Printf("--- FAIL: %s (gave no result: the process ended before it)\n", test)
				sum.failed++
			}
		}
	}
	if *times != "" {
		if err := appendLine(*times, sum.took(*name)); err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			os.Exit(1)
		}
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped\n", *name, sum.passed, sum.failed, sum.skipped)
	if *counts != "" {
		if err := appendLine(*counts, fmt.Sprintf("%s %d %d %d\n", *name, sum.passed, sum.failed, sum.skipped)); err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			os.Exit(1)
		}
	}
	if sum.failed > 0 || sum.passed+sum.skipped+sum.packages == 0 {
		os.Exit(1)
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		_ = f.Close() // the write error is the one to report
		return err
	}
	return f.Close()
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail
	Test       string
	Elapsed    float64
	Output     string
}

type summary struct {
	passed, failed, skipped int
	packages                int // that ended well
	seen                    map[string]bool
	times                   []event // the results of tests
}

// summarize copies to w what is worth reading of the events in r, and counts.
func summarize(r io.Reader, w io.Writer) (summary, error) {
	sum := summary{seen: map[string]bool{}}
	output := map[string][]said{}   // by package and top-level test: not yet known to be worth printing
	failedTests := map[string]int{} // by package
	build := map[string][]string{}  // compiler output by import path
	key := func(e event) string { return e.Package + "\x00" + topLevel(e.Test) }

	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
				// Not an event: a message of the go command itself.
				fmt.Fprint(w, line)
				continue
			}
			switch {
			case e.Action == "build-output":
				build[e.ImportPath] = append(build[e.ImportPath], e.Output)
			case e.Action == "build-fail":
				fmt.Fprint(w, strings.Join(build[e.ImportPath], ""))
			case e.Action == "output":
				output[key(e)] = append(output[key(e)], said{e.Test, e.Output})
			case e.Test == "":
				if e.Action == "fail" {
					printUnfinished(w, e.Package, output)
				}
				sum.endOfPackage(w, e, output[key(e)], failedTests[e.Package])
				delete(output, key(e))
			case strings.Contains(e.Test, "/"):
				// A subtest: its parent's result counts. What it said is worth
				// printing only if it failed.
				if e.Action == "pass" || e.Action == "skip" {
					output[key(e)] = slices.DeleteFunc(output[key(e)], func(s said) bool { return s.test == e.Test })
				}
			case e.Action == "pass" || e.Action == "skip" || e.Action == "fail":
				sum.endOfTest(w, e, output[key(e)])
				delete(output, key(e))
				if e.Action == "fail" {
					failedTests[e.Package]++
				}
			}
		}
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
	}
}

// endOfTest counts a result of a top-level test, and prints what it said if that matters.
func (s *summary) endOfTest(w io.Writer, e event, output []said) {
	s.times = append(s.times, e)
	s.seen[e.Test] = true
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		fmt.Fprintf(w, "--- SKIP: %s: %s\n", e.Test, reason(output))
	case "fail":
		s.failed++
		printResult(w, output)
	}
}

// took has a line for each test, with the seconds that it took.
func (sum *summary) took(name string) string {
	var b strings.Builder
	for _, e := range sum.times {
		fmt.Fprintf(&b, "%.2f %s %s %s\n", e.Elapsed, name, e.Package, e.Test)
	}
	return b.String()
}

// said is a line that a test wrote.
type said struct{ test, text string }

// printResult leaves out the lines on how the test was scheduled.
func printResult(w io.Writer, output []said) {
	for _, s := range output {
		if !strings.HasPrefix(s.text, "=== ") {
			fmt.Fprint(w, s.text)
		}
	}
}

func (sum *summary) endOfPackage(w io.Writer, e event, output []said, failedTests int) {
	switch e.Action {
	case "pass":
		sum.packages++
		fmt.Fprintf(w, "ok  \t%s\t%.3fs\n", e.Package, e.Elapsed)
	case "skip":
		sum.packages++
		fmt.Fprintf(w, "?   \t%s\t[no test files]\n", e.Package)
	case "fail":
		if failedTests == 0 {
			sum.failed++
			printResult(w, output)
		}
		fmt.Fprintf(w, "FAIL\t%s\t%.3fs\n", e.Package, e.Elapsed)
	}
}

// printUnfinished prints what the tests said that had no result when the
// process of their package ended: one of them ended it.
func printUnfinished(w io.Writer, pkg string, output map[string][]said) {
	for key, lines := range output {
		if test, ok := strings.CutPrefix(key, pkg+"\x00"); ok && test != "" {
			for _, s := range lines {
				fmt.Fprint(w, s.text)
			}
			delete(output, key)
		}
	}
}

func topLevel(test string) string {
	top, _, _ := strings.Cut(test, "/")
	return top
}

// reason is what a skipped test said about itself.
func reason(output []said) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i].text)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}
