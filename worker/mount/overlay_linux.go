package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file has what is particular to overlays: their layers, where they are mounted, and how on kernels before 6.5.

// layers are the directories of an overlay, opened in the order in which it gets them.
type layers struct {
	lowers, data []int
	upper, work  int
	opened       []int
	ids          []dirID // of all that were opened
}

// name is what an overlay is given for a layer: its path, if the mountinfo is to say by it whose the overlay is and the
// path can be an option, else number, which stands for its descriptor. Kernels before 6.13 show what they were given.
// That what is at the path is what was opened is up to who may rename directories there, which steps may not.
func (l *layers) name(fd int, number string) string {
	shown := fd == l.upper || fd == l.work || l.upper < 0 && fd == l.lowers[0]
	i := slices.Index(l.opened, fd)
	if !shown || i < 0 {
		return number
	}
	path := l.ids[i].path
	if len(path) > maxString || !filepath.IsAbs(path) || strings.ContainsAny(path, `,:\`) {
		return number
	}
	return path
}

// openLayers opens the directories of an overlay. mounted are the roots of the lower
// layers that are mounts; they stay the caller's.
func openLayers(p *plan, mounted []int) (*layers, error) {
	l := &layers{lowers: append([]int(nil), mounted...), upper: -1, work: -1}
	open := func(path string, use dirUse) (int, error) {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("opening layer %s: %w", path, err)
		}
		l.opened = append(l.opened, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return -1, fmt.Errorf("looking at layer %s: %w", path, err)
		}
		l.ids = append(l.ids, dirID{dev: deviceOf(&st), ino: st.Ino, use: use, path: path})
		return fd, nil
	}
	err := func() (err error) {
		var fd int
		for _, path := range p.lowers {
			if fd, err = open(path, usedBelow); err != nil {
				return err
			}
			l.lowers = append(l.lowers, fd)
		}
		for _, path := range p.data {
			if fd, err = open(path, usedBelow); err != nil {
				return err
			}
			l.data = append(l.data, fd)
		}
		if p.upper == "" {
			return nil
		}
		if l.upper, err = open(p.upper, usedAbove); err != nil {
			return err
		}
		l.work, err = open(p.work, usedAbove)
		return err
	}()
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *layers) close() {
	for _, fd := range l.opened {
		_ = unix.Close(fd)
	}
	l.opened = nil
}

// closeSoon closes them in the background, and closes a channel then: for each that shows other ids the kernel waits
// for all processors.
func (l *layers) closeSoon() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.close()
	}()
	return done
}

// place is the namespace in which a plan is mounted: the host's, where its paths are what the caller means. An overlay
// is mounted in the staging namespace if that has its lower layers that are mounts, or if it cannot be mounted without
// being attached.
func (k *kernel) place(p *plan) (*Namespace, error) {
	if p.kind != "overlay" || k.features.has(FeatureCloneDetached) && k.features.appends() {
		return k.host, nil
	}
	return k.stagingNamespace()
}

// sameThere returns an error if a layer is another directory in the namespace where the overlay is mounted: the
// directory below a file system that is mounted elsewhere than at the directories to keep, or was mounted later.
func (k *kernel) sameThere(p *plan, place *Namespace) error {
	if place == k.host {
		return nil
	}
	type seen struct {
		dev, ino uint64
		err      error
	}
	paths := p.paths()
	look := func() []seen {
		all := make([]seen, len(paths))
		for i, path := range paths {
			var st unix.Stat_t
			err := unix.Stat(path, &st)
			all[i] = seen{deviceOf(&st), st.Ino, err}
		}
		return all
	}
	here := look()
	return place.Do(func() error {
		for i, there := range look() {
			if here[i] != there {
				return fmt.Errorf("%s is on a file system of its own, or was mounted otherwise since: this kernel mounts nothing of it, unless a directory in "+
					"Options.Keep leads to it when the manager is opened: %w", paths[i], errors.ErrUnsupported)
			}
		}
		return nil
	})
}

func (k *kernel) configureLayers(fs int, p *plan, l *layers) error {
	add := func(key string, fd int) (err error) {
		if k.features.has(FeatureLayerFD) {
			err = unix.FsconfigSetFd(fs, key, fd)
		} else {
			err = unix.FsconfigSetString(fs, key, l.name(fd, fdPath(fd)))
		}
		if err != nil {
			return said(fmt.Sprintf("%s: %s", p, key), fs, err)
		}
		return nil
	}
	for _, fd := range l.lowers {
		if err := add("lowerdir+", fd); err != nil {
			return err
		}
	}
	for _, fd := range l.data {
		if err := add("datadir+", fd); err != nil {
			return err
		}
	}
	if l.upper < 0 {
		return nil
	}
	if err := add("upperdir", l.upper); err != nil {
		return err
	}
	return add("workdir", l.work)
}

// mountOverlay mounts an overlay with mount(2) at a place of its own, in the namespace of the thread, which is place.
func (k *kernel) mountOverlay(p *plan, name string, l *layers, place *Namespace) (*master, error) {
	data, err := overlayData(p, l)
	if err != nil {
		return nil, err
	}
	path, err := k.newPoint(true)
	if err != nil {
		return nil, err
	}
	undo := func(err error) (*master, error) {
		_ = unix.Unmount(path, unix.MNT_DETACH)
		_ = os.Remove(path)
		return nil, err
	}
	if err := unix.Chdir("/proc/thread-self/fd"); err != nil { // for the names of layers, which are numbers
		return undo(err)
	}
	defer func() { _ = unix.Chdir("/") }()
	if err := p.create(func() error { return unix.Mount(name, path, p.kind, oldAttrs(p.attr), data) }); err != nil {
		return undo(fmt.Errorf("%s: mount(2): %w", p, err))
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return undo(err)
	}
	m, err := describe(fd)
	if err != nil {
		return undo(err)
	}
	m.path, m.from = path, place
	return m, nil
}

// overlayData are the options of an overlay as mount(2) takes them.
func overlayData(p *plan, l *layers) (string, error) {
	var parts []string
	for _, o := range p.params {
		if o.flag {
			parts = append(parts, o.key)
		} else {
			parts = append(parts, o.key+"="+o.value)
		}
	}
	lower := strings.Join(l.numbers(l.lowers), ":")
	if len(l.data) > 0 {
		lower += "::" + strings.Join(l.numbers(l.data), "::")
	}
	parts = append(parts, "lowerdir="+lower)
	if l.upper >= 0 {
		parts = append(parts, "upperdir="+l.number(l.upper), "workdir="+l.number(l.work))
	}
	data := strings.Join(parts, ",")
	if len(data) >= os.Getpagesize() {
		return "", fmt.Errorf("%s: %d bytes of options; mount(2) takes %d: %w", p, len(data), os.Getpagesize()-1, unix.EINVAL)
	}
	return data, nil
}

// number is what mount(2) is given for a layer, where the working directory is that of the descriptors.
func (l *layers) number(fd int) string { return l.name(fd, strconv.Itoa(fd)) }

func (l *layers) numbers(fds []int) []string {
	all := make([]string, len(fds))
	for i, fd := range fds {
		all[i] = l.number(fd)
	}
	return all
}
