package age

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/bench/age/trace"
	"holdfast/bench/suite"
)

// Select returns the peers of these names, with commas between, in the order of the names; without names, all.
func Select[P any](peers []P, nameOf func(P) string, names string) ([]P, error) {
	if names == "" {
		return peers, nil
	}
	var chosen []P
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(peers, func(p P) bool { return nameOf(p) == name })
		if i < 0 {
			var all []string
			for _, p := range peers {
				all = append(all, fmt.Sprintf("%q", nameOf(p)))
			}
			return nil, fmt.Errorf("there is no peer %q; there are %s", name, strings.Join(all, ", "))
		}
		chosen = append(chosen, peers[i])
	}
	return chosen, nil
}

// Watcher is told how a run goes on.
type Watcher struct {
	Say      func(line string)     // what is done next
	Measured func(r *Result) error // all peers on one more day; an error ends the run
}

// Run lives the life with each peer, in directories that it makes in dir and does not remove.
// It adds to the result, in which it sets the configuration, the measures, the traces and the lives.
func Run(ctx context.Context, dir string, c Config, peers []Peer, traces []*trace.Trace, r *Result, w Watcher) error {
	if err := c.Check(); err != nil {
		return err
	}
	r.Config, r.Measures = c, Measures
	for _, t := range traces {
		r.Traces = append(r.Traces, t.Program)
	}
	r.About = about(&c, r.Traces)
	for i, p := range peers {
		r.Lives = append(r.Lives, PeerLife{Peer: p.Name, Note: p.Note})
		if err := os.Mkdir(peerDir(dir, i), 0o700); err != nil {
			return err
		}
	}
	life, model := NewLife(c, traces), &Model{}
	days := c.Measured()
	for stretch, day := range days {
		j := job{Config: c, Stretch: stretch, To: day}
		if stretch > 0 {
			j.From = days[stretch-1]
		}
		if err := modelStretch(life, model, stretch, j.To-j.From); err != nil {
			return err
		}
		j.Want = model.Contents
		for i := range peers {
			at := (i + stretch) % len(peers) // not always after the same one
			w.Say(fmt.Sprintf("day %d of %d: %s", day, c.Days, peers[at].Name))
			j.Peer, j.Dir = peers[at].Name, peerDir(dir, at)
			samples, err := runStretch(ctx, j)
			if err != nil {
				return fmt.Errorf("%s, day %d: %w", j.Peer, day, err)
			}
			r.Lives[at].Stretches = append(r.Lives[at].Stretches, Stretch{day, life.Live(), model.Keys, samples})
		}
		if err := w.Measured(r); err != nil {
			return err
		}
	}
	return nil
}

func about(c *Config, traces []string) About {
	return About{
		Title: "The life of embedded stores", Peer: "store", Cycles: "cycles", Keys: "keys",
		Story: fmt.Sprintf("%d days of %d cycles each, of %s; %d cycles are live at most, and every %d days all but %d are removed.",
			c.Days, c.Cycles, strings.Join(traces, ", "), c.Retention, c.Prune, c.Keep()),
		Method: "Days are replayed without flushes, with one at the end of each stretch. Then new processes measure the store, opened as a program opens it; " +
			"its files are in the page cache as far as that has room. Dots are medians; in brackets are the lowest and the highest round. The floor of a " +
			"durable commit, measured between its rounds, is a write of the bytes of its keys and values, and one flush, without a store. After each stretch " +
			"all keys and values were compared with a model.",
	}
}

func peerDir(dir string, i int) string { return filepath.Join(dir, fmt.Sprint("peer", i)) }

// modelStretch does to the model what the children of a stretch do to their stores.
func modelStretch(life *Life, model *Model, stretch, days int) error {
	if stretch > 0 {
		if err := life.undo(stretch-1, model.Apply); err != nil {
			return err
		}
	}
	for range days {
		if err := life.Day(model.Apply); err != nil {
			return err
		}
	}
	for i := range life.config.Opens {
		if err := model.Apply(life.first(stretch, i)); err != nil {
			return err
		}
	}
	for round := range life.config.Rounds {
		for _, tx := range life.round(stretch, round) {
			if err := model.Apply(tx); err != nil {
				return err
			}
		}
	}
	return nil
}

// runStretch lets children age a store and measure it.
func runStretch(ctx context.Context, j job) (Samples, error) {
	all := Samples{}
	add := func(do string) error {
		j.Do = do
		samples, err := start(ctx, j)
		for id, values := range samples {
			all[id] = append(all[id], values...)
		}
		return err
	}
	if err := add(doAge); err != nil {
		return nil, err
	}
	size, err := Allocated(j.Dir)
	if err != nil {
		return nil, err
	}
	all.Add(Size, float64(size))
	for j.Process = range j.Config.Opens - 1 {
		if err := add(doOpen); err != nil {
			return nil, err
		}
	}
	j.Process = j.Config.Opens - 1
	return all, add(doMeasure)
}

// start runs a child, and returns what it has measured.
func start(ctx context.Context, j job) (Samples, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, childError(ctx, &j, err, errs.String())
	}
	var samples Samples
	if err := json.Unmarshal(out.Bytes(), &samples); err != nil {
		return nil, fmt.Errorf("the process to %s it said %.100q: %w", j.Do, out.String(), err)
	}
	return samples, nil
}

// childError is why a child has failed: what it said, or how it ended.
func childError(ctx context.Context, j *job, err error, said string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	said = strings.TrimSpace(said)
	if len(said) > 2000 { // a panic with all goroutines
		said = said[:2000] + " ..."
	}
	if full(j.Dir, said) {
		said += " (the disk is full: give a -dir with more space, or fewer -days)"
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && said != "" {
		return fmt.Errorf("to %s it: %s", j.Do, said)
	}
	return fmt.Errorf("the process to %s it ended: %w: %s", j.Do, err, said)
}

// full says whether a child has failed because the disk is full. Not every store says so when it panics.
func full(dir, said string) bool {
	const little = 1 << 20
	free, err := suite.DiskFree(dir)
	said = strings.ToLower(said)
	return err == nil && free < little || strings.Contains(said, "no space left on device") || strings.Contains(said, "disk is full")
}
