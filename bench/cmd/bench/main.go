// Command bench measures Holdfast beside bbolt and prints a table for each group
// of workloads: the median of several rounds in which the engines take turns,
// with the lowest and the highest.
//
//	go run ./cmd/bench            # small sizes, less than three minutes
//	go run ./cmd/bench -full      # the sizes of docs/performance.md
//	go run ./cmd/bench read grow  # some groups
//
// With the build tag lmdb, which needs LMDB's header and library, LMDB takes
// part in reading.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	_ "holdfast/bench/lmdb"
	"holdfast/bench/suite"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	full := flag.Bool("full", false, "the sizes of the documentation")
	keys := flag.Int("keys", 0, "keys of the large database")
	rounds := flag.Int("rounds", 0, "rounds of each workload")
	loads := flag.Int("loads", 0, "rounds of bulk loading")
	emptied := flag.Int64("emptied", 0, "MiB put into the file that is emptied")
	dir := flag.String("dir", "", "where to put the databases; default: the temporary directory")
	update := flag.String("update", "", "a document whose tables, between <!-- bench GROUP --> and <!-- end -->, are replaced")
	verbose := flag.Bool("v", false, "say what is being done")
	flag.Parse()
	c := suite.Quick
	if *full {
		c = suite.Full
	}
	for _, set := range []struct {
		value int
		field *int
	}{{*keys, &c.Keys}, {*rounds, &c.Rounds}, {*loads, &c.Loads}} {
		if set.value > 0 {
			*set.field = set.value
		}
	}
	if *emptied > 0 {
		c.Emptied = *emptied << 20
	}
	if *verbose {
		c.Log = os.Stderr
	}
	var err error
	if c.Dir, err = os.MkdirTemp(*dir, "holdfast-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(c.Dir)
	return groups(c, flag.Args(), *update)
}

func groups(c suite.Config, names []string, document string) error {
	for _, name := range names {
		if !slices.ContainsFunc(suite.Groups, func(g suite.Group) bool { return g.Name == name }) {
			return fmt.Errorf("there is no group %q", name)
		}
	}
	fmt.Println(machine(c.Dir) + ", " + load())
	for _, g := range suite.Groups {
		if len(names) > 0 && !slices.Contains(names, g.Name) {
			continue
		}
		began, before := time.Now(), load()
		t, err := g.Run(c)
		if err != nil {
			return fmt.Errorf("%s: %w", g.Name, err)
		}
		t.Print(os.Stdout)
		if document != "" {
			var table bytes.Buffer
			t.Print(&table)
			fmt.Fprintf(&table, "\n%s; %s\n", machine(c.Dir), before)
			if err := replace(document, g.Name, table.Bytes()); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "%s took %v\n", g.Name, time.Since(began).Round(time.Second))
	}
	return nil
}

// machine describes where it runs, as far as that can be found out.
func machine(dir string) string {
	parts := []string{fmt.Sprintf("%d cores", runtime.NumCPU()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	for _, args := range [][]string{{"uname", "-r"}, {"df", "--output=fstype", dir}} {
		if out, err := exec.Command(args[0], args[1:]...).Output(); err == nil {
			if fields := strings.Fields(string(out)); len(fields) > 0 {
				last, _, _ := strings.Cut(fields[len(fields)-1], "-") // without a builder's suffix
				parts = append(parts, last)
			}
		}
	}
	return strings.Join(parts, ", ")
}

// load is how busy the machine is.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load not known"
	}
	return "load " + strings.Join(strings.Fields(string(data))[:3], " ")
}

// replace puts table in place of the group's in the document.
func replace(document, group string, table []byte) error {
	data, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(data, fmt.Appendf(nil, "<!-- bench %s -->\n", group))
	_, tail, end := bytes.Cut(rest, []byte("<!-- end -->"))
	if !ok || !end {
		return fmt.Errorf("%s has no place for the group %s", document, group)
	}
	text := fmt.Appendf(nil, "%s<!-- bench %s -->\n%s\n<!-- end -->%s", head, group, bytes.TrimRight(table, "\n"), tail)
	return os.WriteFile(document, text, 0o644)
}
