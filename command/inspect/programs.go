package inspect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/command/cli"
)

// program is a program that is known to keep a database.
type program struct {
	name  string
	stop  string // command line, if it is known how the program is run
	start string

	// Sentences: what is worth knowing of each of its files, and of one that is made shorter.
	always []string
	notes  []string
}

// Programs, as their own releases and packages lay out their files.
const (
	containerdRoot = "/var/lib/containerd/"
	buildkitRoot   = "/var/lib/buildkit/"
	dockerBuildkit = "/var/lib/docker/buildkit/"
	etcdFile       = "/member/snap/db"
)

// Buckets at the top of databases that are known by them, wherever they lie.
var (
	etcdBuckets     = []string{"key", "lease", "meta", "members_removed"}
	buildkitBuckets = []string{"_backlinks", "_byresult", "_links", "_result"}
)

// oldRevisions is so of each file of etcd, also of one that has no free pages.
const oldRevisions = "Old revisions are not free before etcd has compacted them: `etcdctl compact REVISION`, or --auto-compaction-retention; under Kubernetes the API server does it."

var etcdNotes = []string{
	"One member at a time. Where the kubelet runs etcd as a static pod, move its manifest away in place of systemctl.",
	"`etcdctl defrag` works while etcd runs, and needs room for a second file.",
}

// programOf is the program whose database lies at path, with such buckets at its top;
// nil if it is not known.
func programOf(path string, buckets []string) *program {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	path = filepath.ToSlash(path)
	has := func(names []string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(buckets, name) })
	}
	unit := func(name, unit string, notes ...string) *program {
		return &program{name: name, stop: "systemctl stop " + unit, start: "systemctl start " + unit, notes: notes}
	}
	switch {
	case strings.HasPrefix(path, containerdRoot):
		return unit("containerd", "containerd")
	case strings.Contains(path, "/io.containerd."):
		return &program{name: "containerd"}
	case strings.HasPrefix(path, dockerBuildkit):
		return &program{name: "BuildKit in Docker", stop: "systemctl stop docker.socket docker", start: "systemctl start docker"}
	case strings.HasPrefix(path, buildkitRoot):
		return unit("BuildKit", "buildkit", "Where BuildKit runs in a container, stop that in place of systemctl.")
	case strings.HasSuffix(path, etcdFile):
		p := unit("etcd", "etcd", etcdNotes...)
		p.always = []string{oldRevisions}
		return p
	case has(etcdBuckets):
		return &program{name: "etcd", always: []string{oldRevisions,
			"A file that `etcdctl snapshot save` wrote ends with a checksum of its own: leave it as it is."}}
	case has(buildkitBuckets):
		return &program{name: "BuildKit"}
	}
	return nil
}

// vacuumLines are the command lines that make the file shorter.
func (p *program) vacuumLines(file string) []string {
	line := fmt.Sprintf("holdfast vacuum %s", cli.ShellWord(file))
	if p == nil || p.stop == "" {
		return []string{line}
	}
	return []string{p.stop, line, p.start}
}
