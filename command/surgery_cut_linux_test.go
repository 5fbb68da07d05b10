package command_test

import (
	"os"
	"path/filepath"
	"testing"
)

// Surgery on a file that was made shorter while it was copied failed with "out.db: EOF". Here that happens when a
// part of it is copied, of a file that is far longer than what can be copied until then.
func TestSurgeryOfShortened(t *testing.T) {
	dir := workdir(t)
	makeBloated(t, "long.db", 1_000)
	check(t, os.Truncate("long.db", 1<<40))
	ended := make(chan struct{})
	cut := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ended:
				cut <- nil
				return
			default:
			}
			made, _ := filepath.Glob(filepath.Join(dir, ".out.db.*.tmp"))
			for _, name := range made {
				if info, err := os.Stat(name); err == nil && info.Size() > 0 {
					cut <- os.Truncate(filepath.Join(dir, "long.db"), 1<<20)
					return
				}
			}
		}
	}()
	r := run(t, "surgery", "freelist", "abandon", "long.db", "-o", "out.db")
	close(ended)
	check(t, <-cut)
	wantIn(t, r, 1, "", "holdfast: long.db: the file was made shorter while it was copied: from 1.0 TiB to ")
}
