package zfs_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/worker/internal/testing/zfsfuse"
)

// TestNoAnswer: what is mounted and does not answer is an error, and unmounted; it can be mounted again.
func TestNoAnswer(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	mounts, err := b.namespace.Prepare(ctx, "a", "")
	b.must(err)
	b.output("zfs", "mount", mounts[0].Source) // as a process that was killed has left it
	b.answers(mounts[0].Source)
	zfsfuse.AnswerIn(t, 200*time.Millisecond)
	resume, err := zfsfuse.Pause()
	b.must(err)
	t.Cleanup(resume)
	if _, _, err := b.mounter.Mount(ctx, mounts[0]); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
	b.nothing("it did not answer")
	resume()
	zfsfuse.AnswerIn(t, time.Minute)
	_, release, err := b.mounter.Mount(ctx, mounts[0])
	b.must(err)
	b.must(release())
	b.nothing("it was released")
}

// answers waits until the daemon has handled all that came with the mount of a dataset. If the connection ends while it
// handles a request, zfs-fuse can keep the dataset in use for good.
func (b *bench) answers(dataset string) {
	places, err := zfsfuse.Mounts()
	b.must(err)
	for _, m := range places {
		if m.Dataset == dataset {
			b.must(syscall.Statfs(m.At, new(syscall.Statfs_t)))
		}
	}
	b.must(zfsfuse.AwaitIdle())
}
