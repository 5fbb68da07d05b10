package step

import (
	"fmt"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// networks makes network namespaces ahead of the steps that are to have them, since one takes the kernel a sixth of the
// time that a step takes. There is never more than one that waits.
type networks struct {
	o     *openNative
	ready chan int // descriptors; the receiver of one owns it
	stop  chan struct{}
	done  chan struct{}
}

func (o *openNative) newNetworks() *networks {
	n := &networks{o: o, ready: make(chan int), stop: make(chan struct{}), done: make(chan struct{})}
	osthread.Own(n.serve)
	return n
}

// serve makes one after the other, until there is an error: a step then makes its own, and says what is wrong.
func (n *networks) serve() {
	defer close(n.done)
	for {
		fd, err := n.make()
		if err != nil {
			return
		}
		select {
		case n.ready <- fd:
		case <-n.stop:
			_ = unix.Close(fd)
			return
		}
	}
}

// make makes a namespace, which the thread is in until it makes the next.
func (n *networks) make() (int, error) {
	if err := n.o.unshareNetwork(); err != nil {
		return -1, err
	}
	return unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// enter moves the calling thread to a namespace that no step was in.
func (n *networks) enter() error {
	select {
	case fd := <-n.ready:
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return nil
	default:
		return n.o.unshareNetwork()
	}
}

func (n *networks) close() {
	if n != nil {
		close(n.stop)
		<-n.done
	}
}

// unshareNetwork moves the calling thread to a new network namespace.
func (o *openNative) unshareNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if o.users != nil {
		if err := openNetwork(int(o.proc.Fd())); err != nil {
			return err
		}
	}
	return loopbackUp()
}
