package share

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The owner and the readers of these tests are processes: the test program again, with a role in its environment.

const (
	roleVar = "HOLDFAST_TEST_SHARE_ROLE"
	pathVar = "HOLDFAST_TEST_SHARE_PATH"
	stepVar = "HOLDFAST_TEST_SHARE_STEP"
)

func TestMain(m *testing.M) {
	role := map[string]func(*database) error{"owner": stepOwner, "reader": stepReader, "owners": pagesOwner, "readers": pagesReader}[os.Getenv(roleVar)]
	if role == nil {
		os.Exit(m.Run())
	}
	d, err := databaseAt(os.Getenv(pathVar))
	if err == nil {
		err = role(d)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process with a role.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
	stdin io.Closer
}

func (d *database) child(t *testing.T, role, step string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, pathVar+"="+d.path, stepVar+"="+step)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	must(t, err)
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	must(t, c.cmd.Start())
	c.lines = bufio.NewReader(out)
	t.Cleanup(c.kill)
	return c
}

// says waits for a line.
func (c *child) says(want string) {
	c.t.Helper()
	line, err := c.lines.ReadString('\n')
	if strings.TrimSpace(line) != want {
		c.t.Fatalf("a process says %q, and not %q (%v)", line, want, err)
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// stopAt says that a step is reached, and stays there until the process is killed.
func stopAt(step string) func(string) {
	return func(at string) {
		if at == step {
			fmt.Println("at", step)
			time.Sleep(time.Hour)
		}
	}
}

// stepOwner shares state 1, and does all that an owner can until it comes to the step.
func stepOwner(d *database) error {
	file, err := d.open(os.O_RDWR)
	if err != nil {
		return err
	}
	if err := file.Lock(true, 0); err != nil {
		return err
	}
	o, err := Create(d.dir, d.id, file, State{Tx: 1}, Options{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // the test goes on
	own, err := d.open(os.O_RDONLY)
	if err != nil {
		return err
	}
	dead, err := Open(d.dir, d.id, own)
	if err != nil {
		return err
	}
	if err := dead.release(); err != nil {
		return err
	}
	o.step = stopAt(os.Getenv(stepVar))
	o.Publish(State{Tx: 2, Root: 2})
	if _, err := o.Reap(); err != nil {
		return err
	}
	return o.Close()
}

// stepReader does all that a reader can until it comes to the step.
func stepReader(d *database) error {
	file, err := d.open(os.O_RDONLY)
	if err != nil {
		return err
	}
	r, err := open(d.dir, d.id, file, stopAt(os.Getenv(stepVar)))
	if err != nil {
		return err
	}
	if _, err := r.Begin(); err != nil {
		return err
	}
	if err := r.Confirm(); err != nil {
		return err
	}
	return errors.Join(r.End(), r.Close())
}

// A reader that is killed at any step leaves nothing that lasts: its slot is cleared, and is taken again.
func TestReaderKilledAtEachStep(t *testing.T) {
	for _, step := range []string{"locked", "taken", "field", "read", "held", "slot confirmed", "vacated"} {
		t.Run(step, func(t *testing.T) {
			d := newDatabase(t)
			o := d.owner(t)
			c := d.child(t, "reader", step)
			c.says("at " + step)
			held, err := o.Pins(nil)
			must(t, err)
			if _, err := o.Reap(); err != nil {
				t.Fatal(err)
			}
			pins(t, o, held...) // it lives
			c.kill()
			pins(t, o, held...)
			_, err = o.Reap()
			must(t, err)
			pins(t, o)
			if o.words.Load(wordInUse)|o.words.Load(wordInUse+1) != 0 {
				t.Error("its slot is in use")
			}
			r := d.reader(t)
			begin(t, r)
			if must(t, r.Confirm()); r.Slot() != 0 {
				t.Errorf("slot %d is taken; 0 is free", r.Slot())
			}
			pins(t, o, 1)
		})
	}
}

// The readers of an owner that is killed at any step know, and those of the next one read.
func TestOwnerKilledAtEachStep(t *testing.T) {
	for _, step := range []string{"publish", "field", "locked", "tenure ended"} {
		t.Run(step, func(t *testing.T) {
			d := newDatabase(t)
			c := d.child(t, "owner", step)
			c.says("ready")
			r, other := d.reader(t), d.reader(t)
			begin(t, r)
			must(t, r.Confirm())
			must(t, c.stdin.Close())
			c.says("at " + step)
			c.kill()
			wants(t, "Confirm", r.Confirm(), ErrOwnerGone)
			if _, err := other.Begin(); step == "field" { // the state is half written
				wants(t, "Begin", err, ErrOwnerGone)
			}
			wants(t, "Confirm", other.Confirm(), ErrOwnerGone)
			_, err := Open(d.dir, d.id, d.opened(t, os.O_RDONLY))
			wants(t, "Open", err, ErrNoOwner)
			o := d.owner(t)
			again := d.reader(t)
			begin(t, again)
			must(t, again.Confirm())
			pins(t, o, 1)
			wants(t, "Confirm in the next tenure", r.Confirm(), ErrOwnerGone)
		})
	}
}

// Owners are killed at random, and the process that gets the database's lock next, a bbolt for all that the readers
// know, writes over every page. Readers, some of which are killed or ended too, deliver nothing wrong.
func TestRandomKills(t *testing.T) {
	d := newDatabase(t)
	own, err := os.OpenFile(d.path, os.O_RDWR, 0)
	must(t, err)
	defer own.Close()
	file := d.opened(t, os.O_RDWR)
	p, err := mapPages(file)
	must(t, err)
	defer p.Close()
	readers := make([]*child, 3)
	for i := range readers {
		readers[i] = d.child(t, "readers", "")
	}
	late, dead := 0, 0
	const rounds = 40
	for round := range rounds {
		c := d.child(t, "owners", "")
		c.says("ready")
		v, err := Attach(d.dir, d.id)
		must(t, err)
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		switch i := rand.IntN(len(readers)); {
		case round%4 == 1:
			readers[i].kill()
			readers[i] = d.child(t, "readers", "")
			dead++
		case round%4 == 3:
			must(t, endsAny(&v.view, i))
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		nonce := v.words.Load(wordNonce)
		must(t, c.cmd.Process.Kill())
		for !flock(own) {
		}
		// What the whole of it rests on: the tenure has ended when the lock is to be had.
		locked, err := file.ByteLocked(tenureByte(nonce))
		if must(t, err); locked {
			t.Fatal("the lock of a database was given back before the byte of its tenure")
		}
		if locked, err := v.file.ByteLocked(ownerByte); err == nil && locked {
			late++
		}
		for page := range pageCount {
			p.fill(page, ^uint64(round))
		}
		must(t, v.Close())
		_ = c.cmd.Wait()
		flockEnd(own)
	}
	delivered := 0
	for _, r := range readers {
		_ = r.stdin.Close()
		var n int
		line, err := r.lines.ReadString('\n')
		if _, e := fmt.Sscanf(line, "delivered %d", &n); e != nil {
			t.Fatalf("a reader says %q (%v)", line, err)
		}
		delivered += n
	}
	if delivered == 0 {
		t.Error("the readers have delivered nothing")
	}
	t.Logf("%d owners and %d readers killed; %d transactions delivered; the share's own lock was there %d times after that of the database", rounds, dead, delivered, late)
}
