package age

import (
	"flag"
	"fmt"
	"math/rand/v2"

	"holdfast/bench/age/trace"
)

// Schedule is how a life passes, and how often is measured.
type Schedule struct {
	Days      int // of the life
	Stretches int // after each of which is measured, besides on the first day
	Cycles    int // of all traces, in a day
	Retention int // cycles that are live, at most
	Prune     int // every so many days all but the newest tenth of Retention is removed

	Opens  int // processes that open the store and commit once
	Rounds int // of each of the other measures
}

// Config is what a life is like, and how much is measured.
type Config struct {
	Schedule
	Commits int `json:",omitempty"` // durable ones in a round
	Gets    int `json:",omitempty"` // in a round
}

// Quick is a run of five to ten minutes with recorded traces, Full one of an hour or more.
var (
	Quick = Config{Schedule{Days: 100, Stretches: 5, Cycles: 20, Retention: 200, Prune: 20, Opens: 3, Rounds: 5}, 60, 2000}
	Full  = Config{Schedule{Days: 1000, Stretches: 20, Cycles: 20, Retention: 200, Prune: 50, Opens: 5, Rounds: 7}, 200, 20_000}
)

// Flag is a number of a configuration that a command line may replace.
type Flag struct {
	Name, Usage string
	Value       *int
}

// Flags are the numbers of a schedule.
func (s *Schedule) Flags() []Flag {
	return []Flag{
		{"days", "days of the life", &s.Days},
		{"stretches", "of days, after each of which is measured", &s.Stretches},
		{"cycles", "in a day", &s.Cycles},
		{"retention", "cycles that are live at most", &s.Retention},
		{"prune", "every so many days all but a tenth of the retention is removed", &s.Prune},
		{"opens", "how often each store is opened, in a stretch", &s.Opens},
		{"rounds", "of each other measure, in a stretch", &s.Rounds},
	}
}

// DefineFlags defines flags for the numbers of a configuration, and returns what sets those numbers of another one that
// the command line gives, once f has parsed it. A flag such as -full may choose that one.
func DefineFlags(f *flag.FlagSet, numbers []Flag) (set func(of []Flag)) {
	for _, n := range numbers {
		f.IntVar(n.Value, n.Name, 0, n.Usage)
	}
	return func(of []Flag) {
		f.Visit(func(given *flag.Flag) {
			for i, n := range numbers {
				if n.Name == given.Name {
					*of[i].Value = *n.Value
				}
			}
		})
	}
}

// Check says what is wrong with a schedule. flags are all numbers of the configuration that it is part of.
func (s *Schedule) Check(flags []Flag) error {
	for _, f := range flags {
		if *f.Value < 1 {
			return fmt.Errorf("-%s is %d; give a number of 1 or more", f.Name, *f.Value)
		}
	}
	if s.Stretches >= s.Days {
		return fmt.Errorf("%d stretches do not fit into %d days; give more -days, or fewer -stretches", s.Stretches, s.Days)
	}
	return nil
}

// Keep is how many cycles are left on a day on which is pruned.
func (s *Schedule) Keep() int { return max(s.Retention/10, 1) }

// Flags are the numbers of the configuration.
func (c *Config) Flags() []Flag {
	return append(c.Schedule.Flags(), Flag{"commits", "durable commits in a round", &c.Commits}, Flag{"gets", "reads in a round", &c.Gets})
}

// Check says what is wrong with the configuration.
func (c *Config) Check() error { return c.Schedule.Check(c.Flags()) }

// Measured are the days at whose end is measured: the first, and the last of each stretch.
func (s *Schedule) Measured() []int {
	days := []int{1}
	for i := range s.Stretches {
		if day := s.Days * (i + 1) / s.Stretches; day > 1 {
			days = append(days, day)
		}
	}
	return days
}

// part is Make or Remove of a trace.
type part bool

const (
	makes   part = true
	removes part = false
)

// Life makes the transactions of the days, one day after the other.
type Life struct {
	config Config
	traces []*trace.Trace
	day    int
	next   uint64   // cycle
	live   []uint64 // cycles, oldest first
	noise  []byte   // of which values are parts
	names  []names  // of each trace, in the cycle that was used last
	ops    []Op
}

// names are those of a cycle.
type names struct {
	cycle uint64
	of    map[trace.Name][]byte
}

// NewLife is a life that has not begun.
func NewLife(c Config, traces []*trace.Trace) *Life {
	l := &Life{config: c, traces: traces, names: make([]names, len(traces)), noise: make([]byte, 1<<20)}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(l.noise) // it never fails
	for i := range l.names {
		l.names[i].of = map[trace.Name][]byte{}
	}
	return l
}

// Live is how many cycles are live.
func (l *Life) Live() int { return len(l.live) }

// Day calls do with each transaction of the next day.
func (l *Life) Day(do func(tx []Op) error) error {
	l.day++
	for range l.config.Cycles {
		if err := l.each(l.next, makes, do); err != nil {
			return err
		}
		l.live = append(l.live, l.next)
		l.next++
		if err := l.keep(l.config.Retention, do); err != nil {
			return err
		}
	}
	if l.day%l.config.Prune == 0 {
		return l.keep(l.config.Keep(), do)
	}
	return nil
}

// Skip is as if a day had passed, without its transactions.
func (l *Life) Skip() {
	traces := l.traces
	l.traces = nil
	_ = l.Day(nil) // without traces there is nothing that fails
	l.traces = traces
}

// keep removes the oldest cycles until n are live.
func (l *Life) keep(n int, do func(tx []Op) error) error {
	for len(l.live) > n {
		if err := l.each(l.live[0], removes, do); err != nil {
			return err
		}
		l.live = l.live[1:]
	}
	return nil
}

// each calls do with the transactions of a cycle, trace after trace.
func (l *Life) each(cycle uint64, p part, do func(tx []Op) error) error {
	for i, t := range l.traces {
		all := t.Remove
		if p == makes {
			all = t.Make
		}
		for n := range all {
			l.ops = l.resolve(l.ops[:0], i, all[n], cycle)
			if err := do(l.ops); err != nil {
				return fmt.Errorf("day %d, cycle %d, transaction %d of %s: %w", l.day, cycle, n, t.Program, err)
			}
		}
	}
	return nil
}

// resolve appends a transaction with the names and values of a cycle.
func (l *Life) resolve(ops []Op, at int, tx trace.Tx, cycle uint64) []Op {
	t := l.traces[at]
	for n, e := range tx {
		op := Op{Do: e.Op, Bucket: make([][]byte, len(e.Bucket))}
		length := 1
		for i, b := range e.Bucket {
			name := l.name(at, b, cycle)
			if i == 0 { // two programs may have a bucket of the same name
				name = append([]byte{'a' + byte(at), '.'}, name...)
			}
			op.Bucket[i] = name
			length += len(name) + 2
		}
		if e.Op == trace.Put || e.Op == trace.Delete {
			op.Key = l.name(at, e.Key, cycle)
		}
		op.Flat = make([]byte, 0, length+len(op.Key))
		for _, b := range op.Bucket {
			op.Flat = AppendBucket(op.Flat, b)
		}
		if op.Key != nil {
			op.Flat = AppendKey(op.Flat, op.Key)
		}
		if e.Op == trace.Put {
			op.Value = l.value(e.Size, cycle*uint64(len(t.Make)+1)+uint64(n))
		}
		ops = append(ops, op)
	}
	return ops
}

// name is the name in a cycle.
func (l *Life) name(at int, n trace.Name, cycle uint64) []byte {
	known := &l.names[at]
	if known.cycle != cycle {
		known.cycle = cycle
		clear(known.of)
	}
	b, ok := known.of[n]
	if !ok {
		b = l.traces[at].In(nil, n, cycle)
		known.of[n] = b
	}
	return b
}

// value is size bytes that do not compress, others for each seed.
func (l *Life) value(size int, seed uint64) []byte {
	for len(l.noise) < 2*size {
		l.noise = append(l.noise, l.noise...)
	}
	from := int(seed * 0x9e3779b97f4a7c15 >> 1 % uint64(len(l.noise)-size))
	return l.noise[from : from+size : from+size]
}
