package mount

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// recovery is the work of Open on what earlier runs have left.
type recovery struct {
	m       *Manager
	boot    string
	damaged bool // the records were, so that runs are known by what they have mounted
	kept    *kept
	found   Recovery
	parked  map[uint64]bool // numbers of attachments that are still there
}

// recover ends, unmounts and notes what earlier runs have left, in this order: processes,
// for they hold mounts; attachments; what is left then is held by others.
func (m *Manager) recover(ctx context.Context, damaged bool) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	k, err := m.records.all()
	if err != nil {
		return fmt.Errorf("mount: reading records: %w", err)
	}
	r := &recovery{m: m, boot: strings.TrimSpace(string(boot)), damaged: damaged, kept: k, parked: map[uint64]bool{}}
	if err := r.dropOtherBoots(); err != nil {
		return err
	}
	r.found.Runs = len(r.kept.runs)
	for n := range r.kept.attached {
		m.serial = max(m.serial, n) // the numbers of what stays are not given again
	}
	if err := m.records.putRun(m.run, runRecord{pid: uint64(os.Getpid()), boot: r.boot}); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	for _, dir := range m.opt.Cgroups {
		pids, err := endCgroup(ctx, dir)
		r.found.Ended = append(r.found.Ended, pids...)
		if err != nil {
			return err
		}
	}
	if err := r.endSteps(ctx); err != nil {
		return err
	}
	if err := r.unmountAll(); err != nil {
		return err
	}
	if err := r.noteForeign(); err != nil {
		return err
	}
	if n := len(r.found.Ended) + len(r.found.Unmounted) + len(r.found.Foreign); n > 0 {
		m.log.Warn("an earlier run was not closed", "ended", r.found.Ended, "unmounted", r.found.Unmounted, "foreign", r.found.Foreign)
	}
	m.found = r.found
	return nil
}

// dropOtherBoots drops all records if they are of another boot: its mounts are gone.
func (r *recovery) dropOtherBoots() error {
	for _, run := range r.kept.runs {
		if run.boot == r.boot {
			return nil
		}
	}
	old := r.kept
	r.kept = &kept{uppers: map[string]upperRecord{}}
	return r.m.records.forget(old)
}

// ours tells whether an earlier run has made a mount.
func (r *recovery) ours(m *mountinfo.Mount) bool {
	run, _, ok := runOf(m.Source)
	if !ok || run == r.m.run {
		return false
	}
	if _, known := r.kept.runs[run]; known {
		return true
	}
	return r.damaged && m.Type == "overlay" && slices.ContainsFunc(r.m.kernel.keep, func(dir string) bool {
		upper := layerPath(m.Option("upperdir"), []string{dir})
		return upper != "" && under(upper, dir)
	})
}

// endSteps ends the processes that live in what an earlier run has made (M8).
func (r *recovery) endSteps(ctx context.Context) error {
	for {
		var victims []*group
		look := func(g *group, m *mountinfo.Mount) {
			if !r.ours(m) {
				return
			}
			_, rest, _ := runOf(m.Source)
			if (m.Point == "/" || rest == stepMark) && !slices.Contains(victims, g) {
				victims = append(victims, g)
			}
		}
		all, err := groups()
		if err == nil {
			err = eachOf(all, " holdfast-", look)
		}
		if err == nil {
			// Who has changed its root directory does not see what its namespace has outside of it.
			err = fromInside(all, " holdfast-", look)
		}
		if err != nil || len(victims) == 0 {
			return err
		}
		for _, g := range victims {
			pids, err := endProcesses(ctx, g.pids, func(pid int) bool {
				namespace, err := namespaceOf(pid)
				return err == nil && namespace == g.namespace
			})
			r.found.Ended = append(r.found.Ended, pids...)
			if err != nil {
				return err
			}
		}
	}
}

// unmountAll unmounts what earlier runs have attached in the host's namespace: at the
// recorded paths, and below the manager's directory.
func (r *recovery) unmountAll() error {
	dir := r.m.kernel.dir
	var points []string
	at := map[string]bool{} // the paths at which something is mounted
	err := eachMount("", func(m *mountinfo.Mount) {
		at[m.Point] = true
		if m.Point != dir && under(m.Point, dir) {
			points = append(points, m.Point)
		}
	})
	if err != nil {
		return err
	}
	numbers := map[string]uint64{}
	for n, a := range r.kept.attached {
		// The number in mountinfo is not that of stat, on btrfs.
		var st unix.Stat_t
		if at[a.path] && unix.Lstat(a.path, &st) == nil && deviceOf(&st) == a.dev {
			numbers[a.path] = n
			if !under(a.path, dir) {
				points = append(points, a.path)
			}
		}
	}
	slices.Reverse(points) // what lies on others goes first
	for _, p := range points {
		number, recorded := numbers[p]
		if err := unmount(p); err == nil {
			r.found.Unmounted = append(r.found.Unmounted, p)
			continue
		}
		r.parked[number] = recorded
		r.m.mu.Lock()
		pending := r.m.register("a mount of an earlier run at " + p)
		r.m.mu.Unlock()
		go func() {
			done := r.m.persist(pending, func() {}, func(bool) error { return unmount(p) })
			if done && recorded {
				if err := r.m.records.dropAttached(number); err != nil {
					r.m.log.Error("a record of a mount stays", "path", p, "reason", err)
				}
			}
		}()
	}
	if !r.damaged {
		// What others have copied of a mount goes with its mount point, and is not seen any
		// more if it is in use. Without records it must be seen.
		r.removePoints()
	}
	for n := range r.kept.attached {
		if r.parked[n] {
			continue
		}
		if err := r.m.records.dropAttached(n); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
	}
	return nil
}

// removePoints removes the mount points of earlier runs: those that are empty, and so none
// that is in use.
func (r *recovery) removePoints() {
	for _, d := range []string{mastersDir, pointsDir} {
		dir := filepath.Join(r.m.kernel.dir, d)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// noteForeign refuses the directories of overlays that are still there, and drops the
// records of all others. Those that no mountinfo shows are known by the number of their file system.
func (r *recovery) noteForeign() error {
	still := map[string]*Foreign{}
	err := eachNamespace(" holdfast-", func(g *group, m *mountinfo.Mount) {
		if m.Type != "overlay" || !r.ours(m) {
			return
		}
		if still[m.Source] == nil {
			still[m.Source] = &Foreign{}
		}
		still[m.Source].Pids = append(still[m.Source].Pids, g.pids...)
		if _, recorded := r.kept.uppers[m.Source]; !recorded && filepath.IsAbs(m.Option("upperdir")) {
			keep := r.m.kernel.keep
			rec := upperRecord{upper: layerPath(m.Option("upperdir"), keep), work: layerPath(m.Option("workdir"), keep), dev: unix.Mkdev(m.Major, m.Minor)}
			r.kept.uppers[m.Source] = rec
		}
	})
	if err != nil {
		return err
	}
	until := time.Now().Add(min(r.m.opt.ParkAfter, DefaultParkAfter)) // for all together
	done := &kept{runs: maps.Clone(r.kept.runs), uppers: map[string]upperRecord{}}
	for name, rec := range r.kept.uppers {
		if still[name] == nil && rec.dev != 0 {
			alive, err := r.outlives(rec, name, until)
			if err != nil {
				return err
			}
			if alive {
				still[name] = &Foreign{}
			}
		}
		f := still[name]
		if f == nil {
			done.uppers[name] = rec
			continue
		}
		f.Upper = rec.upper
		r.found.Foreign = append(r.found.Foreign, *f)
		run, _, _ := runOf(name)
		delete(done.runs, run)
		// They may be missing in records that are new.
		err := errors.Join(r.m.records.putRun(run, runRecord{r.kept.runs[run].pid, r.boot}), r.m.records.putUpper(name, rec))
		if err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		r.m.refuse(name, f, rec)
	}
	return r.m.records.forget(done)
}

// outlives tells whether a file system that no mountinfo shows is still there. What a process
// has held can go shortly after it.
func (r *recovery) outlives(rec upperRecord, name string, until time.Time) (alive bool, err error) {
	for delay := firstDelay; ; delay = min(2*delay, soonDelay) {
		alive, err = r.m.kernel.stays(rec.dev, name, rec.upper)
		if err != nil || !alive || time.Now().After(until) {
			return alive, err
		}
		time.Sleep(delay)
	}
}

// refuse claims the directories of an overlay that other processes hold, until it is gone.
func (m *Manager) refuse(name string, f *Foreign, rec upperRecord) {
	var taken []inode
	m.mu.Lock()
	for _, path := range []string{rec.upper, rec.work} {
		var st unix.Stat_t
		if path == "" || unix.Stat(path, &st) != nil {
			continue // a directory that is not there needs no claim
		}
		at := inode{deviceOf(&st), st.Ino}
		m.claims[at] = &claim{below: map[*entry]int{}, foreign: fmt.Sprintf("an overlay of an earlier run that others hold (processes %v)", f.Pids)}
		taken = append(taken, at)
	}
	what := "an overlay of an earlier run on " + rec.upper
	pending := m.register(what)
	m.mu.Unlock()
	go func() {
		done := m.persist(pending, func() {}, func(bool) error {
			if m.reused(rec.dev, nil) {
				return nil
			}
			alive, err := m.kernel.stays(rec.dev, name, rec.upper)
			if err == nil && alive {
				err = fmt.Errorf("its file system is still in use%s: %w", m.kernel.inUseBy(name, true), ErrBusy)
			}
			return err
		})
		if !done {
			return
		}
		m.mu.Lock()
		for _, at := range taken {
			delete(m.claims, at)
		}
		m.mu.Unlock()
		if err := m.records.dropUpper(name); err != nil {
			m.log.Error("a record of a mount stays", "mount", what, "reason", err)
		}
	}()
}
