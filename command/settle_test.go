package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast"
	"holdfast/command"
	"holdfast/internal/page"
)

// makeLeft makes left.db, a file as the end of its process leaves it after some
// commits, and torn.db, of which the last flush was not finished.
func makeLeft(t *testing.T) {
	t.Helper()
	db, err := holdfast.Open("live.db", 0o600, &holdfast.Options{PageSize: samplePage, SettleDelay: -1})
	check(t, err)
	var data [2][]byte
	for i := range 6 {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			check(t, err)
			for j := range 40 {
				check(t, b.Put(fmt.Appendf(nil, "key-%03d", i*20+j), fmt.Appendf(make([]byte, 90), "value of %d", i)))
			}
			return tx.Bucket([]byte("b")).Put([]byte("last"), fmt.Append(nil, i))
		}))
		data[0] = data[1]
		data[1], err = os.ReadFile("live.db")
		check(t, err)
	}
	check(t, db.Close())
	check(t, os.Remove("live.db"))
	check(t, os.WriteFile("left.db", data[1], 0o600))
	copy(data[1][2*samplePage:], data[0][2*samplePage:]) // the last meta is there, none of its pages
	check(t, os.WriteFile("torn.db", data[1], 0o600))
}

// state is what info and settle say of the newest state.
type state struct {
	Transaction  int    `json:"transaction"`
	Label        uint64 `json:"txid"`
	Slot         int    `json:"slot"`
	Behind       bool   `json:"bbolt_behind"`
	Unfinished   bool   `json:"last_flush_unfinished"`
	FreeRecorded bool   `json:"free_pages_recorded"`
	Settled      bool   `json:"settled"`
	Root         uint64 `json:"root_page"`
	HighWater    uint64 `json:"high_water_pages"`
	Free         *int   `json:"free_pages"`
}

func stateOf(t *testing.T, args ...string) (s state) {
	t.Helper()
	check(t, json.Unmarshal([]byte(must(t, append(args, "--json")...)), &s))
	return s
}

// withoutState is the output of a command without the lines that settling changes.
func withoutState(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, "bbolt finds") && !strings.Contains(line, "Not closed") && !strings.Contains(line, "bbolt_behind") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Commands that read show the newest state of a file that was left in mid use, as
// they do after it was settled, and change nothing.
func TestReadingWhatWasLeft(t *testing.T) {
	dir := workdir(t)
	makeLeft(t)
	before := snapshot(t, dir)
	raw, err := os.ReadFile("left.db")
	check(t, err)
	slots := page.DecodeSlots(raw, raw[samplePage:])
	best, err := slots.Best()
	check(t, err)

	info := stateOf(t, "info", "left.db")
	if !info.Behind || info.Unfinished || !info.FreeRecorded || info.Free == nil || info.Settled ||
		info.Slot != best || info.Label != uint64(slots.Meta[best].Label) || info.Transaction <= 5 {
		t.Errorf("info: %+v", info)
	}
	if info.Root == uint64(slots.Meta[best].Root) {
		t.Errorf("info gives page %d as root, which is that of the state before", info.Root)
	}
	out := must(t, "info", "left.db")
	for _, want := range []string{
		"recorded: opening takes no scan (with bbolt it does)\n",
		fmt.Sprintf("\nTransaction  %d (bbolt's transaction id: %d)\n", info.Transaction, info.Label),
		fmt.Sprintf("\nMeta page %d  transaction id %d, current\n", info.Slot, info.Label),
		"\nbbolt finds  the state before the last flush; before you go back to bbolt, run: holdfast settle left.db\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	wantIn(t, run(t, "doctor", "left.db"), 0, "recorded: opening the file needs no scan, also after a crash; with bbolt opening it for writing reads ", "")
	wantIn(t, run(t, "doctor", "left.db"), 0, "bbolt finds the state before the last flush; before you go back to bbolt, run: holdfast settle left.db\n", "")
	wantIn(t, run(t, "doctor", "left.db", "--json"), 0, `"bbolt_behind": true`, "")
	wantIn(t, run(t, "get", "left.db", "b", "last"), 0, "5\n", "")
	wantIn(t, run(t, "check", "left.db"), 0, ": sound\n", "")

	commands := [][]string{
		{"check"}, {"stats"}, {"doctor"}, {"buckets"}, {"keys", "b"}, {"get", "b", "last"}, {"get", "b", "key-139"},
	}
	outputs := func() (all []string) {
		for _, c := range commands {
			for _, how := range [][]string{nil, {"--json"}} {
				args := append([]string{c[0], "left.db"}, append(c[1:len(c):len(c)], how...)...)
				all = append(all, withoutState(must(t, args...)))
			}
		}
		return all
	}
	first := outputs()
	must(t, "compact", "-o", "copy.db", "left.db")
	wantIn(t, run(t, "get", "copy.db", "b", "last"), 0, "5\n", "")
	check(t, os.Remove("copy.db"))
	if after := snapshot(t, dir); strings.ReplaceAll(after, "copy.db", "") != before {
		t.Errorf("reading changed files: before\n%s\nafter\n%s", before, after)
	}
	must(t, "settle", "left.db")
	for i, out := range outputs() {
		if out != first[i] {
			t.Errorf("%s: before settling\n%s\nafter\n%s", commands[i/2], first[i], out)
		}
	}
	settled := stateOf(t, "info", "left.db")
	if settled.Behind || settled.Transaction != info.Transaction || settled.Label != info.Label+1 || settled.Slot == info.Slot ||
		settled.Root != info.Root || settled.HighWater != info.HighWater || *settled.Free != *info.Free {
		t.Errorf("info after settling: %+v, before %+v", settled, info)
	}
	wantIn(t, run(t, "info", "left.db"), 0, "\nbbolt finds  the newest state\n", "")
}

// settle says what it did, and does nothing the second time.
func TestSettle(t *testing.T) {
	withSample(t)
	makeLeft(t)
	newest := stateOf(t, "info", "left.db").Transaction
	wanted := map[string]string{
		"left.db":   fmt.Sprintf("settled: bbolt would have been one flush behind; now it finds transaction %d, the newest\n", newest),
		"torn.db":   fmt.Sprintf("settled: the last flush was not finished, and nothing is left of it; bbolt finds transaction %d, the newest that is whole\n", newest-1),
		"sample.db": "nothing to do: bbolt finds transaction 6, the newest\n",
	}
	for file, want := range wanted {
		data, err := os.ReadFile(file)
		check(t, err)
		if out := must(t, "settle", file); out != want {
			t.Errorf("%s: %q, want %q", file, out, want)
		}
		after, err := os.ReadFile(file)
		check(t, err)
		if bytes.Equal(after, data) != strings.HasPrefix(want, "nothing") || len(after) != len(data) {
			t.Errorf("%s: the file has changed, or has not, or its size", file)
		}
		wantIn(t, run(t, "settle", file), 0, "nothing to do: bbolt finds transaction ", "")
		again, err := os.ReadFile(file)
		check(t, err)
		if !bytes.Equal(again, after) {
			t.Errorf("%s: settled twice, it has changed twice", file)
		}
		check(t, os.WriteFile(file, data, 0o600))
		s := stateOf(t, "settle", file)
		if s.Settled != (file != "sample.db") || s.Behind != (file == "left.db") || s.Unfinished != (file == "torn.db") || !s.FreeRecorded {
			t.Errorf("%s: %+v", file, s)
		}
		if s := stateOf(t, "settle", file); s.Settled || s.Behind || s.Unfinished {
			t.Errorf("%s, the second time: %+v", file, s)
		}
	}
	makeLeft(t)
	wantIn(t, run(t, "info", "torn.db"), 0, "\nLast flush   not whole: a crash cut it short", "")
	wantIn(t, run(t, "info", "torn.db"), 0, "\nbbolt finds  the newest state\n", "")
	if s := stateOf(t, "info", "torn.db"); !s.Unfinished || s.Behind || s.Transaction != newest-1 {
		t.Errorf("info: %+v", s)
	}
	wantIn(t, run(t, "get", "torn.db", "b", "last"), 0, "4\n", "")
	wantIn(t, run(t, "settle"), command.ExitUsage, "", "FILE is missing")
	wantIn(t, execute(command.NewBboltCommand(), "", "settle", "left.db"), 0, wanted["left.db"], "")
}

// How free pages are found is told for each kind of file.
func TestFreePagesTold(t *testing.T) {
	for name, c := range map[string]struct {
		options        holdfast.Options
		bbolt          bool // as if bbolt had written the metas: nothing is after them
		info, doctor   string
		list, recorded bool
	}{
		"closed":      {holdfast.Options{}, false, "; recorded: opening takes no scan; for bbolt there is the freelist in page ", "also after a crash; for bbolt also stored, in 1 page\n", true, true},
		"no freelist": {holdfast.Options{NoFreelistSync: true}, false, "; recorded: opening takes no scan (with bbolt it does)\n", "also after a crash; with bbolt opening it for writing reads 4 pages\n", false, true},
		"bbolt":       {holdfast.Options{}, true, "; in the freelist in page ", "stored, in 1 page, as bbolt does: opening the file needs no scan; Holdfast's first commit records it\n", true, false},
		"bbolt without freelist": {holdfast.Options{NoFreelistSync: true}, true, "not stored: opening it for writing takes a scan\n",
			"not stored (NoFreelistSync): opening it for writing reads 4 pages, until Holdfast has recorded it in a commit\n", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			workdir(t)
			c.options.PageSize = samplePage
			db, err := holdfast.Open("x.db", 0o600, &c.options)
			check(t, err)
			for i := range 3 {
				check(t, db.Update(func(tx *holdfast.Tx) error {
					b, err := tx.CreateBucketIfNotExists([]byte("b"))
					check(t, err)
					return b.Put(fmt.Append(nil, i), make([]byte, 300*(i+1)))
				}))
			}
			check(t, db.Close())
			if c.bbolt {
				damage(t, "x.db", func(data []byte) []byte {
					for slot := range 2 {
						clear(data[slot*samplePage:][page.ExtensionOffset:samplePage])
					}
					return data
				})
			}
			wantIn(t, run(t, "info", "x.db"), 0, c.info, "")
			wantIn(t, run(t, "doctor", "x.db"), 0, c.doctor, "")
			var r struct {
				Recorded bool    `json:"free_pages_recorded"`
				List     *uint64 `json:"freelist_page"`
				Stored   bool    `json:"freelist_stored"`
			}
			check(t, json.Unmarshal([]byte(must(t, "info", "x.db", "--json")), &r))
			if r.Recorded != c.recorded || (r.List != nil) != c.list {
				t.Errorf("info: %+v", r)
			}
			check(t, json.Unmarshal([]byte(must(t, "doctor", "x.db", "--json")), &r))
			if r.Recorded != c.recorded || r.Stored != c.list {
				t.Errorf("doctor: %+v", r)
			}
		})
	}
}

// What doctor says of a commit and of closing is what they write.
func TestDoctorCommit(t *testing.T) {
	workdir(t)
	for _, options := range []holdfast.Options{{}, {SettleDelay: -1}} {
		options.PageSize = 4096
		db, err := holdfast.Open("x.db", 0o600, &options)
		check(t, err)
		put := func(i int) {
			check(t, db.Update(func(tx *holdfast.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				check(t, err)
				return b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 100))
			}))
		}
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			check(t, err)
			for i := range 1000 {
				check(t, b.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 100)))
			}
			return nil
		}))
		check(t, db.Close())
		var d struct {
			Commit struct {
				Bytes   int64 `json:"holdfast_bytes"`
				Flushes int   `json:"holdfast_flushes"`
				Close   int64 `json:"holdfast_close_bytes"`
			} `json:"one_key_commit"`
			Pages   int64 `json:"high_water_pages"`
			Live    int64 `json:"live_pages"`
			Free    int64 `json:"free_pages"`
			List    int64 `json:"freelist_pages"`
			Records int64 `json:"record_pages"`
		}
		check(t, json.Unmarshal([]byte(must(t, "doctor", "x.db", "--json")), &d))
		if d.Pages != 2+d.Live+d.Free+d.List+d.Records {
			t.Errorf("%+v: the pages do not add up", d)
		}
		options.SettleDelay = -1 // so that nothing else is written meanwhile
		db, err = holdfast.Open("x.db", 0o600, &options)
		check(t, err)
		before := db.Stats()
		put(500)
		after := db.Stats()
		if diff := after.Sub(&before); diff.BytesWritten != d.Commit.Bytes || diff.Flushes != d.Commit.Flushes {
			t.Errorf("a commit wrote %d bytes in %d flushes, doctor says %d in %d", diff.BytesWritten, diff.Flushes, d.Commit.Bytes, d.Commit.Flushes)
		}
		check(t, db.Close())
		closed := db.Stats()
		if diff := closed.Sub(&after); diff.BytesWritten != d.Commit.Close {
			t.Errorf("closing wrote %d bytes, doctor says %d", diff.BytesWritten, d.Commit.Close)
		}
		check(t, os.Remove("x.db"))
	}
}
