package stress_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	"holdfast/test/stress"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
	"holdfast/worker/snapshot/driver/overlay"
	"holdfast/worker/step"
)

func TestMain(m *testing.M) {
	step.Init()
	os.Exit(m.Run())
}

// Random trees of steps run, many at once, while others are pruned: every result has the content that follows from
// its steps. The command stress does the same for longer, and with other drivers.
func TestStress(t *testing.T) { stressed(t, overlay.New("volatile"), 400) }

// A program that had just been copied could not be executed: a child that was being started still had it open for
// writing.
func TestStressOfCopies(t *testing.T) { stressed(t, copy.New(), 300) }

func stressed(t *testing.T, d snapshot.Driver, steps int64) {
	if os.Geteuid() != 0 {
		t.Skip("left out: running steps needs root")
	}
	o := stress.Options{Dir: t.TempDir(), Driver: d, Runtime: step.Native(), Steps: steps, Seed: 1}
	if v := os.Getenv("HOLDFAST_STEP_STRESS"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		o.Steps = n
	}
	r, err := stress.Run(context.Background(), o)
	t.Logf("%+v", r)
	if err != nil || len(r.Problems) > 0 {
		t.Error(err, r.Problems)
	}
	if r.Runs == 0 || r.Hits == 0 || r.Failed == 0 || r.Pruned == 0 || r.Verified == 0 {
		t.Error("not what this is to test")
	}
}
