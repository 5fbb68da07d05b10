package age

import "holdfast/bench/age/trace"

// What is measured at the end of a stretch: commits with names of cycles far from
// those of the life, of which each stretch has its own.
const (
	measuredCycles  = 1 << 32
	measuredStretch = 1 << 16
)

// first is the transaction that process i of a stretch commits first: one key, whose value changes.
func (l *Life) first(stretch, i int) []Op {
	path, key := AppendBucket(nil, []byte("first")), []byte("key")
	return []Op{{
		Do: trace.Put, Bucket: [][]byte{[]byte("first")}, Key: key, Flat: AppendKey(path, key),
		Value: l.value(100, measuredCycles+uint64(stretch*l.config.Opens+i)),
	}}
}

// round are the transactions that are measured in a round, Commits or a few more:
// as many of the Make of each trace, spread evenly over it. Each round has the same
// transactions, with names of its own.
func (l *Life) round(stretch, round int) (all [][]Op) {
	each := (l.config.Commits + len(l.traces) - 1) / len(l.traces)
	for i := range each {
		for at, t := range l.traces {
			if len(t.Make) == 0 {
				continue
			}
			cycle, n := l.measured(stretch, round), i*len(t.Make)/each
			if each > len(t.Make) { // the trace begins anew, in another cycle
				cycle, n = cycle+uint64(i/len(t.Make)), i%len(t.Make)
			}
			all = append(all, l.resolve(nil, at, t.Make[n], cycle))
		}
	}
	return all
}

// undo removes what the rounds of a stretch have made.
func (l *Life) undo(stretch int, do func(tx []Op) error) error {
	each := (l.config.Commits + len(l.traces) - 1) / len(l.traces)
	last := 0 // cycle of a round, as round counts them
	for _, t := range l.traces {
		if n := len(t.Make); n > 0 {
			last = max(last, (each-1)/n)
		}
	}
	for round := range l.config.Rounds {
		for i := range last + 1 {
			if err := l.each(l.measured(stretch, round)+uint64(i), removes, do); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Life) measured(stretch, round int) uint64 {
	return measuredCycles + uint64(stretch)*measuredStretch + uint64(round*l.config.Commits)
}
