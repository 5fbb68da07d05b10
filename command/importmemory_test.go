package command_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	"holdfast/command"
)

// heapInUse is how many bytes of the heap are in use.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// importLines gives an input of n lines, and looks at the memory 20 times.
type importLines struct {
	head, end   string
	line        func(i int) string
	n, i        int
	rest        []byte
	most, begin int64
}

func (r *importLines) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		switch {
		case r.i == 0:
			heapInUse() // what the collector leaves to pools is free behind the next one
			r.begin = heapInUse()
			r.rest = []byte(r.head)
		case r.i <= r.n:
			if r.i%max(r.n/20, 1) == 0 {
				r.most = max(r.most, heapInUse()-r.begin)
			}
			r.rest = []byte(r.line(r.i - 1))
		case r.i == r.n+1:
			r.rest = []byte(r.end)
		default:
			return 0, io.EOF
		}
		r.i++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// TestImportMemory sees that an import takes no more memory for more rows, wherever they go and in
// whatever order they come.
func TestImportMemory(t *testing.T) {
	scattered := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	csv := func(i int) string { return fmt.Sprintf("%016x,%0100d,note %d\n", scattered(i), i, i) }
	lines := func(i int) string {
		return fmt.Sprintf("{\"bucket\":[\"rows\"],\"key\":\"%016x\",\"value\":\"%0100d\"}\n", scattered(i), i)
	}
	for _, c := range []struct {
		name, head, end string
		line            func(i int) string
		args            []string
	}{
		{"lines", exportHead, exportEnd, lines, nil},
		{"csv", "", "", csv, []string{"rows", "--csv", "--create"}},
		{"blobs", "", "", csv, []string{"rows", "--csv", "--create", "--blob-columns", "2,3"}},
	} {
		for _, existing := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, existing), func(t *testing.T) {
				var most []int64
				for _, n := range []int{40_000, 160_000} {
					workdir(t)
					args := append([]string{"import", "x.db"}, c.args...)
					if existing {
						must(t, "put", "x.db", "other", "k", "v", "--create")
					} else {
						args = append(args, "--create")
					}
					in := &importLines{head: c.head, end: c.end, line: c.line, n: n}
					if c.end != "" {
						in.end = fmt.Sprintf(c.end, 0, n)
					}
					root := command.NewRootCommand()
					var out, errOut bytes.Buffer
					root.SetIn(in)
					root.SetOut(&out)
					root.SetErr(&errOut)
					root.SetArgs(args)
					if code := command.Execute(context.Background(), root); code != 0 {
						t.Fatalf("%d: %s", code, &errOut)
					}
					wantIn(t, result{0, out.String(), errOut.String()}, 0, fmt.Sprintf("%d,000 new, 0 replaced", n/1000), "")
					must(t, "check", "x.db")
					most = append(most, in.most)
				}
				t.Logf("%d bytes of memory, %d for four times as many rows", most[0], most[1])
				if most[1] > most[0]*5/4 || most[1] > 16<<20 {
					t.Errorf("%d bytes of memory, %d for four times as many rows: at most 16 MiB, and a quarter more", most[0], most[1])
				}
			})
		}
	}
}
