package step

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/snapshot"
)

// envDir is where a worker that is going to be killed has its store, envRuntime its runtime.
const (
	envDir     = "HOLDFAST_STEP_DIR"
	envRuntime = "HOLDFAST_STEP_RUNTIME"
)

func runtimeNamed(name string) Runtime {
	switch name {
	case "runc":
		return Runc()
	case "init":
		return native{init: true}
	case "plain":
		return native{plain: true}
	}
	return Native()
}

func init() {
	// worker runs steps, twenty at once, for ever, and prints the name of each result and where it comes from.
	helpers["worker"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.opt.Runtime, s.opt.Concurrency = runtimeNamed(os.Getenv(envRuntime)), 20
		s.prepare()
		base = os.Getenv("TMPDIR")
		if err := s.tryOpen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		var mu sync.Mutex
		round := strconv.FormatInt(time.Now().UnixNano(), 36)
		for g := range 20 {
			go func() {
				parent, depth := "base", 0
				for i := 0; ; i++ {
					word := fmt.Sprintf("%s-%d-%d", round, g, i)
					res, err := s.Run(s.ctx, churn(parent, word), nil)
					if err != nil {
						var f *Failure
						if !errors.As(err, &f) || !errors.Is(err, ErrExit) {
							fmt.Fprintln(os.Stderr, "worker:", err)
							os.Exit(1)
						}
						continue
					}
					mu.Lock()
					fmt.Println(res.Snapshot, word)
					mu.Unlock()
					if parent, depth = res.Snapshot, depth+1; depth == 5 {
						parent, depth = "base", 0
					}
				}
			}()
		}
		time.Sleep(time.Hour)
	}
}

// churn is a step that writes a word, has children, and sometimes fails.
func churn(parent, word string) Step {
	step := sh(parent, "(sleep 1000 &); sleep 1000 & echo "+word+" | tee /word; test "+strconv.Itoa(rand.IntN(5))+" != 0")
	if rand.IntN(3) == 0 {
		step.Limits = Limits{Memory: 256 << 20, Pids: 50}
	}
	return step
}

// killRounds is how often the worker is killed: HOLDFAST_STEP_ROUNDS, or some.
func killRounds(t *testing.T, some int) int {
	if v := os.Getenv("HOLDFAST_STEP_ROUNDS"); v != "" {
		n, err := strconv.Atoi(v)
		must(t, err)
		return n
	}
	return some
}

// A worker that is killed at any moment leaves nothing that stays: S1 to S6 hold when the next has opened.
func TestKilled(t *testing.T) {
	needRoot(t)
	for name, rounds := range map[string]int{"native": 14, "plain": 3, "init": 3, "runc": 3} {
		t.Run(name, func(t *testing.T) { killTest(t, name, killRounds(t, rounds)) })
	}
}

func killTest(t *testing.T, name string, rounds int) {
	s := newStand(t, Options{Runtime: runtimeNamed(name), Concurrency: 20})
	recorded, adopted := map[string]string{}, 0
	for round := range rounds {
		s.close()
		said := s.killWorker(name, 1+rand.IntN(60))
		s.ctx = contextOf(t)
		s.open()
		s.clean()
		for snap, word := range said {
			recorded[snap] = word
		}
		// Every result that was told of is there, with its content; what else is there has content too.
		must(t, s.namespace.Walk(s.ctx, func(i snapshot.Info) error {
			id, ok := ParseSnapshot(i.Name)
			if !ok {
				return nil
			}
			rec, out, err := s.results.get(id)
			if errors.Is(err, ErrNotFound) {
				adopted++
				return nil
			}
			if err != nil {
				return err
			}
			if word, ok := recorded[i.Name]; ok && string(out) != word+"\n" || rec.snapshot != i.Name {
				t.Errorf("%s has said %q, and not %q", i.Name, out, word)
			}
			return nil
		}))
		n := 0
		for snap, word := range recorded {
			if _, err := s.namespace.Stat(s.ctx, snap); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if n++; n <= 3 {
				if got := s.read(snap, "word"); got != word+"\n" {
					t.Errorf("round %d: %s has %q, and not %q", round, snap, got, word)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		s.ok(sh("base", "echo after the crash"+strconv.Itoa(round)))
	}
	t.Logf("%d rounds, %d results, %d found without a record", rounds, len(recorded), adopted)
}

// killWorker runs a worker on the store, kills it after a number of results, at any moment, and returns
// what it has told.
func (s *stand) killWorker(runtime string, results int) map[string]string {
	s.Helper()
	cmd := exec.Command("/proc/self/exe")
	self, err := os.Readlink("/proc/self/exe")
	must(s, err)
	cmd.Path = self
	cmd.Env = append(os.Environ(), envHelper+"=worker", envDir+"="+s.dir, envRuntime+"="+runtime)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(s, err)
	must(s, cmd.Start())
	said := map[string]string{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		snap, word, ok := strings.Cut(lines.Text(), " ")
		if !ok {
			break // cut off by the kill
		}
		said[snap] = word
		if len(said) == results {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
			must(s, unix.Kill(cmd.Process.Pid, unix.SIGKILL))
		}
	}
	_ = cmd.Wait()
	if len(said) < results {
		s.Fatalf("the worker has ended by itself behind %d results", len(said))
	}
	return said
}

// stopper kills itself at a point of a run.
func init() {
	helpers["stopper"] = func() {
		s := &stand{dir: os.Getenv(envDir), ctx: context.Background()}
		s.prepare()
		base = os.Getenv("TMPDIR")
		if err := s.tryOpen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		at, _ := strconv.Atoi(os.Getenv(envRuntime))
		s.hook = func(p point, _ ID) {
			if int(p) == at {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		}
		_, err := s.Run(s.ctx, sh("base", "echo word; echo word >/word"), nil)
		fmt.Fprintln(os.Stderr, err)
	}
}

// The process ends at each point of a run.
func TestKilledAtPoints(t *testing.T) {
	s := newStand(t, Options{})
	for p := atPrepared; p <= atCommitted; p++ {
		s.close()
		cmd := exec.Command("/proc/self/exe")
		self, err := os.Readlink("/proc/self/exe")
		must(t, err)
		cmd.Path = self
		cmd.Env = append(os.Environ(), envHelper+"=stopper", envDir+"="+s.dir, envRuntime+"="+strconv.Itoa(int(p)))
		out, err := cmd.CombinedOutput()
		if err == nil || len(out) > 0 {
			t.Fatalf("point %d: %v: %s", p, err, out)
		}
		s.open()
		s.clean()
		want := 1
		if p == atCommitted {
			want = 2
		}
		if n := countSnapshots(s); n != want {
			t.Errorf("point %d: %d snapshots, and not %d", p, n, want)
		}
	}
	res := s.ok(sh("base", "echo word; echo word >/word"))
	if !res.Hit || res.Adopted || string(res.Output) != "word\n" || s.read(res.Snapshot, "word") != "word\n" {
		t.Errorf("%+v", res) // a process that ended after the commit, and before the record, had lost the output
	}
}
