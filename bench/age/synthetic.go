package age

import (
	"fmt"

	"holdfast/bench/age/trace"
)

// Synthetic is a trace that no program made, for tests: 40 transactions that put 8 keys each under a digest, in nested buckets,
// and what removes them.
func Synthetic() *trace.Trace {
	const transactions, keys = 40, 8
	t := &trace.Trace{Program: "synthetic", Revisions: transactions}
	fixed := func(text string) trace.Name { return trace.Name{Class: trace.Fixed, Text: text} }
	content := []trace.Name{fixed("v1"), fixed("default"), fixed("content")}
	for n := range transactions {
		digest := trace.Name{Class: trace.Fresh, Text: fmt.Sprintf("sha256:%064x", uint64(n+1)*0x9e3779b97f4a7c15)}
		blob := append(content[:3:3], digest)
		log := trace.Name{Class: trace.Revision, Text: fmt.Sprintf("\x00\x00\x00\x00\x00\x00\x00%c_", n)}
		tx := trace.Tx{{Op: trace.Create, Bucket: blob}}
		for k := range keys - 2 {
			tx = append(tx, trace.Entry{Op: trace.Put, Bucket: blob, Key: fixed(fmt.Sprintf("field%d", k)), Size: 16 + 40*k})
		}
		tx = append(tx,
			trace.Entry{Op: trace.Put, Bucket: append(blob[:4:4], fixed("labels")), Key: fixed("gc.root"), Size: 30},
			trace.Entry{Op: trace.Put, Bucket: []trace.Name{fixed("log")}, Key: log, Size: 100 + n*20})
		t.Make = append(t.Make, tx)
		gone := trace.Tx{{Op: trace.Delete, Bucket: blob, Key: fixed("field0")}, {Op: trace.Drop, Bucket: blob}}
		t.Remove = append(t.Remove, append(gone, trace.Entry{Op: trace.Delete, Bucket: []trace.Name{fixed("log")}, Key: log}))
	}
	return t
}
