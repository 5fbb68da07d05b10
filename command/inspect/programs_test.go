package inspect

import (
	"runtime"
	"slices"
	"testing"
)

// TestProgramOf: what is run to stop and start who keeps a file, where that is known.
func TestProgramOf(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("left out: paths of Linux")
	}
	etcd := []string{"alarm", "auth", "key", "lease", "members", "members_removed", "meta"}
	for _, c := range []struct {
		path    string
		buckets []string
		name    string
		stop    string
	}{
		{"/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", nil, "containerd", "systemctl stop containerd"},
		{"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db", nil, "containerd", "systemctl stop containerd"},
		{"/var/lib/rancher/k3s/agent/containerd/io.containerd.metadata.v1.bolt/meta.db", nil, "containerd", ""},
		{"/var/lib/buildkit/cache.db", buildkitBuckets, "BuildKit", "systemctl stop buildkit"},
		{"/var/lib/buildkit/runc-overlayfs/metadata_v2.db", nil, "BuildKit", "systemctl stop buildkit"},
		{"/var/lib/docker/buildkit/history.db", nil, "BuildKit in Docker", "systemctl stop docker.socket docker"},
		{"/volumes/state/cache.db", buildkitBuckets, "BuildKit", ""},
		{"/var/lib/etcd/member/snap/db", nil, "etcd", "systemctl stop etcd"},
		{"/srv/infra1.etcd/member/snap/db", etcd, "etcd", "systemctl stop etcd"},
		{"/root/copy.db", etcd, "etcd", ""},
		{"/root/copy.db", []string{"key", "meta"}, "", ""},
		{"/root/meta.db", []string{"v1"}, "", ""},
	} {
		p := programOf(c.path, c.buckets)
		if c.name == "" {
			if p != nil {
				t.Errorf("%s %v: %+v", c.path, c.buckets, p)
			}
			continue
		}
		if p == nil || p.name != c.name || p.stop != c.stop || (p.start == "") != (c.stop == "") {
			t.Errorf("%s %v: %+v", c.path, c.buckets, p)
			continue
		}
		want := []string{"holdfast vacuum " + c.path}
		if c.stop != "" {
			want = []string{c.stop, want[0], p.start}
		}
		if got := p.vacuumLines(c.path); !slices.Equal(got, want) {
			t.Errorf("%s: %q", c.path, got)
		}
	}
}
