package command_test

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"time"

	"holdfast/command"
)

// TestFlagsAreFreed: the flags of each root stayed in memory for as long as the process lived, 3 GB after these tests, since
// cobra keeps the functions that complete flags for ever, by their flags.
func TestFlagsAreFreed(t *testing.T) {
	freed := make(chan struct{})
	func() {
		root := command.NewRootCommand()
		keys, _, err := root.Find([]string{"keys"})
		check(t, err)
		runtime.AddCleanup(keys.Flags().Lookup("format"), func(int) { close(freed) }, 0)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{"version"})
		if code := command.Execute(context.Background(), root); code != 0 {
			t.Fatal(code, &out)
		}
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-freed:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the flag is still there")
}
