package command_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"holdfast/worker/image"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// pruneStand is a store with a base of one layer, two snapshots on it, of which one is to be kept, and one that
// stands on the other.
func pruneStand(t *testing.T) {
	t.Helper()
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	namespace, err := s.Namespace("local")
	check(t, err)
	on, err := image.Resolve(context.Background(), namespace, "tiny")
	check(t, err)
	add := func(name, parent string, labels map[string]string) {
		_, err := namespace.Prepare(context.Background(), "active", parent)
		check(t, err)
		check(t, namespace.Commit(context.Background(), name, "active", snapshot.WithLabels(labels)))
	}
	add("one", on.Name, nil)
	add("kept", on.Name, map[string]string{prune.LabelKeep: "yes"})
	add("two", "one", nil)
	check(t, s.Close())
}

func names(t *testing.T) string {
	t.Helper()
	var list []struct{ Name string }
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "ls", "--json")), &list))
	var all []string
	for _, s := range list {
		if !strings.HasPrefix(s.Name, "sha256:") {
			all = append(all, s.Name)
		}
	}
	return strings.Join(all, " ")
}

func TestPrune(t *testing.T) {
	pruneStand(t)
	want(t, must(t, "prune", "--dry-run", "--max-snapshots", "4"), `
NAME  SIZE  LAST USED  WHY
two  SIZE  AGO  policy 1: 5 snapshots, maxSnapshots = 4
1 snapshot would go, with SIZE; nothing was changed
`)
	if got := names(t); got != "kept one tiny two" {
		t.Errorf("after a dry run there are %s", got)
	}
	want(t, must(t, "why", "tiny"), "tiny stays\n  it is a base, which stays until holdfastd snapshot rm removes it\n")
	if out := must(t, "why", "one"); !strings.Contains(out, "one stays\n") || !strings.Contains(out, "two") {
		t.Errorf("what stands on it keeps it: %s", out)
	}
	check(t, os.WriteFile("policy.toml", []byte("[[policy]]\nfilters = [\"name~=^t\"]\n"), 0o600))
	want(t, must(t, "why", "two", "--policy", "policy.toml"), "two goes with the next holdfastd prune\n  policy 1: it has no bounds\n")
	if out := must(t, "why", "two", "--json"); !strings.Contains(out, `"removed": false`) || !json.Valid([]byte(out)) {
		t.Error(out)
	}
	if out := must(t, "prune"); !strings.HasPrefix(out, "nothing to remove; ") {
		t.Errorf("by the defaults: %s", out)
	}
	if out := must(t, "prune", "--policy", "policy.toml"); !strings.HasPrefix(out, "removed 1 snapshot with ") || names(t) != "kept one tiny" {
		t.Errorf("by a file: %s, there are %s", out, names(t))
	}
	if out := must(t, "prune", "--keep", "1h"); !strings.HasPrefix(out, "nothing to remove; ") {
		t.Errorf("what is young: %s", out)
	}
	var report struct{ Snapshots, Left int64 }
	check(t, json.Unmarshal([]byte(must(t, "prune", "--filter", "name!=x", "--json")), &report))
	if got := names(t); report.Snapshots != 1 || got != "kept tiny" {
		t.Errorf("but for what is to be kept: %+v, there are %s", report, got)
	}
	if out := must(t, "prune", "--all"); names(t) != "tiny" {
		t.Errorf("all: %s, there are %s", out, names(t))
	}
	if entries, err := os.ReadDir("store/trash"); err != nil || len(entries) > 0 {
		t.Errorf("not deleted: %v, %v", entries, err)
	}
	if out := must(t, "df"); !strings.Contains(out, "2, 1 committed") || !strings.Contains(out, "0 B in 0 snapshots") {
		t.Error(out)
	}
	// What is printed as the defaults is the defaults.
	config, err := prune.Parse(must(t, "prune", "--default-policy"))
	check(t, err)
	if len(config.Policies) != len(prune.Default().Policies) {
		t.Errorf("%+v", config)
	}
}

func TestPruneErrors(t *testing.T) {
	pruneStand(t)
	check(t, os.WriteFile("bad.toml", []byte("[[policy]]\nkeep = 3\n"), 0o600))
	check(t, os.WriteFile("all.toml", []byte("[[policy]]\n"), 0o600))
	for args, says := range map[string]string{
		"prune --policy none.toml":       "1 none.toml: no such file",
		"prune --policy bad.toml":        "1 unknown: policy.keep; holdfastd prune --default-policy",
		"prune --policy all.toml":        "1 say all = true",
		"prune --policy all.toml --all":  "2 --policy and --all",
		"prune --max-used 5X":            "2 --max-used: ",
		"prune --min-free 0":             "2 --min-free: ",
		"prune --keep tomorrow":          "2 --keep: ",
		"prune --max-snapshots -3":       "2 --max-snapshots",
		"prune --filter x==":             "2 --filter: ",
		"prune --min-free 100%":          "1 everything would go",
		"prune tiny":                     "2 ",
		"why":                            "2 NAME is missing",
		"why nobody":                     "1 holdfastd snapshot ls lists all names",
		"why tiny --policy bad.toml":     "1 unknown: policy.keep",
		"prune --root elsewhere --all":   "1 there is no store",
		"prune --dry-run --root nowhere": "1 there is no store",
	} {
		r := run(t, "", strings.Fields(args)...)
		code, text, _ := strings.Cut(says, " ")
		if code != string(rune('0'+r.code)) || !strings.Contains(r.errOut, text) || r.out != "" {
			t.Errorf("%s: %+v, and should be %s", args, r, says)
		}
	}
	if got := names(t); got != "kept one tiny two" {
		t.Errorf("there are %s", got)
	}
}

// A run that is interrupted says so.
func TestPruneInterrupted(t *testing.T) {
	pruneStand(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := runIn(t, ctx, "", "prune", "--all"); r.code != 130 || !strings.Contains(r.errOut, "interrupted") {
		t.Errorf("%+v", r)
	}
	if got := names(t); got != "kept one tiny two" {
		t.Errorf("there are %s", got)
	}
}
