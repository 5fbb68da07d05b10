package snaplife

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"holdfast/bench/age"
)

var tiny = Config{age.Schedule{Days: 3, Stretches: 1, Cycles: 2, Retention: 4, Prune: 3, Opens: 2, Rounds: 2}, 3}

// TestLife: each operation of many days can be done, what is live is bounded, and on days on which is
// pruned there is as much as on the others. Two lives are the same.
func TestLife(t *testing.T) {
	s := age.Schedule{Cycles: 3, Retention: 10, Prune: 5}
	const perBuild = buildSteps + 2 // a container and a view
	life, other, model := NewLife(s), NewLife(s), Model{}
	made := map[string]bool{}
	for day := 1; day <= 40; day++ {
		var ops, again []Op
		if err := life.Day(func(op Op) error {
			ops = append(ops, op)
			if op.Do == DoStep && made[op.Name] {
				t.Errorf("%s is made twice", op.Name)
			}
			made[op.Name] = true
			return model.Apply(op)
		}); err != nil {
			t.Fatal(err)
		}
		_ = other.Day(func(op Op) error { again = append(again, op); return nil })
		if !reflect.DeepEqual(ops, again) || ops[len(ops)-1].Do != DoSweep {
			t.Fatalf("day %d: %v, and %v", day, ops, again)
		}
		live, images := min(3*day, 10), 4
		if day%5 == 0 {
			live, images = 1, 1
		} else if day > 5 {
			live = min(1+3*(day%5), 10)
		}
		if life.Live() != live {
			t.Errorf("day %d: %d builds are live, want %d", day, life.Live(), live)
		}
		if n := len(model) - live*perBuild; n < imageLayers || n > (images+1)*imageLayers {
			t.Errorf("day %d: %d snapshots of images", day, n)
		}
		if e, ok := model[life.Image()]; !ok || e.Kind != Committed {
			t.Errorf("day %d: the newest image is not there", day)
		}
	}
}

// TestLifeFails: the life ends with the error of an operation, at each of them.
func TestLifeFails(t *testing.T) {
	broken := errors.New("broken")
	count := func(at int) (n int, err error) {
		life := NewLife(tiny.Schedule)
		for range tiny.Days {
			if err := life.Day(func(Op) error {
				if n++; n == at {
					return broken
				}
				return nil
			}); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	all, err := count(0)
	if err != nil || all < 50 {
		t.Fatal(all, err)
	}
	for at := 1; at <= all; at++ {
		if n, err := count(at); n != at || !errors.Is(err, broken) {
			t.Fatalf("operation %d: %d, %v", at, n, err)
		}
	}
}

// TestModel: an operation that no snapshotter can do is refused, and each difference is told.
func TestModel(t *testing.T) {
	m := Model{}
	for _, op := range []Op{{DoStep, "base", ""}, {DoStep, "top", "base"}, {DoStart, "run", "top"}, {DoView, "seen", "base"}, {DoCycle, "test", "top"}, {Do: DoSweep}} {
		if err := m.Apply(op); err != nil {
			t.Fatal(err)
		}
	}
	for _, op := range []Op{{DoStep, "top", "base"}, {DoStart, "other", "run"}, {DoStep, "other", "none"}, {Do: DoRemove, Name: "none"}, {DoCycle, "test", "seen"}} {
		if err := m.Apply(op); !errors.Is(err, errModel) {
			t.Errorf("%v: %v", op, err)
		}
	}
	for want, change := range map[string]func(Model){
		`the Active snapshot "run" is lost; it has 3 snapshots of 4`:           func(m Model) { delete(m, "run") },
		`it has the View snapshot "late", which was removed or never made`:     func(m Model) { m["late"] = Entry{Kind: View} },
		`"run" is {Kind:View Parent:top Label:}, and has to be {Kind:Active P`: func(m Model) { m["run"] = Entry{Kind: View, Parent: "top"} },
		`"seen" is {Kind:View Parent:top`:                                      func(m Model) { m["seen"] = Entry{Kind: View, Parent: "top"} },
		`"top" is {Kind:Committed Parent:base Label:no}`:                       func(m Model) { m["top"] = Entry{Committed, "base", "no"} },
	} {
		got := maps.Clone(m)
		change(got)
		if err := m.Compare(got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := m.Compare(maps.Clone(m)); err != nil {
		t.Error(err)
	}
}

// TestTree: in a chain of three all files are seen but the first of each parent, and the version is the last.
func TestTree(t *testing.T) {
	m := Model{"a": {Kind: Committed}, "b": {Kind: Committed, Parent: "a"}, "c": {Kind: Committed, Parent: "b"}}
	tree := m.Tree("c")
	want := Files{}
	for _, name := range []string{"a", "b", "c"} {
		maps.Copy(want, layer(name))
	}
	delete(want, layerFile("a", 0))
	delete(want, layerFile("b", 0))
	if err := want.Compare(tree); err != nil || tree[versionFile] != "c" || len(tree) != 1+3*(layerFiles-1)-2 {
		t.Errorf("%v, %d files", err, len(tree))
	}
	for want, change := range map[string]func(Files){
		"etc/version is lost":                          func(f Files) { delete(f, versionFile) },
		"etc/version has other content":                func(f Files) { f[versionFile] = "b" },
		"etc/passwd was removed or never written":      func(f Files) { f["etc/passwd"] = "" },
		layerFile("a", 0) + " was removed or never wr": func(f Files) { f[layerFile("a", 0)] = "" },
	} {
		got := maps.Clone(tree)
		change(got)
		if err := tree.Compare(got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestConfig: both configurations can be run, and are measured on days on which as much is live as on the first.
func TestConfig(t *testing.T) {
	for _, c := range []Config{Quick, Full} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		days := c.Measured()
		if last := days[len(days)-1]; len(days) != c.Stretches+1 || last != c.Days {
			t.Errorf("%v", days)
		}
		for _, day := range days[1:] {
			if day%c.Prune != 0 || c.Keep() != c.Cycles {
				t.Errorf("on day %d more or less is live than on day 1", day)
			}
		}
	}
	bad := tiny
	bad.Steps = 0
	if err := bad.Check(); err == nil || !strings.Contains(err.Error(), "-steps is 0") {
		t.Error(err)
	}
}
