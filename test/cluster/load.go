//go:build unix

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// registers is how many keys at a time are written again and again. Each round has its own: what a client does not know of an old one
// then need not be weighed with all that comes later.
const registers = 6

// A request of a history is what a client asked of a register, and answer what it was told.
type request struct {
	key   string
	put   bool
	value string
}

type answer struct {
	value   string
	unknown bool // of a put: nothing tells whether it was done, or ever will be
}

// register is what each key is: a place for one value.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(request).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(request), output.(answer)
		if in.put {
			return true, in.value
		}
		return out.value == state.(string), state
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(request), output.(answer)
		switch {
		case in.put && out.unknown:
			return fmt.Sprintf("put %s = %s, and nobody knows", in.key, in.value)
		case in.put:
			return fmt.Sprintf("put %s = %s", in.key, in.value)
		}
		return fmt.Sprintf("get %s: %s", in.key, out.value)
	},
}

// A load is clients that read and write registers, and others that put each key once. Its methods may be called by all goroutines.
type load struct {
	members func() []*Member
	began   time.Time
	round   atomic.Int64
	puts    atomic.Int64 // that were acknowledged, of both kinds
	slowest atomic.Int64

	mu      sync.Mutex
	history []porcupine.Operation
	acked   map[string]bool // keys that were put once: whether it was acknowledged
}

// run runs clients until ctx ends.
func (l *load) run(ctx context.Context, clients int, seed uint64) {
	var wg sync.WaitGroup
	for id := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				members := l.members()
				m := members[rng.IntN(len(members))]
				ok := false
				if id%2 == 0 {
					ok = l.register(ctx, m, id, n, rng)
				} else {
					ok = l.once(ctx, m, fmt.Sprintf("k/%02d/%08d", id, n), rng)
				}
				if !ok {
					time.Sleep(20 * time.Millisecond) // a member that is down answers at once
				}
			}
		})
	}
	wg.Wait()
}

func (l *load) now() int64 { return int64(time.Since(l.began)) }

func (l *load) register(ctx context.Context, m *Member, id, n int, rng *rand.Rand) bool {
	in := request{key: fmt.Sprintf("r/%d/%d", l.round.Load(), rng.IntN(registers)), put: rng.IntN(2) == 0}
	op := porcupine.Operation{ClientId: id, Call: l.now()}
	var out answer
	var err error
	if in.put {
		in.value = fmt.Sprintf("%d.%d", id, n)
		err = m.Put(ctx, in.key, in.value)
	} else {
		out.value, err = m.Get(ctx, in.key)
	}
	op.Return = l.now()
	switch {
	case err != nil && !in.put:
		return false // what was not answered says nothing
	case err != nil:
		op.Return, out.unknown = forever, true
	case in.put:
		l.acknowledged(op.Return - op.Call)
	}
	op.Input, op.Output = in, out
	l.mu.Lock()
	l.history = append(l.history, op)
	l.mu.Unlock()
	return err == nil
}

// forever is when what is not known may still be done.
const forever = 1 << 62

func (l *load) once(ctx context.Context, m *Member, key string, rng *rand.Rand) bool {
	began := l.now()
	err := m.Put(ctx, key, string(make([]byte, rng.IntN(2000))))
	if err == nil {
		l.acknowledged(l.now() - began)
	}
	l.mu.Lock()
	l.acked[key] = err == nil
	l.mu.Unlock()
	return err == nil
}

func (l *load) acknowledged(took int64) {
	l.puts.Add(1)
	for {
		most := l.slowest.Load()
		if took <= most || l.slowest.CompareAndSwap(most, took) {
			return
		}
	}
}
