package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"holdfast/worker/mount"
)

// This file has the secrets of a step. Their content is in a file system of the step's own, a ramfs: a tmpfs can be
// swapped. Each is mounted from there as a file.

// shownSecrets are those that one step sees.
type shownSecrets struct {
	points
	memory *mount.Handle // of the file system
	at     string        // where it is attached; "": it is not
	binds  []*mount.Handle
}

// showSecrets adds the secrets of a job to its mounts. What it returns is to be taken away by hideSecrets, with an
// error too.
func (r *Runner) showSecrets(ctx context.Context, j *job) (*shownSecrets, error) {
	if len(j.step.Secrets) == 0 {
		return nil, nil
	}
	s := &shownSecrets{points: points{ids: j.ids}}
	whole := context.WithoutCancel(ctx)
	var err error
	if s.memory, err = r.opt.Mounts.Acquire(whole, mount.Spec{Mount: mount.Mount{Type: "ramfs", Options: []string{"nosuid", "nodev", "mode=0700"}}}); err != nil {
		return s, err
	}
	with := *j.step
	for i := range with.Secrets {
		secret := &with.Secrets[i]
		h, err := r.showSecret(ctx, s, j, i)
		if err != nil {
			return s, fmt.Errorf("the secret %s: %w", secret.ID, err)
		}
		s.binds = append(s.binds, h)
		with.Mounts = append(with.Mounts[:len(with.Mounts):len(with.Mounts)], Mount{Source: h.Path(), Target: secret.Target, ReadOnly: true})
		j.binds = append(j.binds[:len(j.binds):len(j.binds)], h)
	}
	j.step = &with
	if s.at != "" {
		return s, s.memory.Detach(s.at)
	}
	return s, nil
}

// showSecret reads one of them, and mounts it.
func (r *Runner) showSecret(ctx context.Context, s *shownSecrets, j *job, i int) (*mount.Handle, error) {
	secret := &j.step.Secrets[i]
	if !j.inTmpfs(secret.Target) {
		if err := s.file(j.root.FD(), secret.Target, false); err != nil {
			return nil, err
		}
	}
	b, err := secret.read(ctx)
	if err != nil {
		return nil, err
	}
	defer b.free()
	name := strconv.Itoa(i)
	fd, err := unix.Openat(s.memory.FD(), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = writeAll(fd, b.text)
	if err == nil {
		err = unix.Fchown(fd, int(j.ids.Base+j.step.User.UID), int(j.ids.Base+j.step.User.GID))
	}
	if err == nil {
		err = unix.Fchmod(fd, uint32(secret.Mode))
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, err
	}
	return r.bindSecret(context.WithoutCancel(ctx), s, name)
}

// bindSecret mounts a file of the memory. Before Linux 6.15 that has to be attached for it, where root alone gets.
func (r *Runner) bindSecret(ctx context.Context, s *shownSecrets, name string) (*mount.Handle, error) {
	spec := mount.Spec{Mount: mount.Mount{Type: "bind", Options: []string{"ro", "nosuid", "nodev", "noexec"}}, Own: true}
	if s.at == "" {
		spec.Source = s.memory.Path() + "/" + name
		h, err := r.opt.Mounts.Acquire(ctx, spec)
		if !errors.Is(err, unix.EINVAL) {
			return h, err
		}
		if s.at, err = s.memory.Attach(r.opt.Mounts.Host(), ""); err != nil {
			return nil, err
		}
	}
	spec.Source = s.at + "/" + name
	return r.opt.Mounts.Acquire(ctx, spec)
}

// inTmpfs tells whether a target is in an empty mount of the step, where the mount point goes with it.
func (j *job) inTmpfs(target string) bool {
	for i, m := range j.step.Mounts {
		if j.binds[i] == nil && len(target) > len(m.Target) && target[:len(m.Target)+1] == m.Target+"/" {
			return true
		}
	}
	return false
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// hideSecrets empties the files of the secrets, which frees their memory even while a process has them open.
func (r *Runner) hideSecrets(s *shownSecrets) (err error) {
	if s == nil {
		return nil
	}
	if s.memory != nil {
		for i := range s.binds {
			fd, e := unix.Openat(s.memory.FD(), strconv.Itoa(i), unix.O_WRONLY|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if e == nil {
				e = unix.Close(fd)
			}
			err = errors.Join(err, e)
		}
		s.binds = append(s.binds, s.memory)
	}
	for _, h := range s.binds {
		h.Release()
	}
	for _, h := range s.binds {
		if waited := h.Wait(context.Background()); waited != nil {
			r.log.Warn("a secret that a step had is still open, and empty", "reason", waited)
		}
	}
	return errors.Join(err, s.remove())
}

// secretText is the content of a secret, in memory that is in no core file and, as far as the process may have that, not
// swapped.
type secretText struct {
	memory []byte
	text   []byte
}

func (t *secretText) free() {
	clear(t.memory)
	_ = unix.Munmap(t.memory)
}

// read reads the content of a secret, until ctx ends.
func (s *Secret) read(ctx context.Context) (*secretText, error) {
	type result struct {
		text *secretText
		err  error
	}
	done := make(chan result, 1)
	go func() {
		t, err := s.readAll()
		done <- result{t, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err
	case <-ctx.Done():
		go func() { // whatever it waits for
			if got := <-done; got.err == nil {
				got.text.free()
			}
		}()
		return nil, ctx.Err()
	}
}

func (s *Secret) readAll() (_ *secretText, err error) {
	from, err := s.Open()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	t := &secretText{}
	if t.memory, err = unix.Mmap(-1, 0, MaxSecret+1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, fmt.Errorf("memory for it: %w", err)
	}
	defer func() {
		if err != nil {
			t.free()
		}
	}()
	if err := unix.Madvise(t.memory, unix.MADV_DONTDUMP); err != nil {
		return nil, fmt.Errorf("memory for it: %w", err)
	}
	_ = unix.Mlock(t.memory) // which takes a right, or room within a limit
	n, err := io.ReadFull(from, t.memory)
	switch {
	case err == nil:
		return nil, s.tooLong()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		t.text = t.memory[:n]
		return t, nil
	}
	return nil, err
}
