package command

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
	"holdfast/worker/snapshot/driver/zfs"
)

// ownerOf is the process that has the store open, 0 if none has. The lock is held for a short time, for which
// others wait.
func ownerOf(root string) (pid int, command string, err error) {
	f, err := os.Open(filepath.Join(root, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		return 0, "", nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, "", fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	b := make([]byte, 32)
	n, _ := f.Read(b)
	if pid, _ = strconv.Atoi(strings.TrimSpace(string(b[:n]))); pid <= 0 {
		return -1, "which has not said who it is", nil
	}
	return pid, commandOf(pid), nil
}

// commandOf is the command line of a process.
func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "?"
	}
	return string(bytes.TrimSpace(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
}

// running looks through /proc: how many mounts of snapshots of a store there are in all mount namespaces,
// and what runs with a snapshot as its root directory. What ends meanwhile is passed over.
func running(root string) (mounts int, steps []runningStep, err error) {
	steps = []runningStep{}
	store, err := shownStoreOf(root)
	if err != nil {
		return 0, nil, err
	}
	boot := uptime()
	seen := map[string]string{}       // mount namespace -> the snapshot that is its root
	sources := map[string]bool{}      // mounts
	at := map[string]int{}            // snapshot -> index in steps
	began := map[string]float64{}     // when its first process was started
	dataset, _ := zfs.DatasetOf(root) // if it cannot be read, opening the store tells
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		ns, err := os.Readlink(dir + "/ns/mnt")
		if err != nil {
			continue
		}
		id, known := seen[ns]
		if !known {
			if id, err = mountsOfStore(dir+"/mountinfo", store, dataset, sources); err != nil {
				continue
			}
			seen[ns] = id
		}
		if id == "" {
			continue
		}
		p, err := processOf(dir, boot)
		if err != nil {
			continue
		}
		i, there := at[id]
		if !there {
			i = len(steps)
			at[id] = i
			steps = append(steps, runningStep{Snapshot: id, PID: p.PID})
			began[id] = -1
		}
		s := &steps[i]
		s.Processes++
		s.CPU += p.CPU
		s.Memory += p.Memory
		if p.Seconds > began[id] || p.Seconds == began[id] && p.PID < s.PID {
			began[id], s.PID, s.Seconds = p.Seconds, p.PID, p.Seconds
			s.Command = commandOf(p.PID)
		}
	}
	slices.SortFunc(steps, func(a, b runningStep) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.PID, b.PID))
	})
	return len(sources), steps, nil
}

// mountsOfStore adds the mounts of a mountinfo that are of snapshots of a store to sources, and tells which
// snapshot is the root directory there, "" if none is.
func mountsOfStore(file string, store *shownStore, dataset string, sources map[string]bool) (id string, err error) {
	contain := []string{"snapshots/"}
	if dataset != "" {
		contain = append(contain, mountinfo.Escape(dataset)+"/s")
	}
	err = mountinfo.Each(file, func(m *mountinfo.Mount) {
		of, source := "", m.Source
		switch rest, bound := store.bound(m); {
		case dataset != "" && strings.HasPrefix(source, dataset+"/s"):
			of = strings.TrimPrefix(source, dataset+"/s")
		case m.Type == "overlay":
			of = overlayOf(m, store)
			source += " " + of
		case bound:
			of, _, _ = strings.Cut(rest, "/")
			source = m.Root
		}
		if of == "" {
			return
		}
		sources[source] = true
		if m.Point == "/" {
			id = of
		}
	}, contain...)
	return id, err
}

// overlayOf is the snapshot that an overlay is of, as its options say: that of its upper directory, or of its first
// layer. "" if it is not of the store.
func overlayOf(m *mountinfo.Mount, store *shownStore) string {
	first := ""
	for name, path := range m.Values() {
		rest, ok := store.layer(path)
		if !ok {
			continue
		}
		id, _, _ := strings.Cut(rest, "/")
		if name == "upperdir" {
			return id
		}
		if first == "" {
			first = id
		}
	}
	return first
}

// ticks is in how many parts of a second /proc counts, on all that Linux runs on today.
const ticks = 100

func uptime() float64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	text, _, _ := strings.Cut(string(b), " ")
	f, _ := strconv.ParseFloat(text, 64)
	return f
}

// processOf reads what a process has taken. Its name can have spaces and brackets; the fields begin after it.
func processOf(dir string, uptime float64) (p runningStep, err error) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, err
	}
	if p.PID, err = strconv.Atoi(filepath.Base(dir)); err != nil {
		return p, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 22 {
		return p, fmt.Errorf("%s/stat has %d fields", dir, len(fields))
	}
	number := func(i int) float64 {
		f, _ := strconv.ParseFloat(fields[i], 64)
		return f
	}
	p.CPU = (number(11) + number(12)) / ticks
	p.Seconds = max(uptime-number(19)/ticks, 0)
	p.Memory = int64(number(21)) * int64(os.Getpagesize())
	return p, nil
}
