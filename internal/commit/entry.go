package commit

import (
	"strconv"

	"holdfast/internal/page"
)

// Durability is when a commit returns. See the root package.
type Durability int

// From the most careful on.
const (
	Full     Durability = iota // it is on the disk
	Periodic                   // it is visible, and will soon be on the disk
	None                       // it is visible
)

// String is the mode's name, as HOLDFAST_DURABILITY has it.
func (d Durability) String() string {
	switch d {
	case Full:
		return "full"
	case Periodic:
		return "periodic"
	case None:
		return "none"
	}
	return strconv.Itoa(int(d))
}

// Entry is what the pipeline knows of a transaction that is complete and not durable
// yet, or of a barrier, which is a request that everything be durable. Its owner embeds it.
type Entry struct {
	Number page.TxID // of the transaction
	Size   int       // bytes of its pages
	Mode   Durability
	// Plain: a plain meta is to name the state, so that bbolt finds it.
	Plain bool
	// Even is of a barrier: both slots are to need no page past the state's.
	Even bool
	// Anew is of a barrier: a meta is written even if the newest one is plain.
	Anew bool

	done  bool
	err   error
	wake  chan bool     // to the caller of Finish: true, lead; false, done
	ended chan struct{} // closed when done, for all others; nil while none waits
}

// entry returns e itself, for Member.
func (e *Entry) entry() *Entry { return e }

// Awaited tells whether a caller waits for the entry that another caller is to finish. The
// caller holds the lock.
func (e *Entry) Awaited() bool { return e.ended != nil }

// end wakes the callers that wait for e. The caller holds the lock.
func (e *Entry) end(err error) {
	e.done, e.err = true, err
	if e.wake != nil {
		select {
		case e.wake <- false:
		default: // it is the leader
		}
	}
	if e.ended != nil {
		close(e.ended)
	}
}

// Member is what a pipeline holds: something that embeds an Entry.
type Member interface{ entry() *Entry }

// Env is what the protocol needs of an open file. The methods of the first half are called by
// the leader, without the lock; those of the second half with it.
type Env[T Member] interface {
	// WritePages writes the pages of a group. If that fails it returns the number of the
	// oldest transaction of which pages are missing: nothing refers to those before it.
	WritePages(g *Group[T]) (failed page.TxID, err error)
	// WriteMeta writes a meta page into the group's slot: a plain one, of the group's
	// state, or one of the durable state, with a trailing extension that names the
	// group's and lists what was written. It returns false, and has written nothing, if there
	// is no room for the list. After an error the writer is stopped, unless the slot is as it was.
	WriteMeta(g *Group[T], trailing bool) (fits bool, err error)
	// Flush makes durable what was written. An error stops the writer.
	Flush() error
	// CheckLength stops the writer if the file is shorter than it was left.
	CheckLength() error

	// Stopped is why nothing more may be written; nil if it may.
	Stopped() error
	// Form completes a group that was taken from the queue: the fields that are the Env's.
	Form(g *Group[T])
	// Published is told that the group was written. Its state is to be the current one.
	Published(g *Group[T])
	// Failed is told that transactions, which are of the group or have joined the queue since,
	// have not happened, oldest first. With none the metas of a group of barriers could
	// not be written.
	Failed(g *Group[T], aborted []T, err error)
	// Idle is told that there is no leader any more.
	Idle()
}
