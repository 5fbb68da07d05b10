package step

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"holdfast/worker/snapshot"
)

func someStep() Step {
	return Step{Base: "base", Command: []string{"sh", "-c", "x"}, Env: []string{"B=1", "A=2"}, Dir: "/d/../w/", User: User{UID: 1, GID: 2, Groups: []uint32{4, 3, 4}},
		Mounts: []Mount{{Source: "/a//b", Target: "/t/", ReadOnly: true}, {Target: "/u"}}}
}

func idOf(t *testing.T, s Step, base snapshot.ID) ID {
	t.Helper()
	n, err := s.normalize()
	if err != nil {
		t.Fatal(err)
	}
	return n.id(snapshot.Info{ID: base})
}

// The encoding is part of what is on the disk: an ID never changes.
func TestIDIsStable(t *testing.T) {
	if got := idOf(t, someStep(), 7).String(); got != "aecf321257f550d66ea452b0ed904c20bbb6623592a307df9880aff34d7fb1bc" {
		t.Errorf("%s", got)
	}
}

// Spellings of the same step have one ID, and each part of it makes another.
func TestID(t *testing.T) {
	first := idOf(t, someStep(), 7)
	same := someStep()
	same.Env, same.Dir, same.User.Groups = []string{"A=2", "B=1"}, "/w", []uint32{3, 4}
	same.Mounts[0].Source, same.Limits = "/a/b", Limits{Memory: 1, CPU: 2, Pids: 3, Time: 4, Disk: 5}
	if idOf(t, same, 7) != first {
		t.Error("another spelling is another step")
	}
	seen := map[ID]string{first: "itself"}
	for i, change := range []func(*Step){
		func(s *Step) { s.Base = "other" },
		func(s *Step) { s.Command = []string{"sh", "-c", "x", ""} },
		func(s *Step) { s.Command = []string{"sh", "-cx"} },
		func(s *Step) { s.Env = []string{"A=2"} },
		func(s *Step) { s.Env, s.Command = nil, append(s.Command, "A=2", "B=1") },
		func(s *Step) { s.Dir = "/" },
		func(s *Step) { s.User.UID = 0 },
		func(s *Step) { s.User.GID = 0 },
		func(s *Step) { s.User.Groups = nil },
		func(s *Step) { s.User = User{Name: "1:2"} },
		func(s *Step) { s.User = User{Name: "1"} },
		func(s *Step) { s.Mounts = s.Mounts[:1] },
		func(s *Step) { s.Mounts[0].ReadOnly = false },
		func(s *Step) { s.Mounts[0].Source = "" },
		func(s *Step) { s.Mounts[0].Target = "/tt" },
		func(s *Step) { s.Mounts[0], s.Mounts[1] = s.Mounts[1], s.Mounts[0] },
		func(s *Step) { s.Network = NetworkHost },
	} {
		s := someStep()
		change(&s)
		id := idOf(t, s, 7)
		if was := seen[id]; was != "" {
			t.Errorf("change %d is the same as %s", i, was)
		}
		seen[id] = fmt.Sprint("change ", i)
	}
	if idOf(t, someStep(), 8) == first {
		t.Error("another base of the same name is the same")
	}
	s := someStep()
	s.Base = first.Snapshot()
	if idOf(t, s, 7) != idOf(t, s, 8) {
		t.Error("a result that was made again is another base")
	}
}

func TestInvalid(t *testing.T) {
	for i, change := range []func(*Step){
		func(s *Step) { s.Base = "" },
		func(s *Step) { s.Command = nil },
		func(s *Step) { s.Command = []string{""} },
		func(s *Step) { s.Command = []string{"a\x00b"} },
		func(s *Step) { s.Command = []string{string(make([]byte, MaxSize))} },
		func(s *Step) { s.Command = []string{string(bytes.Repeat([]byte("a"), MaxSize))} },
		func(s *Step) { s.Env = []string{"A"} },
		func(s *Step) { s.Env = []string{"=a"} },
		func(s *Step) { s.Env = []string{"A=1", "A=2"} },
		func(s *Step) { s.Dir = "w" },
		func(s *Step) { s.Network = 2 },
		func(s *Step) { s.Limits.CPU = math.NaN() },
		func(s *Step) { s.Limits.CPU = math.Inf(1) },
		func(s *Step) { s.Limits.Memory = -1 },
		func(s *Step) { s.Limits.Time = -1 },
		func(s *Step) { s.Mounts[0].Target = "t" },
		func(s *Step) { s.Mounts[0].Source = "s" },
		func(s *Step) { s.Mounts[0].Target = "/x/.." },
		func(s *Step) { s.Mounts[0].Target = "/proc" },
		func(s *Step) { s.Mounts[0].Target = "/dev/x" },
		func(s *Step) { s.Mounts[0].Target = "/a/../dev/x" },
	} {
		s := someStep()
		change(&s)
		if _, err := s.normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("change %d: %v", i, err)
		}
	}
}

func TestParseSnapshot(t *testing.T) {
	id := idOf(t, someStep(), 7)
	if got, ok := ParseSnapshot(id.Snapshot()); !ok || got != id {
		t.Error(got, ok)
	}
	for _, name := range []string{"", "step-", "step-00", id.String(), id.Snapshot() + "0", "step-" + fmt.Sprintf("%X", id[:]), "step-" + string(bytes.Repeat([]byte("g"), 64))} {
		if got, ok := ParseSnapshot(name); ok && got.Snapshot() != name {
			t.Errorf("%q", name)
		}
	}
}

func TestOutputKeeps(t *testing.T) {
	for _, pieces := range [][]int{{3}, {10}, {11}, {25}, {5, 5}, {5, 5, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {7, 30, 2}, {4, 4, 4, 4}} {
		o := newOutput(10)
		var all []byte
		var shown []byte
		at, small := int64(0), true
		for _, n := range pieces {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte('a' + (len(all)+i)%26)
			}
			all = append(all, p...)
			if got, err := o.Write(p); got != n || err != nil {
				t.Fatal(got, err)
			}
			small = small && n <= 5
			b, next, _ := o.from(at)
			shown, at = append(shown, b...), next
		}
		want := string(all)
		if len(all) > 10 {
			want = fmt.Sprintf("%s\n[%d bytes of the output are left out here]\n%s", all[:5], len(all)-10, all[len(all)-5:])
		}
		got, total := o.text()
		if string(got) != want || total != int64(len(all)) {
			t.Errorf("%v: %q %d, and not %q", pieces, got, total, want)
		}
		if b, next, _ := o.from(0); string(b) != want || next != total {
			t.Errorf("%v: %q, and not %q", pieces, b, want)
		}
		if small && string(shown) != string(all) {
			t.Errorf("%v: shown %q of %q", pieces, shown, all)
		}
	}
}

func TestRecord(t *testing.T) {
	r := record{flags: flagAdopted, created: 1, used: 2, duration: 3, user: 4, system: 5, memory: 6, code: 7, written: 1<<63 - 1, snapshot: "name"}
	b, err := r.append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseRecord(b)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v %v", got, err)
	}
	for n := range b {
		if _, err := parseRecord(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, bad := range [][]byte{append(bytes.Clone(b), 0), {2}, {1, 2}, {1, 0, 0x80, 0}} {
		if _, err := parseRecord(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	r := record{created: 1 << 60, snapshot: "step-x"}
	b, err := r.append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		again, err := r.append(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x, %v", b, again, err)
		}
	})
}
