package command_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type topSeen struct {
	Owner, Directories, Trash, Mounts int
	Snapshots, Committed, Bytes       int64
	Known                             string
	Steps                             []struct {
		PID, Processes int
		Snapshot       string `json:"snapshot_id"`
		Command        string
	}
}

func top(t *testing.T) topSeen {
	t.Helper()
	var seen topSeen
	check(t, json.Unmarshal([]byte(must(t, "top", "--json", "--count", "1")), &seen))
	return seen
}

// TestTop: what is seen is there, also while another process has the store, and it does not disturb that.
func TestTop(t *testing.T) {
	for _, driver := range []string{"overlay", "copy"} {
		stand(t, driver)
		if s := top(t); s.Owner != 0 || s.Directories != 2 || s.Snapshots != 2 || s.Committed != 1 || s.Bytes == 0 || len(s.Steps) != 0 || s.Mounts != 0 {
			t.Errorf("%s: nothing runs: %+v", driver, s)
		}
		ctx, cancel := context.WithCancel(context.Background())
		wait := begun(t, ctx)
		s := top(t)
		if s.Owner != os.Getpid() || s.Directories != 3 || s.Known != "" || s.Mounts != 1 || len(s.Steps) != 1 {
			t.Fatalf("%s: a step runs: %+v", driver, s)
		}
		if one := s.Steps[0]; !strings.Contains(one.Command, "echo begun; sleep 600") || one.Processes < 1 || one.PID <= 1 {
			t.Errorf("%s: %+v", driver, one)
		}
		if _, err := os.Stat(filepath.Join("store", "snapshots", s.Steps[0].Snapshot)); err != nil {
			t.Errorf("%s: its snapshot: %v", driver, err)
		}
		lines := strings.Split(must(t, "top", "--count", "2", "--interval", "10ms"), "\n")
		if len(lines) != 4 || !strings.Contains(lines[0], "OWNER") {
			t.Errorf("%s: %q", driver, lines)
		}
		cancel()
		if r := wait(); r.code != 130 || r.out != "begun\n" {
			t.Errorf("%s: the step: %+v", driver, r)
		}
		if s := top(t); s.Owner != 0 || len(s.Steps) != 0 || s.Mounts != 0 || s.Snapshots != 2 {
			t.Errorf("%s: nothing runs any more: %+v", driver, s)
		}
	}
}

// TestTopEnds: without a count it ends when it is interrupted, which is no failure.
func TestTopEnds(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := runIn(t, ctx, "", "top"); r.code != 0 || !strings.Contains(r.out, "SNAPSHOTS") {
		t.Errorf("%+v", r)
	}
	for args, says := range map[string]string{"top --interval 1ms": "--interval is", "top --count -1": "--count is", "top it": ""} {
		if r := run(t, "", strings.Fields(args)...); r.code != 2 || !strings.Contains(r.errOut, says) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := run(t, "", "top", "--root", "elsewhere"); r.code != 1 || !strings.Contains(r.errOut, "there is no store") {
		t.Errorf("%+v", r)
	}
}
