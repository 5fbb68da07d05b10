package programs

import (
	"fmt"
	"io"
	"time"

	"holdfast/test/cluster"
)

// engines are both, the other first in every second round.
func engines(round int) []cluster.Engine {
	if round%2 == 1 {
		return []cluster.Engine{cluster.Holdfast, cluster.Stock}
	}
	return []cluster.Engine{cluster.Stock, cluster.Holdfast}
}

// rounds measures a program on both engines, n times, one engine after the other.
func rounds(log io.Writer, what fmt.Stringer, n int, measure func(cluster.Engine) error) error {
	for round := range n {
		for _, e := range engines(round) {
			fmt.Fprintf(log, "%v: round %d on %v\n", what, round+1, e)
			if err := measure(e); err != nil {
				return fmt.Errorf("%v on %v: %w", what, e, err)
			}
		}
	}
	return nil
}

// A meter adds to a table how long work takes on an engine and what it writes to the disk until all is there.
type meter struct {
	t    *Table
	e    cluster.Engine
	disk *Disk
	name string // begins the name of each row, such as "aged"
}

// each runs work n times, and adds what one of them takes.
func (m meter) each(what string, n int, work func(i int) error) error {
	took, bytes, err := m.disk.written(func() error {
		for i := range n {
			if err := work(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.t.Add(m.e, m.name+": "+what, Seconds, took.Seconds()/float64(n))
	m.t.Add(m.e, m.name+": "+what+", bytes written", Bytes, float64(bytes)/float64(n))
	return nil
}

// once runs work once.
func (m meter) once(what string, work func() error) error {
	return m.each(what, 1, func(int) error { return work() })
}

// written runs work and returns how long it took, and what was written to the disk for it until all was there.
func (d *Disk) written(work func() error) (took time.Duration, bytes int64, err error) {
	before, err := d.Written()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := work(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := d.Written()
	return took, after - before, err
}
