package share

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/internal/vfs"
)

// A small copy-on-write tree, whose pages are reused as soon as the protocol lets them: a root, which
// names its children with the transactions that wrote them, and children that say by which they were written.

const (
	pageCount = 64
	pageWords = pagesBytes / pageCount / 8
	usedWords = 64 // of a page
	children  = 3
)

type pages struct{ *vfs.Words }

func mapPages(file *vfs.OSFile) (pages, error) {
	w, err := file.MapWords(pagesBytes)
	return pages{w}, err
}

func (p pages) fill(page int, v uint64) {
	for i := range usedWords {
		p.Store(page*pageWords+i, v)
	}
}

// is tells whether a page is one that tx wrote.
func (p pages) is(page int, tx uint64, from int) bool {
	for i := from; i < usedWords; i++ {
		if p.Load(page*pageWords+i) != tx {
			return false
		}
	}
	return true
}

// wrong says what is wrong with the tree of a state; "" if nothing is.
func (p pages) wrong(s State) string {
	if s.Root >= pageCount {
		return fmt.Sprintf("root %d", s.Root)
	}
	root := int(s.Root)
	if p.Load(root*pageWords) != s.Tx || !p.is(root, s.Tx, 1+2*children) {
		return "root of another transaction"
	}
	for c := range children {
		page, tx := p.Load(root*pageWords+1+2*c), p.Load(root*pageWords+2+2*c)
		if page >= pageCount || !p.is(int(page), tx, 0) {
			return fmt.Sprintf("child %d", c)
		}
	}
	return ""
}

// written is a page with the transaction that wrote it and, once it is freed, the one that did.
type written struct {
	page      int
	by, freed uint64
}

// writer writes the tree.
type writer struct {
	pages
	o       *Owner
	free    []int
	pending []written
	root    written
	child   [children]written
	tx      uint64
}

// reuse frees what no reader holds.
func (w *writer) reuse() error {
	held, err := w.o.Pins(nil)
	if err != nil {
		return err
	}
	w.pending = slices.DeleteFunc(w.pending, func(p written) bool {
		for _, r := range held {
			if p.by <= r && r < p.freed {
				return false
			}
		}
		w.free = append(w.free, p.page) // taken next
		return true
	})
	return nil
}

func (w *writer) write(v uint64) written {
	page := w.free[len(w.free)-1]
	w.free = w.free[:len(w.free)-1]
	w.fill(page, v)
	return written{page: page, by: w.tx}
}

// step makes a transaction. What it frees is reused by a later one.
func (w *writer) step() State {
	w.tx++
	c := &w.child[rand.IntN(children)]
	for _, p := range []written{*c, w.root} {
		if p.by != 0 {
			p.freed = w.tx
			w.pending = append(w.pending, p)
		}
	}
	*c = w.write(w.tx)
	return w.writeRoot()
}

func (w *writer) writeRoot() State {
	w.root = w.write(w.tx)
	for i, c := range w.child {
		w.Store(w.root.page*pageWords+1+2*i, uint64(c.page))
		w.Store(w.root.page*pageWords+2+2*i, c.by)
	}
	return State{Tx: w.tx, Root: uint64(w.root.page)}
}

// pagesOwner owns the database until it is killed.
func pagesOwner(d *database) error {
	file, err := d.open(os.O_RDWR)
	if err != nil {
		return err
	}
	if err := file.Lock(true, 0); err != nil {
		return err
	}
	w := &writer{}
	if w.pages, err = mapPages(file); err != nil {
		return err
	}
	for page := range pageCount {
		w.free = append(w.free, page)
	}
	w.tx = 1
	for c := range w.child {
		w.child[c] = w.write(1)
	}
	w.o, err = Create(d.dir, d.id, file, w.writeRoot(), Options{})
	if err != nil {
		return err
	}
	w.o.step = dawdle
	fmt.Println("ready")
	for {
		if w.tx%64 == 0 || len(w.free) < 2 {
			if _, err := w.o.Reap(); err != nil {
				return err
			}
		}
		if err := w.reuse(); err != nil {
			return err
		}
		if len(w.free) >= 2 {
			w.o.Publish(w.step())
		}
		if rand.IntN(8) == 0 { // a sequence that never stands still is never read
			time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
		}
	}
}

// dawdle makes some steps of a protocol last, as they do in a process that has to wait for a processor.
func dawdle(string) {
	if rand.IntN(512) == 0 {
		time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
	}
}

// pagesReader reads until its standard input ends, and says how much it has delivered.
func pagesReader(d *database) error {
	done := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(done)
	}()
	file, err := d.open(os.O_RDWR) // for the mapping of these tests
	if err != nil {
		return err
	}
	p, err := mapPages(file)
	if err != nil {
		return err
	}
	delivered := 0
	for {
		select {
		case <-done:
			fmt.Println("delivered", delivered)
			return nil
		default:
		}
		r, err := open(d.dir, d.id, file, dawdle)
		if errors.Is(err, ErrNoOwner) || errors.Is(err, ErrOwnerGone) {
			continue
		}
		if err != nil {
			return err
		}
		n, err := p.deliver(r)
		delivered += n
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
}

// deliver reads transactions until the reader must open the share again.
func (p pages) deliver(r *Reader) (delivered int, err error) {
	for range 500 {
		s, err := r.Begin()
		var wrong string
		if err == nil {
			wrong = p.wrong(s)
			if rand.IntN(64) == 0 {
				time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
				wrong += p.wrong(s)
			}
			err = r.Confirm()
		}
		switch {
		case errors.Is(err, ErrOwnerGone), errors.Is(err, ErrEnded):
			return delivered, nil
		case errors.Is(err, ErrBusy): // one slow reader, and an owner that does nothing but publish
		case err != nil:
			return delivered, err
		case wrong != "":
			return delivered, fmt.Errorf("transaction %d is confirmed with a wrong %s", s.Tx, wrong)
		default:
			delivered++
		}
		if err := r.End(); err != nil {
			return delivered, err
		}
	}
	return delivered, nil
}

func flockEnd(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
