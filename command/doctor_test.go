package command_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast"
)

// diagnosis is the part of doctor's JSON that is compared with the truth.
type diagnosis struct {
	Size      int64 `json:"size_bytes"`
	PageSize  int64 `json:"page_size_bytes"`
	Live      int64 `json:"live_pages"`
	Free      int64 `json:"free_pages"`
	Keys      int64 `json:"keys"`
	Buckets   int64 `json:"buckets"`
	Stored    bool  `json:"freelist_stored"`
	Compacted int64 `json:"compacted_bytes_estimate"`
	Advised   bool  `json:"compaction_advised"`
	Commit    struct {
		Bbolt    int64 `json:"bbolt_bytes"`
		Freelist int64 `json:"freelist_bytes"`
		Holdfast int64 `json:"holdfast_bytes"`
	} `json:"one_key_commit"`
	Program  string   `json:"program"`
	DiskFree *int64   `json:"disk_free_bytes"`
	Next     []string `json:"next"`
	NextCopy []string `json:"next_copy"`
}

func diagnose(t *testing.T, path string) (d diagnosis) {
	t.Helper()
	check(t, json.Unmarshal([]byte(must(t, "doctor", path, "--json")), &d))
	return d
}

// makeMixed makes a database of buckets of many shapes and deletes most of it.
func makeMixed(t *testing.T, path string, options *holdfast.Options) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	smallPages(t, path, options.PageSize)
	db, err := holdfast.Open(path, 0o600, options)
	check(t, err)
	fill := func(name string, n, size int, keep float64) {
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(name))
			check(t, err)
			for i := range n {
				check(t, b.Put(fmt.Appendf(nil, "%s-%08d", name, random.IntN(1<<30)), make([]byte, random.IntN(size))))
				if i%100 == 0 {
					_, err := b.CreateBucketIfNotExists(fmt.Appendf(nil, "sub-%d", i))
					check(t, err)
				}
			}
			return nil
		}))
		check(t, db.Update(func(tx *holdfast.Tx) error {
			c := tx.Bucket([]byte(name)).Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if v != nil && random.Float64() >= keep {
					check(t, c.Delete())
				}
			}
			return nil
		}))
	}
	fill("small", 20_000, 200, 0.2)
	fill("large", 300, 30_000, 0.3)
	fill("few", 50, 20, 1)
	check(t, db.Close())
}

// TestDoctorTells the truth: what it estimates is compared with what a real
// compaction and real commits give.
func TestDoctorTells(t *testing.T) {
	workdir(t)
	for _, noFreelist := range []bool{false, true} {
		makeMixed(t, "mixed.db", &holdfast.Options{NoSync: true, NoFreelistSync: noFreelist, PageSize: 4096})
		d := diagnose(t, "mixed.db")
		if d.Stored == noFreelist {
			t.Errorf("freelist_stored is %t, NoFreelistSync was %t", d.Stored, noFreelist)
		}
		must(t, "compact", "-o", "copy.db", "mixed.db")
		info, err := os.Stat("copy.db")
		check(t, err)
		if off := float64(d.Compacted) / float64(info.Size()); off < 0.85 || off > 1.15 {
			t.Errorf("compaction was estimated to leave %d bytes and left %d", d.Compacted, info.Size())
		}
		if !d.Advised || len(d.Next) != 1 || d.Next[0] != "holdfast vacuum mixed.db" || d.Program != "" ||
			len(d.NextCopy) != 1 || d.NextCopy[0] != "holdfast compact -o mixed.db.compact mixed.db && mv mixed.db.compact mixed.db" {
			t.Errorf("of a file of %d bytes with %d live: %+v", d.Size, d.Live*d.PageSize, d)
		}
		after := diagnose(t, "copy.db")
		if after.Advised || after.Keys != d.Keys || after.Buckets != d.Buckets || len(after.Next)+len(after.NextCopy) != 0 {
			t.Errorf("of the compacted file: %+v, it was made of %+v", after, d)
		}
		must(t, "vacuum", "mixed.db") // what is advised helps
		if after := diagnose(t, "mixed.db"); after.Advised || after.Keys != d.Keys || float64(after.Size) > 1.1*float64(info.Size())+64<<10 {
			t.Errorf("of the file after a vacuum: %+v, a compacted one has %d bytes", after, info.Size())
		}
		if out := must(t, "doctor", "copy.db"); !strings.Contains(out, "Healthy. Nothing needs to be done.") {
			t.Errorf("of the compacted file: %s", out)
		}
		check(t, os.Remove("mixed.db"))
		check(t, os.Remove("copy.db"))
	}
}

// TestDoctorOfLink: of a file that was given by a symbolic link, the line for a copy had mv
// replace the link: who has the file open by its own name went on with the bloated one.
func TestDoctorOfLink(t *testing.T) {
	workdir(t)
	check(t, os.Mkdir("data", 0o700))
	makeMixed(t, "data/mixed.db", &holdfast.Options{NoSync: true, PageSize: 4096})
	symlink(t, "data/mixed.db", "link.db")
	d := diagnose(t, "link.db")
	want := "holdfast compact -o data/mixed.db.compact data/mixed.db && mv data/mixed.db.compact data/mixed.db"
	if filepath.Separator == '/' && (len(d.NextCopy) != 1 || d.NextCopy[0] != want) {
		t.Errorf("got %q, want %q", d.NextCopy, want)
	}
}

// TestDoctorVerdict: a file whose pages are half filled was called bloated
// though next to nothing in it was free, and a small one of which most is not
// needed was called healthy without a reason.
func TestDoctorVerdict(t *testing.T) {
	workdir(t)
	for _, c := range []struct {
		keys, alloc int
		want        string
	}{
		{60_000, 4096, "Half-filled pages: compaction would give back "},
		{1000, 512 << 10, "too little to matter."},
	} {
		db, err := holdfast.Open("filled.db", 0o600, &holdfast.Options{NoSync: true, PageSize: 4096})
		check(t, err)
		db.AllocSize = c.alloc
		check(t, db.Update(func(tx *holdfast.Tx) error {
			b, err := tx.CreateBucket([]byte("b"))
			check(t, err)
			for i := range c.keys {
				check(t, b.Put(fmt.Appendf(nil, "%08d", i*7919%c.keys), make([]byte, 100))) // in no order
			}
			return nil
		}))
		check(t, db.Close())
		wantIn(t, run(t, "doctor", "filled.db"), 0, c.want, "")
		check(t, os.Remove("filled.db"))
	}
}

// TestDoctorOfSmallFile: a file of 2 MiB, which a database takes in growing, was called bloated.
func TestDoctorOfSmallFile(t *testing.T) {
	workdir(t)
	check(t, os.WriteFile("value", make([]byte, 1_500_000), 0o600))
	must(t, "put", "small.db", "b", "k", "--value-file", "value", "--create")
	must(t, "delete", "small.db", "b", "k")
	if info, err := os.Stat("small.db"); err != nil || info.Size() != 2<<20 {
		t.Fatal(info, err)
	}
	wantIn(t, run(t, "doctor", "small.db"), 0, "of the file, but that is only 2.0 MiB: too little to matter.\n", "")
}

// TestDoctorProgram: of a program that is known the whole sequence is told, and what is
// its own.
func TestDoctorProgram(t *testing.T) {
	workdir(t)
	check(t, os.MkdirAll("data/member/snap", 0o700))
	const etcd = "data/member/snap/db"
	makeBloated(t, etcd, 20_000)
	d := diagnose(t, etcd)
	if d.Program != "etcd" || !slices.Equal(d.Next, []string{"systemctl stop etcd", "holdfast vacuum " + etcd, "systemctl start etcd"}) {
		t.Errorf("got %+v", d)
	}
	out := must(t, "doctor", etcd)
	for _, want := range []string{
		"\nNext: it is a database of etcd; run\n  systemctl stop etcd\n  holdfast vacuum data/member/snap/db\n  systemctl start etcd\nwhich works in place",
		"\nOld revisions are not free before etcd has compacted them: `etcdctl compact REVISION`",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	must(t, "vacuum", etcd)
	out = must(t, "doctor", etcd)
	if !strings.Contains(out, "Healthy.") || !strings.Contains(out, "\nOld revisions are not free") || strings.Contains(out, "systemctl") || strings.Contains(out, "One member") {
		t.Errorf("got\n%s", out)
	}
	// The same buckets elsewhere.
	for _, name := range []string{"key", "lease", "meta", "members_removed"} {
		must(t, "put", "copied.db", name, "k", "v", "--create")
	}
	wantIn(t, run(t, "doctor", "copied.db"), 0, "wrote ends with a checksum of its own: leave it as it is.\n", "")
	if d := diagnose(t, "copied.db"); d.Program != "etcd" || d.DiskFree != nil {
		t.Errorf("got %+v", d)
	}
}

// TestDoctorSmall: databases with nothing or next to nothing in them.
func TestDoctorSmall(t *testing.T) {
	workdir(t)
	db, err := holdfast.Open("none.db", 0o600, nil)
	check(t, err)
	check(t, db.Close())
	wantIn(t, run(t, "doctor", "none.db"), 0, "A commit of one key writes, in a database without keys", "")
	db, err = holdfast.Open("empty.db", 0o600, nil)
	check(t, err)
	check(t, db.Update(func(tx *holdfast.Tx) error {
		_, err := tx.CreateBucket([]byte("b"))
		return err
	}))
	check(t, db.Close())
	wantIn(t, run(t, "doctor", "empty.db"), 0, "0 keys in 1 bucket", "")
	if d := diagnose(t, "empty.db"); d.Keys != 0 || d.Buckets != 1 || d.Live != 1 {
		t.Errorf("got %+v", d)
	}
}
