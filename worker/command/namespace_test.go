package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/worker/command"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// namespaceStand is a store with a base of ours and two snapshots of a client's.
func namespaceStand(t *testing.T) {
	t.Helper()
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	s, err := snapshot.Open("store", snapshot.Options{Driver: copy.New()})
	check(t, err)
	client, err := s.ClientNamespace("containerd")
	check(t, err)
	parent := ""
	for _, name := range []string{"k8s/1/c1", "k8s/2/c2"} {
		m, err := client.Prepare(t.Context(), "active", parent)
		check(t, err)
		check(t, os.WriteFile(filepath.Join(m[0].Source, "file"), []byte(name), 0o600))
		check(t, client.Commit(t.Context(), name, "active"))
		parent = name
	}
	check(t, s.Close())
}

func TestNamespaces(t *testing.T) {
	namespaceStand(t)
	want(t, must(t, "snapshot", "namespaces"), "containerd\nlocal\n")
	if out := must(t, "snapshot", "namespaces", "--json"); !strings.Contains(out, `"containerd"`) || !json.Valid([]byte(out)) {
		t.Error(out)
	}
	other := []string{"--namespace", "containerd"}
	if out := must(t, append(other, "snapshot", "ls")...); strings.Contains(out, "tiny") || strings.Count(out, "k8s/") != 3 {
		t.Error(out)
	}
	if out := must(t, "snapshot", "tree", "--namespace", "containerd"); !strings.Contains(out, "`-- k8s/2/c2") {
		t.Error(out)
	}
	if out := must(t, append([]string{"snapshot", "stat", "k8s/1/c1", "--json"}, other...)...); !strings.Contains(out, `"k8s/2/c2"`) || !strings.Contains(out, `"namespace": "containerd"`) {
		t.Error(out)
	}
	if out := must(t, append([]string{"why", "k8s/2/c2"}, other...)...); !strings.Contains(out, "its namespace is a client") {
		t.Error(out)
	}
	if out := must(t, append([]string{"verify", "k8s/2/c2"}, other...)...); !strings.Contains(out, "1 got a digest") {
		t.Error(out)
	}
	for args, says := range map[string]string{
		"snapshot rm k8s/2/c2 --namespace containerd": "1 removes by itself what it does not need, and fails if something is gone",
		"snapshot ls --namespace nobody":              "2 those with snapshots: containerd, local",
		"why tiny --namespace containerd":             "1 not found",
		"snapshot stat k8s/2/c2":                      "1 not found",
		"df --namespace containerd":                   "2 unknown flag",
	} {
		r := run(t, "", strings.Fields(args)...)
		code, text, _ := strings.Cut(says, " ")
		if code != string(rune('0'+r.code)) || !strings.Contains(r.errOut, text) || r.out != "" {
			t.Errorf("%s: %+v, and should be %s", args, r, says)
		}
	}
	if out := must(t, "snapshot", "rm", "--force", "k8s/2/c2", "--namespace", "containerd"); out != "removed k8s/2/c2\n" {
		t.Error(out)
	}
	for args, offered := range map[string]string{"why --namespace containerd k": "k8s/1/c1", "snapshot ls --namespace c": "containerd", "snapshot rm --namespace containerd k": "k8s/1/c1"} {
		if out := run(t, "", append([]string{"__complete"}, strings.Fields(args)...)...).out; !strings.HasPrefix(out, offered+"\n") {
			t.Errorf("%s: offered is %q", args, out)
		}
	}
}

// TestDigests: what import and step make with --digests can be verified when the command has ended.
func TestDigests(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "plain")
	if out := must(t, "verify"); !strings.HasPrefix(out, "no snapshot has a digest: ") {
		t.Error(out)
	}
	files(t, "other.tar", map[string]string{"etc/name": "other"})
	must(t, "import", "--digests", "other.tar", "other")
	want(t, must(t, "verify"), "1 snapshot verified\n")
	want(t, must(t, "verify", "other"), "1 snapshot verified\n") // a base is a name for one
	var stat struct{ Parent, Digest string }
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "stat", "other", "--json")), &stat))
	check(t, json.Unmarshal([]byte(must(t, "snapshot", "stat", stat.Parent, "--json")), &stat))
	if !strings.HasPrefix(stat.Digest, "sha256:") {
		t.Errorf("%+v", stat)
	}
	if out := must(t, "snapshot", "stat", "other"); strings.Contains(out, "\nDigest") {
		t.Errorf("a view has a digest: %s", out)
	}
}

// TestInterruptedSays: what is said of a command that was interrupted is what has happened.
func TestInterruptedSays(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := fmt.Errorf("remove: %w", context.Canceled)
	const done = "what is removed stays removed"
	if got := command.InterruptedAfter(ctx, err, done); got != "remove: context canceled" {
		t.Errorf("of what nobody has interrupted: %s", got)
	}
	cancel()
	if got := command.InterruptedAfter(ctx, err, done); got != "interrupted; "+done {
		t.Errorf("interrupted: %s", got)
	}
	if got := command.InterruptedAfter(ctx, os.ErrExist, done); got != "file already exists" {
		t.Errorf("another error: %s", got)
	}
}
