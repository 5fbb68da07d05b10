package command_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// idle is standard input that nothing comes from. A Read of it tells that it has begun.
type idle struct {
	io.Reader
	asked chan<- struct{}
}

func (i idle) Read(p []byte) (int, error) {
	select {
	case i.asked <- struct{}{}:
	default:
	}
	return i.Reader.Read(p)
}

// Ctrl-C did nothing while import waited for standard input, or for a writer of a named pipe: only kill -9
// ended it. Nor did it while a file with policies was one.
func TestWaitingEnds(t *testing.T) {
	work(t)
	must(t, "--driver", "copy", "import", "files.tar", "tiny")
	check(t, syscall.Mkfifo("fifo", 0o600))
	before := must(t, "snapshot", "ls")
	for _, args := range []string{"import - x", "import fifo x", "import fifo", "prune --policy fifo", "step --base tiny --policy fifo -- true"} {
		ctx, cancel := context.WithCancel(context.Background())
		in, writer := io.Pipe()
		asked := make(chan struct{}, 1)
		ended := make(chan result, 1)
		go func() { ended <- runFrom(ctx, idle{in, asked}, strings.Fields(args)...) }()
		if strings.Contains(args, " - ") {
			<-asked
		}
		cancel()
		select {
		case r := <-ended:
			if r.code != 130 && r.code != 125 || !strings.Contains(r.errOut, "interrupted") {
				t.Errorf("%s: %+v", args, r)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", args)
		}
		check(t, writer.Close())
	}
	if after := must(t, "snapshot", "ls"); steady(after) != steady(before) {
		t.Errorf("there was\n%s\nand is\n%s", before, after)
	}
}

// TestPipeHalfWritten: what has come of a pipe leaves nothing when the rest does not come, and a whole one is imported.
func TestPipeHalfWritten(t *testing.T) {
	work(t)
	check(t, syscall.Mkfifo("fifo", 0o600))
	archive, err := os.ReadFile("files.tar")
	check(t, err)
	for _, whole := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan result, 1)
		go func() { ended <- runFrom(ctx, strings.NewReader(""), "--driver", "copy", "import", "fifo", "x") }()
		f, err := os.OpenFile("fifo", os.O_WRONLY, 0)
		check(t, err)
		n := len(archive)
		if !whole {
			n = 600
		}
		_, err = f.Write(archive[:n])
		check(t, err)
		if whole {
			check(t, f.Close())
		} else {
			cancel()
		}
		r := <-ended
		if whole && r.code != 0 || !whole && r.code != 130 {
			t.Errorf("%v: %+v", whole, r)
		}
		cancel()
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
}
