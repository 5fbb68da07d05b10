package step

import (
	"fmt"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/osthread"
)

// This file has the threads on which commands are started. What they do there is in native_linux.go.

type threadJob struct {
	do   func(*thread) error
	done chan error
}

// thread is one on which commands are started, and waited for: they are killed with it. It has lost the privileges
// that its children must not have, and never gets them again, so nothing else uses it.
type thread struct {
	o     *openNative
	jobs  chan threadJob
	away  bool // in the namespaces of a step
	spent bool // something is left of a job that cannot be undone
	gains bool // what it starts can get new privileges
}

// onThread runs a function on a thread that does nothing else meanwhile: one that is idle, or a new one. No caller
// waits for another's function, and there are never more threads than there were callers at once.
func (o *openNative) onThread(do func(*thread) error) error {
	job := threadJob{do, make(chan error, 1)}
	o.takeThread().jobs <- job
	return <-job.done
}

// takeThread returns a thread that only the caller gives a job.
func (o *openNative) takeThread() *thread {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := len(o.idle) - 1; last >= 0 {
		t := o.idle[last]
		o.idle = o.idle[:last]
		return t
	}
	t := &thread{o: o, jobs: make(chan threadJob, 1)}
	o.serving.Add(1)
	osthread.Own(t.serve)
	return t
}

// closeThreads ends the threads, all of which are idle, and waits for it.
func (o *openNative) closeThreads() {
	o.mu.Lock()
	for _, t := range o.idle {
		close(t.jobs)
	}
	o.idle = nil
	o.mu.Unlock()
	o.serving.Wait()
}

// serve does the jobs of a thread. It is idle before its caller knows that the job is done, so who calls next finds it.
func (t *thread) serve() {
	defer t.o.serving.Done()
	err := t.prepare()
	for job := range t.jobs {
		if err != nil {
			job.done <- err
			return
		}
		result := job.do(t)
		if t.spent {
			job.done <- result
			return
		}
		t.o.mu.Lock()
		t.o.idle = append(t.o.idle, t)
		t.o.mu.Unlock()
		job.done <- result
	}
}

// onThreadOnce runs a function on a thread for steps whose programs can get new privileges, which others must not have.
func (o *openNative) onThreadOnce(do func(*thread) error) error {
	done := make(chan error)
	osthread.Own(func() {
		t := &thread{o: o, gains: true}
		err := t.prepare()
		if err == nil {
			err = do(t)
		}
		done <- err
	})
	return <-done
}

func (t *thread) prepare() error {
	if t.o.byInit { // the init of a step does the rest
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		return t.enterHome()
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	if err := t.enterHome(); err != nil {
		return err
	}
	if t.gains {
		return bound()
	}
	return confine()
}

// enterHome moves the thread to the mount namespace where it is between steps: with an init, which starts
// programs of the host, the step namespace, and otherwise the hollow.
func (t *thread) enterHome() error {
	home := t.o.hollow
	if home == nil {
		home = t.o.space
	}
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the step namespace: %w", err)
	}
	return nil
}

// leaveHome makes the namespaces of a step, and moves the thread there.
func (t *thread) leaveHome(n Network) error {
	t.away = true
	var err error
	if n == NetworkNone { // otherwise it is in that of the machine, where it is between steps
		err = t.o.networks.enter()
	}
	if err == nil {
		err = ownKeyring()
	}
	if err == nil {
		if err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWIPC); err != nil {
			err = fmt.Errorf("unshare: %w", err)
		}
	}
	if err != nil {
		t.spent = true
	}
	return err
}

// goBack moves the thread to where it is between steps.
func (t *thread) goBack() error {
	if !t.away {
		return nil
	}
	t.away = false
	err := t.enterHome()
	if err == nil {
		// An ipc namespace has a file system that no process sees, and that must not outlive the step.
		err = unix.Setns(int(t.o.ipc.Fd()), unix.CLONE_NEWIPC)
	}
	if err == nil {
		err = unix.Setns(int(t.o.net.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		t.spent = true
		return fmt.Errorf("going back from a step: %w", err)
	}
	return nil
}
