// Package osthread gives goroutines threads of the system for themselves.
package osthread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Own runs f in a goroutine on a thread of its own, which ends with it, in
// whatever namespaces it is then. It is not the first thread of the process, by which /proc/PID shows the
// process to others, and which cannot end.
func Own(f func()) {
	go func() {
		runtime.LockOSThread() // and not unlocked: the next goroutine on it would be elsewhere
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// While this one is locked another goroutine gets another thread.
		begun := make(chan struct{})
		Own(func() {
			close(begun)
			f()
		})
		<-begun
		runtime.UnlockOSThread()
	}()
}
