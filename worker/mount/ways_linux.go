package mount

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// chosen are the ways of one manager. All but that of erofs are found by probe and then
// stay; erofs shows itself with its first mount.
type chosen struct {
	log *slog.Logger

	mu   sync.Mutex
	errs map[Call]error // why a call is not used
}

// errWithout is the reason for a call that Options.Without names.
var errWithout = errors.New("forced by the options")

func (c *chosen) has(call Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[call] == nil
}

// lacks notes that a call is not used, and says so once.
func (c *chosen) lacks(call Call, err error) {
	c.mu.Lock()
	known := c.errs[call] != nil
	if !known {
		c.errs[call] = err
	}
	c.mu.Unlock()
	if known {
		return
	}
	for _, w := range ways {
		if w.Call == call {
			c.log.Info("a call of the kernel is not used", "call", string(call), "since", w.Since, "instead", w.Else, "reason", err)
		}
	}
}

func (c *chosen) list() []Way {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Way, len(ways))
	for i, w := range ways {
		w.Err = c.errs[w.Call]
		w.Used = w.Err == nil
		all[i] = w
	}
	return all
}

// detached tells whether masters are held by descriptors alone.
func (c *chosen) detached() bool {
	return c.clones() && c.has(CallCloneDetached)
}

// clones tells whether a mount can be cloned and moved elsewhere.
func (c *chosen) clones() bool { return c.has(CallOpenTree) && c.has(CallMoveMount) }

// configures tells whether file systems are made with fsopen.
func (c *chosen) configures() bool { return c.clones() && c.has(CallFsopen) }

// appends tells whether overlays are.
func (c *chosen) appends() bool {
	return c.configures() && (c.has(CallLayerFD) || c.has(CallLowerAppend))
}

// probe tries each call on something small. dir is a directory of the manager's own.
func probe(dir string, without []Call, log *slog.Logger) *chosen {
	c := &chosen{log: log, errs: map[Call]error{}}
	for _, call := range without {
		c.lacks(call, errWithout)
	}
	try := func(call Call, f func() error) {
		if !c.has(call) {
			return
		}
		if err := f(); err != nil {
			c.lacks(call, err)
		}
	}
	tree := -1
	try(CallOpenTree, func() (err error) {
		tree, err = cloneTree(unix.AT_FDCWD, dir, 0)
		return err
	})
	if tree >= 0 {
		defer unix.Close(tree)
	}
	try(CallMoveMount, func() error {
		// Nothing is moved: that the descriptors are bad is found after the call is known.
		err := unix.MoveMount(-1, "", -1, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		if err == unix.EBADF {
			return nil
		}
		return err
	})
	try(CallCloneDetached, func() error {
		if tree < 0 {
			return c.errs[CallOpenTree]
		}
		again, err := cloneTree(tree, "", 0)
		if err == nil {
			_ = unix.Close(again)
		}
		return err
	})
	try(CallMountSetattr, func() error {
		if tree < 0 {
			return c.errs[CallOpenTree]
		}
		return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	})
	try(CallFsopen, probeFsopen)
	try(CallLayerFD, func() error {
		return probeLayer(dir, func(fs, layer int) error { return unix.FsconfigSetFd(fs, "lowerdir+", layer) })
	})
	try(CallLowerAppend, func() error {
		return probeLayer(dir, func(fs, layer int) error {
			// Before Linux 6.5 an overlay takes texts as they are, and reads them when it is mounted.
			if unix.FsconfigSetString(fs, "holdfast_no_option", "x") == nil {
				return fmt.Errorf("options are not read one by one: %w", unix.ENOSYS)
			}
			return unix.FsconfigSetString(fs, "lowerdir+", fdPath(layer))
		})
	})
	try(CallUstat, func() error {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err
		}
		return unix.Ustat(int(st.Dev), new(unix.Ustat_t))
	})
	try(CallPidfd, func() error {
		fd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
	return c
}

func probeFsopen() error {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "size", "4k"); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// probeLayer tells whether an overlay takes a layer in some way.
func probeLayer(dir string, set func(fs, layer int) error) error {
	layer, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(layer)
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	return set(fs, layer)
}

// cloneTree makes a detached clone of a mount.
func cloneTree(fd int, path string, flags uint) (int, error) {
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.OpenTree(fd, path, flags|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// fdPath is a path that leads to what a descriptor of this process is open on.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// kernelLog reads what the kernel has said about a file system that is being made.
func kernelLog(fs int) string {
	text := ""
	buf := make([]byte, 1024)
	for range 16 {
		n, err := unix.Read(fs, buf)
		if err != nil || n <= 0 {
			break
		}
		line := string(buf[:n])
		if len(line) > 2 && line[1] == ' ' {
			line = line[2:] // "e " for errors, "w " for warnings, "i " for others
		}
		if line[len(line)-1] == '\n' {
			line = line[:len(line)-1]
		}
		if text != "" {
			text += "; "
		}
		text += line
	}
	return text
}

// said adds to an error what the kernel has said.
func said(what string, fs int, err error) error {
	if text := kernelLog(fs); text != "" {
		return fmt.Errorf("%s: %w (%s)", what, err, text)
	}
	return fmt.Errorf("%s: %w", what, err)
}
