package step

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"holdfast/worker/internal/fstree"
	"holdfast/worker/snapshot"
)

func someStep() Step {
	return Step{Base: "base", Command: []string{"sh", "-c", "x"}, Env: []string{"B=1", "A=2"}, Dir: "/d/../w/", User: User{UID: 1, GID: 2, Groups: []uint32{4, 3, 4}},
		Mounts: []Mount{{Source: "/a//b", Target: "/t/", ReadOnly: true}, {Target: "/u"}, {Cache: "c", Target: "/c"}, {Source: "/x", Target: "/x"}},
		Copies: []Copy{{Source: "/from/", Target: "/into//"}}, Labels: map[string]string{"l": "v"}}
}

// idOf is the ID of a step on a base of an identity, with such digests of what it sees.
func idOf(t *testing.T, s Step, base string, sums ...byte) ID {
	t.Helper()
	n, err := s.normalize()
	if err != nil {
		t.Fatal(err)
	}
	in := inputs{base: base, runtime: "native", mounts: make([]fstree.Sum, len(n.Mounts)), copies: make([]fstree.Sum, len(n.Copies)), targets: make([]string, len(n.Copies))}
	for i, c := range n.Copies {
		in.targets[i] = c.Target
	}
	for i, sum := range sums {
		if i < len(in.mounts) {
			in.mounts[i][0] = sum
		} else {
			in.copies[i-len(in.mounts)][0] = sum
		}
	}
	return n.id(&in)
}

// The encoding is part of what is on the disk: an ID never changes.
func TestIDIsStable(t *testing.T) {
	if got := idOf(t, someStep(), "content x", 1, 2, 3, 4, 5).String(); got != "b7750393a687e3404800050e32a7eb7ff474a1b22733a9e6267fa4b256261cea" {
		t.Errorf("%s", got)
	}
}

// Spellings of the same step have one ID, and each part of it makes another.
func TestID(t *testing.T) {
	first := idOf(t, someStep(), "7")
	same := someStep()
	same.Base = "other" // what it is called
	same.Env, same.Dir, same.User.Groups = []string{"A=2", "B=1"}, "/w", []uint32{3, 4}
	same.Mounts[0].Source, same.Limits = "/elsewhere", Limits{Memory: 1, CPU: 2, Pids: 3, Time: 4, Disk: 5}
	same.Copies[0].Source, same.NoCache = "/elsewhere", true
	same.Labels = map[string]string{"l": "v", "none": ""}
	if idOf(t, same, "7") != first {
		t.Error("another spelling is another step")
	}
	seen := map[ID]string{first: "itself"}
	another := func(name string, id ID) {
		if was := seen[id]; was != "" {
			t.Errorf("%s is the same as %s", name, was)
		}
		seen[id] = name
	}
	for i, change := range []func(*Step){
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
		func(s *Step) { s.Mounts[0].Source, s.Mounts[0].Cache = "", "c" },
		func(s *Step) { s.Mounts[2].Cache = "d" },
		func(s *Step) { s.Mounts[2].ReadOnly = true },
		func(s *Step) { s.Mounts[3].Source = "/y" },
		func(s *Step) { s.Copies = nil },
		func(s *Step) { s.Copies[0].Target = "/into" },
		func(s *Step) { s.Labels = nil },
		func(s *Step) { s.Labels["l"] = "w" },
		func(s *Step) { s.Labels["m"] = "v" },
		func(s *Step) { s.Network = NetworkHost },
	} {
		s := someStep()
		change(&s)
		another(fmt.Sprint("change ", i), idOf(t, s, "7"))
	}
	another("another base", idOf(t, someStep(), "8"))
	another("another content of a mount", idOf(t, someStep(), "7", 1))
	another("another content of a copy", idOf(t, someStep(), "7", 0, 0, 0, 0, 1))
	n, err := someStep().normalize()
	if err != nil {
		t.Fatal(err)
	}
	another("another runtime", n.id(&inputs{base: "7", runtime: "runc", mounts: make([]fstree.Sum, 4), copies: make([]fstree.Sum, 1), targets: []string{"/into/"}}))
	if a, b := first.unique(), first.unique(); a == b || a == first {
		t.Error("a run is not unique")
	}
}

// TestIdentity: what a base is.
func TestIdentity(t *testing.T) {
	here, there := [storeIDSize]byte{1}, [storeIDSize]byte{2}
	id := ID{7}
	result := snapshot.Info{Name: id.Snapshot(), ID: 5, Labels: map[string]string{LabelVersion: "2"}}
	image := snapshot.Info{Name: "x", ID: 5, Labels: map[string]string{snapshot.LabelContent: "sha256:1"}}
	for name, c := range map[string]struct {
		info   snapshot.Info
		local  bool
		travel bool
	}{
		"a result":              {result, false, true},
		"a result of version 1": {snapshot.Info{Name: id.Snapshot(), ID: 5}, true, false},
		"an image":              {image, false, true},
		"anything":              {snapshot.Info{Name: "x", ID: 5}, true, false},
	} {
		one, local := identity(c.info, here)
		other := c.info
		other.ID++
		two, _ := identity(other, there)
		if local != c.local || (one == two) != c.travel {
			t.Errorf("%s: %s, %t, and elsewhere %s", name, one, local, two)
		}
		if same, _ := identity(other, here); (same == one) != c.travel {
			t.Errorf("%s: made anew it is %s, and was %s", name, same, one)
		}
	}
	result.Labels[LabelLocal] = "true"
	if _, local := identity(result, here); !local {
		t.Error("a result on a base that only this store knows can travel")
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
		func(s *Step) { s.Mounts[0].Target = "/" },
		func(s *Step) { s.Mounts[0].Target = "/sys" },
		func(s *Step) { s.Mounts[1].Target = "/sys/fs" },
		func(s *Step) { s.Copies[0].Target = "/sys/" },
		func(s *Step) { s.Mounts[0].Target = "/a/../dev/x" },
		func(s *Step) { s.Mounts[0].Cache = "c" },
		func(s *Step) { s.Mounts[2].Cache = string(bytes.Repeat([]byte("a"), 256)) },
		func(s *Step) { s.Mounts[2].Cache = "a\x00" },
		func(s *Step) { s.Copies[0].Source = "from" },
		func(s *Step) { s.Copies[0].Target = "into" },
		func(s *Step) { s.Copies[0].Target = "/x/../proc/x" },
		func(s *Step) { s.Labels[""] = "x" },
		func(s *Step) { s.Labels[LabelVersion] = "2" },
	} {
		s := someStep()
		change(&s)
		if _, err := s.normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("change %d: %v", i, err)
		}
	}
}

func TestParseSnapshot(t *testing.T) {
	id := idOf(t, someStep(), "7")
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
