// Package program is what the commands that measure have in common: flags, a
// directory that is removed in the end, and where the tables go.
package program

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/bench/suite"
)

// Program is a command that runs groups of workloads.
type Program struct {
	Name        string
	Groups      []suite.Group
	Quick, Full suite.Config
	CommitPeers []suite.CommitPeer
	// TargetList is the name of this program's list of targets in a document. One that
	// has none, and runs some of the groups of another, prints targets and leaves lists alone.
	TargetList string
}

// Main runs the groups that the command line names, or all, and does not return.
// A target that was missed is not a failure.
func (p *Program) Main() {
	suite.RunChild()
	err := p.run(os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, p.Name+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (p *Program) run(args []string, out io.Writer) error {
	o, err := p.parse(args)
	if err != nil {
		return err
	}
	if o.config.Dir, err = os.MkdirTemp(o.config.Dir, "holdfast-"+p.Name+"-"); err != nil {
		return err
	}
	defer RemoveAll(o.config.Dir)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	go func() {
		<-interrupted
		RemoveAll(o.config.Dir)
		os.Exit(130)
	}()
	if !o.json {
		_, err := p.groups(o, out)
		return err
	}
	r, err := p.groups(o, io.Discard)
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(r))
}

// RemoveAll removes dir, also while files are still being made in it.
func RemoveAll(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
	}
}

// result is what -json prints.
type result struct {
	Command string         `json:"command"` // that printed it
	Date    string         `json:"date"`
	Machine string         `json:"machine"`
	Load    string         `json:"load"` // before the first group
	Groups  []groupResult  `json:"groups"`
	Targets []suite.Target `json:"targets"`
}

type groupResult struct {
	Name  string       `json:"name"`
	Load  string       `json:"load"` // before it
	Table *suite.Table `json:"table,omitempty"`
	Error string       `json:"error,omitempty"`
}

// groups runs them and prints their tables. When one fails the others run
// nevertheless.
func (p *Program) groups(o *options, out io.Writer) (*result, error) {
	r := &result{
		Command: strings.Join(append([]string{p.Name}, o.args...), " "), Date: time.Now().UTC().Format(time.DateOnly),
		Machine: Machine(o.config.Dir), Load: Load(), Targets: []suite.Target{},
	}
	fmt.Fprintln(out, r.Machine+", "+r.Load)
	var failed error
	for _, g := range p.Groups {
		if len(o.names) > 0 && !slices.Contains(o.names, g.Name) {
			continue
		}
		began := time.Now()
		one := groupResult{Name: g.Name, Load: Load()}
		t, err := g.Run(o.config)
		if err == nil {
			t.Print(out)
			one.Table = &t
			r.Targets = append(r.Targets, t.Targets...)
			err = o.replace(g.Name, t.Print, r.Machine+"; "+one.Load)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", g.Name, err)
			one.Error = err.Error()
			failed = errors.Join(failed, err)
		}
		r.Groups = append(r.Groups, one)
		fmt.Fprintf(os.Stderr, "%s took %v\n", g.Name, time.Since(began).Round(time.Second))
	}
	if len(r.Targets) == 0 {
		return r, failed
	}
	targets := func(w io.Writer) { suite.PrintTargets(w, r.Targets) }
	targets(out)
	if p.TargetList != "" && len(o.names) == 0 && failed == nil { // else the list would be shorter than that of the document
		failed = o.replace(p.TargetList, targets, r.Machine+"; "+r.Load)
	}
	return r, failed
}
