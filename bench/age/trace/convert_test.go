package trace

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// logText writes a log of transactions, each of which has a number, a database and lines in which names stand between brackets.
func logText(txs ...string) string {
	var b strings.Builder
	for _, tx := range txs {
		lines := strings.Split(tx, "\n")
		var number int
		var db string
		if _, err := fmt.Sscan(lines[0], &number, &db); err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "tx %d %x\n", number, db)
		for _, line := range lines[1:] {
			for {
				before, rest, ok := strings.Cut(line, "[")
				if !ok {
					break
				}
				name, after, _ := strings.Cut(rest, "]")
				line = before + hex.EncodeToString([]byte(name)) + after
			}
			fmt.Fprintln(&b, line)
		}
		fmt.Fprintln(&b, "end")
	}
	return b.String()
}

func read(t *testing.T, txs ...string) []Tx {
	t.Helper()
	all, err := ReadLog(strings.NewReader(logText(txs...)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// text is transactions as text, with the classes of names.
func text(all []Tx) string {
	var b strings.Builder
	for _, tx := range all {
		for _, e := range tx {
			fmt.Fprintf(&b, "%c", e.Op)
			for _, n := range e.Bucket {
				fmt.Fprintf(&b, " %c%s", n.Class, n.Text)
			}
			if e.Key.Text != "" {
				fmt.Fprintf(&b, " %c%q", e.Key.Class, e.Key.Text)
			}
			fmt.Fprintf(&b, " %d\n", e.Size)
		}
		fmt.Fprintln(&b, ".")
	}
	return b.String()
}

// TestReadLog reads transactions of two databases, in the order of their numbers.
func TestReadLog(t *testing.T) {
	got := text(read(t,
		"2 /a/two.db\nd [x] [k] 0\nx [x]/[y] - 0",
		"1 /a/one.db\nc [b] - 0\np [b]/[c] [k] 7"))
	const want = "c fone.db fb 0\np fone.db fb fc f\"k\" 7\n.\nd ftwo.db fx f\"k\" 0\nx ftwo.db fx fy 0\n.\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestReadLogBad refuses what is no log, or has a part of one.
func TestReadLogBad(t *testing.T) {
	good := logText("1 /a/one.db\np [b] [k] 7")
	if _, err := ReadLog(strings.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	bad := []string{
		good + good, // a number twice
		good + logText("2 /b/one.db\np [b] [k] 7"), // two databases of one name
		"end\n", "p 61 62 0\n", "tx 1 61\nend\n", "tx 1 61\n", "tx x 61\n", "tx 1 6\n", "\n", "tx 1 61\ntx 2 61\n",
	}
	for _, line := range []string{"q 61 62 0", "pp 61 62 0", "p 6 62 0", "p  62 0", "p 61/ 62 0", "p 61 - 0", "p 61  0", "p 61 62 -1", "p 61 62 x", "p 61 62"} {
		bad = append(bad, "tx 1 61\n"+line+"\nend\n")
	}
	for n := range len(good) - 1 { // a log that was cut
		if n > 0 {
			bad = append(bad, good[:n])
		}
	}
	for _, s := range bad {
		if all, err := ReadLog(strings.NewReader(s)); err == nil {
			t.Errorf("%q gave %s and no error", s, text(all))
		}
	}
}

// TestConvert tells names that are the same in each cycle from others.
func TestConvert(t *testing.T) {
	cycle := func(digest string, id int) Cycle {
		return Cycle{
			Make:   read(t, fmt.Sprintf("1 meta.db\nc [v1]/[sha256:%s] - 0\np [v1]/[sha256:%s] [size] 3\np [ids] [%d] 2", digest, digest, id)),
			Remove: read(t, fmt.Sprintf("2 meta.db\nx [v1]/[sha256:%s] - 0\nd [ids] [%d] 0", digest, id)),
		}
	}
	tr, err := Convert("a program", cycle("aaaaaaaaaa", 1), cycle("bbbbbbbbbb", 2))
	if err != nil {
		t.Fatal(err)
	}
	const make = "c fmeta.db fv1 nsha256:bbbbbbbbbb 0\np fmeta.db fv1 nsha256:bbbbbbbbbb f\"size\" 3\np fmeta.db fids f\"2\" 2\n.\n"
	const remove = "x fmeta.db fv1 nsha256:bbbbbbbbbb 0\nd fmeta.db fids f\"2\" 0\n.\n"
	if got := text(tr.Make); got != make {
		t.Errorf("Make is\n%s", got)
	}
	if got := text(tr.Remove); got != remove {
		t.Errorf("Remove is\n%s", got)
	}
	if tr.Revisions != 0 || tr.Program != "a program" {
		t.Errorf("Program %q, Revisions %d", tr.Program, tr.Revisions)
	}
}

// revisionsOf has a cycle with keys of etcd.
func revisionsOf(t *testing.T, numbers ...uint64) Cycle {
	t.Helper()
	c := Cycle{Remove: read(t, "1 db\nd [meta] [x] 0")}
	for i, n := range numbers {
		key := fmt.Sprintf("%016x5f%016x", n, 0)
		if i%2 == 1 {
			key += "74"
		}
		all, err := ReadLog(strings.NewReader(fmt.Sprintf("tx 1 %x\np %x %s 9\nend\n", "db", "key", key)))
		if err != nil {
			t.Fatal(err)
		}
		c.Make = slices.Concat(c.Make, all)
	}
	return c
}

// TestConvertRevisions moves etcd's keys by as many revisions as lie between two cycles, and refuses cycles that would overlap.
func TestConvertRevisions(t *testing.T) {
	tr, err := Convert("etcd", revisionsOf(t, 2, 3, 4), revisionsOf(t, 7, 8, 9))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Revisions != 5 {
		t.Errorf("a cycle has %d revisions, want 5", tr.Revisions)
	}
	for _, tx := range tr.Make {
		if tx[0].Key.Class != Revision {
			t.Errorf("%+v is no revision", tx[0].Key)
		}
	}
	third := string(tr.In(nil, tr.Make[1][0].Key, 1))
	if want := revisionsOf(t, 0, 13).Make[1][0].Key.Text; third != want {
		t.Errorf("in the next cycle the key is %q, want %q", third, want)
	}
	for _, bad := range [][2]Cycle{
		{revisionsOf(t, 2, 3), revisionsOf(t, 4, 9)},
		{revisionsOf(t, 7, 8), revisionsOf(t, 2, 3)},
		{revisionsOf(t), revisionsOf(t, 2, 3)},
		{revisionsOf(t, 2, 3), {}},
	} {
		if tr, err := Convert("etcd", bad[0], bad[1]); err == nil {
			t.Errorf("got Revisions %d and no error", tr.Revisions)
		}
	}
}
