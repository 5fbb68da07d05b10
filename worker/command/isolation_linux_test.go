package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A command that looked up a name failed, and it was not said that steps have no network.
func TestFailedLookup(t *testing.T) {
	stand(t, "overlay")
	step := func(output string, flags ...string) result {
		args := append([]string{"step", "--base", "bb"}, flags...)
		return run(t, "", append(args, "--", "sh", "-c", "echo \"$0\" >&2; exit 6", output)...)
	}
	for _, said := range []string{
		"curl: (6) Could not resolve host: example.com", "Temporary failure resolving 'deb.debian.org'", "wget: bad address 'example.com'",
		"ping: example.com: Temporary failure in name resolution", "npm error getaddrinfo EAI_AGAIN registry.npmjs.org", "dial tcp: lookup proxy.golang.org: no such host",
	} {
		if r := step(said); r.code != 6 || !strings.Contains(r.errOut, "--network host") {
			t.Errorf("%s: %+v", said, r)
		}
		if r := step(said, "--network", "host"); r.code != 6 || strings.Contains(r.errOut, "--network") {
			t.Errorf("%s: %+v", said, r)
		}
	}
	for _, said := range []string{"undefined reference to getaddrinfo", "lookup table: no such entry", ""} {
		if r := step(said); r.code != 6 || strings.Contains(r.errOut, "--network") {
			t.Errorf("%s: %+v", said, r)
		}
	}
	var report struct{ Next string }
	r := step("Could not resolve host: x", "--json")
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || !strings.Contains(report.Next, "--network host") {
		t.Errorf("%v: %+v", err, r)
	}
}

// isolation is what doctor says of a runtime, the states before the texts.
func isolation(t *testing.T, runtime string) string {
	t.Helper()
	var report struct {
		Findings []struct{ Topic, Name, State, Detail string }
	}
	r := run(t, "", "doctor", "--json")
	check(t, json.Unmarshal([]byte(r.out), &report))
	var b strings.Builder
	for _, f := range report.Findings {
		if f.Topic == "Isolation of steps" && f.Name == runtime {
			fmt.Fprintf(&b, "%s %s\n", f.State, f.Detail)
		}
	}
	return b.String()
}

// doctor says what isolates steps on this machine, and believes runc only what it says.
func TestDoctorIsolation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others have no runtime runc")
	}
	t.Chdir(t.TempDir())
	for _, runtime := range []string{"native", "runc"} {
		if got := isolation(t, runtime); !strings.HasPrefix(got, "ok ") || !strings.Contains(got, "filter of system calls") || !strings.Contains(got, "namespaces mount") || !strings.Contains(got, "processes") {
			t.Errorf("%s: %s", runtime, got)
		}
	}
	// What it says of a user namespace is what a step then has.
	stand(t, "overlay")
	said := strings.Contains(isolation(t, "native"), "root in a step is an unprivileged user")
	if has := run(t, "", "step", "--base", "bb", "--", "cat", "/proc/self/uid_map"); has.code != 0 || strings.Contains(has.out, "4294967295") == said {
		t.Errorf("doctor says of an unprivileged user: %t; %+v", said, has)
	}
	if off := run(t, "", "step", "--base", "bb", "--userns", "off", "--", "cat", "/proc/self/uid_map"); off.code != 0 || !strings.Contains(off.out, "4294967295") {
		t.Errorf("%+v", off)
	}
	if got := isolation(t, "kernel"); !strings.Contains(got, "virtual machine") && !strings.Contains(got, "exploits") {
		t.Error(got)
	}
	dir := t.TempDir()
	for features, want := range map[string]string{
		`echo '{"linux":{"namespaces":["mount","network","pid"],"seccomp":{"enabled":false}}}'`: "without filters",
		`echo '{"linux":{"namespaces":["mount"],"seccomp":{"enabled":true}}}'`:                  "lacking it has not: a network namespace (runc has none)",
		`exit 1`: "fails",
	} {
		check(t, os.WriteFile(filepath.Join(dir, "runc"), []byte("#!/bin/sh\n"+features+"\n"), 0o755))
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		if got := isolation(t, "runc"); !strings.Contains(got, want) || !strings.Contains(got, "lacking") {
			t.Errorf("%s: %s", features, got)
		}
	}
}
