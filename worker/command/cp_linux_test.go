package command_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestStepCopyOut: cp takes files and directories out of results, as they are or as an archive.
func TestStepCopyOut(t *testing.T) {
	stand(t, "overlay")
	name := resultName.FindString(run(t, "", "step", "--base", "bb", "--", "sh", "-c", "busybox mkdir -p /d/e; echo text >/d/f; echo more >/d/e/g; busybox ln -s /etc/passwd /d/out; busybox ln -s /d /to; busybox mkdir /l; busybox ln -s x /l/none").errOut)
	must(t, "cp", name+":/d/f", "one")
	must(t, "cp", name[:17]+":/to/e", "dir")
	must(t, "cp", "bb:/bin/busybox", "./")
	for file, want := range map[string]string{"one": "text\n", "dir/g": "more\n"} {
		if b, err := os.ReadFile(file); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", file, b, err)
		}
	}
	if info, err := os.Stat("busybox"); err != nil || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	archive := must(t, "cp", name+":/d", "-")
	for _, want := range []string{"d/f", "text\n", "d/e/g", "d/out", "/etc/passwd"} {
		if !strings.Contains(archive, want) {
			t.Errorf("%q is not in the archive", want)
		}
	}
	if len(archive)%512 != 0 {
		t.Errorf("an archive of %d bytes", len(archive))
	}
	run(t, "", "step", "--base", "bb", "--mount", "type=cache,id=c,target=/c", "--", "true")
	for _, bad := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{name, "x"}, 2, "NAME:/PATH"},
		{[]string{name + ":d", "x"}, 2, "NAME:/PATH"},
		{[]string{":/d", "x"}, 2, "NAME:/PATH"},
		{[]string{"none:/d", "x"}, 1, "none"},
		{[]string{name + ":/none", "x"}, 1, "no such file"},
		{[]string{name + ":/d", "store"}, 1, "store"},
		{[]string{name + ":/d", "one"}, 1, "directory"},
		{[]string{name + ":/d/f", "/proc/none"}, 1, "copy /d/f: open /proc/none: "}, // which takes no files
		{[]string{name + ":/l", "/proc"}, 1, "copy /l/none: symlink x /proc/none: "},
		{[]string{"!cache/c:/", "x"}, 1, "committed"},
		{[]string{"--json", name + ":/d", "-"}, 2, "--json"},
	} {
		if r := run(t, "", append([]string{"cp"}, bad.args...)...); r.code != bad.code || !strings.Contains(r.errOut, bad.says) {
			t.Errorf("%v: %+v", bad.args, r)
		}
	}
}

// TestStepDiff: snapshot diff lists what a result has changed of its base, or of another snapshot.
func TestStepDiff(t *testing.T) {
	stand(t, "overlay")
	first := resultName.FindString(run(t, "", "step", "--base", "bb", "--", "sh", "-c", "busybox mkdir /d; echo text >/d/f; echo x >/gone").errOut)
	second := resultName.FindString(run(t, "", "step", "--base", first, "--", "sh", "-c", "echo more >>/d/f; busybox rm /gone; echo x >\"$(busybox printf '/n\\377')\"").errOut)
	if got := must(t, "snapshot", "diff", second); got != "C /d\nC /d/f\nD /gone\nA \"/n\\xff\"\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "snapshot", "diff", second, "bb"); !strings.Contains(got, "A /d/f\n") || strings.Contains(got, "gone") || strings.Contains(got, "/bin") {
		t.Errorf("%q", got)
	}
	if got := must(t, "snapshot", "diff", "bb"); !strings.Contains(got, "A /bin/busybox\n") {
		t.Errorf("%q", got)
	}
	var list []struct {
		Path, Change string
		PathBase64   string `json:"path_base64"`
	}
	check(t, json.Unmarshal([]byte(must(t, "--json", "snapshot", "diff", second)), &list))
	if len(list) != 4 || list[2].Path != "/gone" || list[2].Change != "deleted" || list[3].PathBase64 != "L27/" || list[3].Path != "" {
		t.Errorf("%+v", list)
	}
	if got := must(t, "--json", "snapshot", "diff", second, second); strings.TrimSpace(got) != "[]" {
		t.Errorf("%q", got)
	}
	if r := run(t, "", "snapshot", "diff", "none"); r.code != 1 || !strings.Contains(r.errOut, "none") {
		t.Errorf("%+v", r)
	}
}
