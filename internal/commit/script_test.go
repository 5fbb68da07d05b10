package commit

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"holdfast/internal/page"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts give into them")

// TestScripts runs the scripts in testdata. Each is a conversation: a command in a line, below it, indented,
// what the protocol has asked of the file since, and which callers have returned. The commands are those
// of the method do.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			synctest.Test(t, func(t *testing.T) {
				f := newFile()
				for line := range strings.Lines(string(script)) {
					if strings.HasPrefix(line, "\t") {
						continue
					}
					got.WriteString(line)
					if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
						continue
					}
					if err := f.do(strings.Fields(line)); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					synctest.Wait()
					for _, event := range f.take() {
						fmt.Fprintf(&got, "\t%s\n", event)
					}
				}
				f.end(t)
			})
			if got.String() == string(script) {
				return
			}
			t.Errorf("the conversation is another:\n%s", got.String())
			if *rewrite {
				if err := os.WriteFile(path, []byte(got.String()), 0o666); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// member is a transaction of a script, or a barrier.
type member struct {
	Entry
	name string
}

// file is an Env without a file: it tells what it is asked for, and fails as it is told.
type file struct {
	Pipeline[*member]
	members map[string]*member
	number  page.TxID
	events  []string // by the lock of mutex
	mutex   chan bool
	held    map[string]chan bool // calls that wait until they are let go
	fails   map[string]string    // calls that fail, and how

	stopped          error
	strict, trailing bool
	visible          bool
	unflushed        int
	full             bool // there is no room for a list
	slot             int
	label            page.Label
}

func newFile() *file {
	f := &file{
		members: map[string]*member{}, mutex: make(chan bool, 1), held: map[string]chan bool{}, fails: map[string]string{},
		label: 1, slot: 1, // of the newest meta
	}
	f.Init(f)
	return f
}

func (f *file) say(format string, args ...any) {
	f.mutex <- true
	defer func() { <-f.mutex }()
	f.events = append(f.events, fmt.Sprintf(format, args...))
}

// take returns what was said since the last call: what the leader did, and then, since they wake in any
// order, which callers have returned.
func (f *file) take() []string {
	f.mutex <- true
	defer func() { <-f.mutex }()
	events := f.events
	f.events = nil
	returned := func(event string) int {
		if strings.HasPrefix(event, "returned") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(events, func(a, b string) int {
		if by := cmp.Compare(returned(a), returned(b)); by != 0 || returned(a) == 0 {
			return by
		}
		return cmp.Compare(a, b)
	})
	return events
}

// do does what a line of a script says:
//
//	prepare NAME [MODE] [plain]       a transaction joins the queue: full, periodic or none
//	barrier NAME [plain] [even] [anew]
//	finish NAME...                    their callers call Finish
//	wait NAME                         another caller waits for it
//	hold CALL, let CALL               calls of pages, trailing, plain or flush wait until they are let go
//	fail CALL [NUMBER]                the next one fails; of pages, those of transaction NUMBER; unwritten:
//	                                  the meta, for want of room
//	lead, follow                      a caller that writes by itself takes the lead, hands it off
//	strict                            all metas are plain
//	crowded                           there is no room for a list from here on
func (f *file) do(words []string) error {
	for _, name := range words[1:] {
		switch words[0] {
		case "finish":
			go func() { f.say("returned %s: %v", name, orDone(f.Finish(f.members[name]))) }()
			synctest.Wait() // so that they come in this order
		case "wait":
			go func() { f.say("returned, waited for %s: %v", name, orDone(f.Wait(f.members[name]))) }()
		case "hold":
			f.held[name] = make(chan bool)
		case "let":
			held := f.held[name]
			delete(f.held, name)
			close(held)
		}
	}
	switch words[0] {
	case "prepare", "barrier":
		m := &member{name: words[1]}
		for _, option := range words[2:] {
			switch option {
			case "full", "periodic", "none":
				m.Mode = map[string]Durability{"full": Full, "periodic": Periodic, "none": None}[option]
			case "plain":
				m.Plain = true
			case "even":
				m.Even = true
			case "anew":
				m.Anew = true
			default:
				return fmt.Errorf("no option %q", option)
			}
		}
		f.Lock()
		defer f.Unlock()
		f.members[m.name] = m
		if words[0] == "barrier" {
			f.Bar(m)
			return nil
		}
		f.number++
		m.Number = f.number
		f.Join(m)
	case "fail":
		f.fails[words[1]] = strings.Join(words[2:], " ")
	case "lead":
		go func() {
			f.Lock()
			defer f.Unlock()
			f.Lead()
			f.say("leads by itself")
		}()
	case "follow":
		f.Lock()
		defer f.Unlock()
		f.HandOff()
	case "strict":
		f.strict = true
	case "crowded":
		f.full = true
	case "finish", "wait", "hold", "let":
	default:
		return fmt.Errorf("no command %q", words[0])
	}
	return nil
}

func orDone(err error) any {
	if err == nil {
		return "done"
	}
	return err
}

// end sees that nothing is left.
func (f *file) end(t *testing.T) {
	for call, waits := range f.held {
		t.Errorf("%s is still held", call)
		close(waits)
	}
	synctest.Wait()
	f.Lock()
	defer f.Unlock()
	if f.Busy() || f.Waiting() > 0 || len(f.InFlight()) > 0 {
		t.Errorf("in the end %d wait, %d are in flight", f.Waiting(), len(f.InFlight()))
	}
}

// pause waits while a call is held, and says it.
func (f *file) pause(call, what string) {
	if held := f.held[call]; held != nil {
		f.say("%s ...", what)
		<-held
		return
	}
	f.say("%s", what)
}

// failed is the error that the next call gives; nil if it succeeds.
func (f *file) failed(call string) error {
	if _, fails := f.fails[call]; !fails {
		return nil
	}
	delete(f.fails, call)
	return fmt.Errorf("%s: %w", call, syscall.EIO)
}

// stop is failed of a call after whose failure nothing more may be written.
func (f *file) stop(call string) error {
	if err := f.failed(call); err != nil {
		f.stopped = fmt.Errorf("stopped: %w", err)
	}
	return f.stopped
}

func names(members []*member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.name)
	}
	return strings.Join(all, " ")
}

func (f *file) WritePages(g *Group[*member]) (page.TxID, error) {
	f.pause("pages", "pages of "+names(g.Members))
	number, fails := f.fails["pages"]
	if !fails {
		return 0, nil
	}
	var failed page.TxID
	_, _ = fmt.Sscan(number, &failed)
	return failed, f.failed("pages")
}

func (f *file) WriteMeta(g *Group[*member], trailing bool) (bool, error) {
	kind := "plain"
	if trailing {
		if kind = "trailing"; f.full {
			f.say("no room for the list")
			return false, nil
		}
	}
	f.pause(kind, fmt.Sprintf("%s meta, slot %d, label %d", kind, g.Slot, g.Label))
	if err := f.failed("unwritten"); err != nil {
		return true, err
	}
	return true, f.stop(kind)
}

func (f *file) Flush() error {
	f.pause("flush", "flush")
	return f.stop("flush")
}

func (f *file) CheckLength() error {
	f.say("length checked")
	return nil
}

func (f *file) Stopped() error { return f.stopped }

func (f *file) Form(g *Group[*member]) {
	g.Slot, g.Label, g.Strict, g.Trailing, g.Visible, g.Unflushed = 1-f.slot, f.label+1, f.strict, f.trailing, f.visible, f.unflushed > 0
}

func (f *file) Published(g *Group[*member]) {
	switch {
	case g.Mode == Periodic:
		f.visible, f.unflushed = true, 0
		f.say("visible: %s", names(g.Members))
		return
	case g.WroteMeta:
		f.slot, f.label, f.trailing, f.visible = g.Slot, g.Label, g.Names, false
	case g.Visible:
		f.slot, f.label, f.trailing, f.visible = g.Slot, g.Label, true, false
	}
	if g.Mode == None {
		f.unflushed += len(g.Members)
	} else {
		f.unflushed = 0
	}
	if len(g.Members) > 0 {
		f.say("published: %s", names(g.Members))
	}
}

func (f *file) Failed(g *Group[*member], aborted []*member, err error) {
	if g.Absorbed {
		f.slot, f.label, f.trailing, f.visible = 1-g.Slot, g.Label-1, true, false
	}
	if len(aborted) > 0 {
		f.number = aborted[0].Number - 1
	}
	f.say("aborted: %s", cmp.Or(names(aborted), "none"))
}

func (f *file) Idle() { f.say("idle") }
