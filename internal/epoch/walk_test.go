package epoch

import "testing"

// Counting went through all states that were held under the lock which publishing needs: with
// 20,000 of them each call of Stats kept a commit waiting for a millisecond.
func TestCountsLetOthersPublish(t *testing.T) {
	e := New(0, func(*int) {})
	var guards []Guard[int]
	acquire := func() {
		g, ok := e.Acquire()
		if !ok {
			t.Fatal("closed")
		}
		guards = append(guards, g)
	}
	const states = 1000
	for i := range states {
		acquire()
		e.Publish(i + 1)
	}
	pauses := 0
	now, ever := e.counts(func() { // would wait for ever if the lock were held
		pauses++
		for range 40 { // states that were visited go, the next one to be visited does, and new ones come
			guards[0].Release()
			guards = guards[1:]
		}
		if pauses%3 == 0 {
			guards[30].Release()
			guards = append(guards[:30:30], guards[31:]...)
		}
		e.SweepAll()
		acquire()
		e.Publish(-pauses)
	})
	if least := states / sweepStates; pauses < least {
		t.Errorf("%d pauses among %d states, want %d", pauses, states, least)
	}
	if ever < states || ever > uint64(states+pauses) {
		t.Errorf("%d guards have ever been, want %d and at most %d more", ever, states, pauses)
	}
	if now < int64(len(guards)-pauses) || now > states+int64(pauses) {
		t.Errorf("%d guards, want about %d", now, len(guards))
	}
	if now, ever := e.Counts(); now != int64(len(guards)) || ever != uint64(states+pauses) {
		t.Errorf("%d guards, %d ever; want %d, %d", now, ever, len(guards), states+pauses)
	}
	if len(e.walks) > 0 {
		t.Errorf("%d walks are left", len(e.walks))
	}
}
