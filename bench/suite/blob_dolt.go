package suite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Columns of Dolt's builder.
const (
	doltMemory  = "Dolt's builder, in memory"
	doltJournal = "Dolt's builder, journal"
)

var doltStores = []struct{ name, store string }{{doltMemory, "memory"}, {doltJournal, "journal"}}

// dolt is the program made of bench/dolt, which measures when it is asked.
type dolt struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startDolt(program string) (*dolt, error) {
	d := &dolt{cmd: exec.Command(program)}
	d.cmd.Stderr = os.Stderr
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.out = bufio.NewReader(out)
	return d, d.cmd.Start()
}

// ask gives the nanoseconds and allocations that the program answers with.
func (d *dolt) ask(c *Config, what, store string, a, b int64) (s sample, err error) {
	dir, err := os.MkdirTemp(c.Dir, "dolt-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	if _, err := fmt.Fprintln(d.in, what, store, a, b, dir); err != nil {
		return s, err
	}
	_, err = fmt.Fscanln(d.out, &s.value, &s.allocs)
	return s, err
}

func (d *dolt) stop() error {
	return errors.Join(d.in.Close(), d.cmd.Wait())
}
