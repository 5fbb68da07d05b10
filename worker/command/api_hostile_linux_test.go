package command_test

import (
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"holdfast/worker/api"
)

// TestTokenAfterCrash: a kill or a power failure while the token was written left a part of it, and no daemon could be started any more.
func TestTokenAfterCrash(t *testing.T) {
	stand(t, "overlay")
	check(t, os.WriteFile("store/http.token.new", []byte("PART"), 0o600)) // what a crash leaves now
	startDaemon(t, "--http", "127.0.0.1:0")
	b, err := os.ReadFile("store/http.token")
	check(t, err)
	if _, err := os.Lstat("store/http.token.new"); len(b) < 20 || err == nil {
		t.Errorf("%q, %v", b, err)
	}
}

// TestAPILongNames: of each of the last 200 steps the whole command and error stayed in memory and in each message, up to a megabyte: 200 steps
// that failed took 900 MB, and a list of them had 76 MB.
func TestAPILongNames(t *testing.T) {
	stand(t, "overlay")
	startDaemon(t)
	steps := api.NewStepsClient(overSocket(t), anywhere)
	for _, r := range []*api.RunRequest{
		{Base: "bb", Command: []string{"/" + strings.Repeat("x", 100<<10)}}, {Base: "bb", Command: []string{"true"}, User: strings.Repeat("y", 900<<10)},
	} {
		if _, res, err := ran(t, steps, r); err != nil || res.GetReason() == "" {
			t.Fatalf("%v, %v", res, err)
		}
	}
	list, err := steps.List(t.Context(), connect.NewRequest(&api.ListStepsRequest{}))
	check(t, err)
	for _, s := range list.Msg.Steps {
		if len(s.Command) > 256 || len(s.Error) > 1<<10 || s.Error == "" {
			t.Errorf("a command of %d bytes, an error of %d", len(s.Command), len(s.Error))
		}
	}
	if len(list.Msg.Steps) != 2 {
		t.Errorf("%d steps", len(list.Msg.Steps))
	}
}
