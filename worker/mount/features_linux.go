package mount

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// kernelFeatures says which features a manager uses. probe finds all but FeatureErofsFile, whose lack shows with the
// first image, and watches, which a user can run out of.
type kernelFeatures struct {
	log *slog.Logger

	mu   sync.Mutex
	errs map[Feature]error // why a feature is not used
}

// errWithout is the reason for a feature that Options.Without names.
var errWithout = errors.New("forced by the options")

func (c *kernelFeatures) has(f Feature) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs[f] == nil
}

// lacks notes that a feature is not used, and logs it once.
func (c *kernelFeatures) lacks(feature Feature, err error) {
	c.mu.Lock()
	known := c.errs[feature] != nil
	if !known {
		c.errs[feature] = err
	}
	c.mu.Unlock()
	if known {
		return
	}
	for _, f := range features {
		if f.Feature == feature {
			c.log.Info("a kernel feature is not used", "feature", string(feature), "since", f.Since, "instead", f.Instead, "reason", err)
		}
	}
}

func (c *kernelFeatures) list() []FeatureState {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]FeatureState, len(features))
	for i, f := range features {
		f.Err = c.errs[f.Feature]
		f.Used = f.Err == nil
		all[i] = f
	}
	return all
}

// appends reports whether overlays take their layers one by one.
func (c *kernelFeatures) appends() bool { return c.has(FeatureLayerFD) || c.has(FeatureLowerAppend) }

// oldest is the oldest kernel that is supported. It has open_tree, move_mount, fsopen, mount_setattr and pidfd_open.
var oldest = [2]int{5, 14}

// kernelSupported returns an error if the kernel is too old.
func kernelSupported() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("mount: uname: %w", err)
	}
	return supported(unix.ByteSliceToString(u.Release[:]))
}

// supported is kernelSupported of what uname -r prints.
func supported(release string) error {
	var have [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return fmt.Errorf("mount: the version of the kernel, %q: %w", release, err)
	}
	if have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1] {
		return fmt.Errorf("mount: the kernel is Linux %s, and must be %d.%d or newer: %w", release, oldest[0], oldest[1], errors.ErrUnsupported)
	}
	return nil
}

// probe tries each feature on something small. dir is a directory of the manager's own.
func probe(dir string, without []Feature, log *slog.Logger) (*kernelFeatures, error) {
	c := &kernelFeatures{log: log, errs: map[Feature]error{}}
	for _, f := range without {
		c.lacks(f, errWithout)
	}
	try := func(f Feature, do func() error) {
		if !c.has(f) {
			return
		}
		if err := do(); err != nil {
			c.lacks(f, err)
		}
	}
	tree, err := cloneTree(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return nil, fmt.Errorf("mount: open_tree %s: %w", dir, err)
	}
	defer unix.Close(tree)
	try(FeatureCloneDetached, func() error {
		again, err := cloneTree(tree, "", 0)
		if err == nil {
			_ = unix.Close(again)
		}
		return err
	})
	try(FeatureLayerFD, func() error {
		return probeLayer(dir, func(fs, layer int) error { return unix.FsconfigSetFd(fs, "lowerdir+", layer) })
	})
	try(FeatureLowerAppend, func() error {
		return probeLayer(dir, func(fs, layer int) error {
			// Before Linux 6.5 an overlay takes texts as they are, and reads them when it is mounted.
			if unix.FsconfigSetString(fs, "holdfast_no_option", "x") == nil {
				return fmt.Errorf("options are not read one by one: %w", unix.ENOSYS)
			}
			return unix.FsconfigSetString(fs, "lowerdir+", fdPath(layer))
		})
	})
	try(FeatureUstat, func() error {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return err
		}
		return unix.Ustat(int(st.Dev), new(unix.Ustat_t))
	})
	return c, nil
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
