package zfs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/worker/internal/testing/zfsfuse"
	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/zfs"
	"holdfast/worker/snapshot/drivertest"
)

const poolSize = 512 << 20

func TestDriver(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	drivertest.Run(t, func(t *testing.T, _ string) snapshot.Driver {
		return served{zfs.New(zfsfuse.Pool(t, poolSize) + "/holdfast")}
	})
}

// served is the driver, and a drivertest.Server of its mounts.
type served struct{ *zfs.Driver }

func (served) Mounters() map[string]mount.Mounter { return zfsfuse.Mounters() }

// bench is a store with a manager of mounts.
type bench struct {
	*testing.T
	root      string
	mounter   *zfsfuse.Mounter
	store     *snapshot.Store
	namespace *snapshot.Namespace
	manager   *mount.Manager
}

func newBench(t *testing.T, size int64) *bench {
	t.Helper()
	pool := zfsfuse.Pool(t, size)
	b := &bench{T: t, root: t.TempDir()}
	b.open(pool + "/holdfast")
	t.Cleanup(b.close)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) open(dataset string) {
	b.Helper()
	b.must(zfsfuse.Clear()) // after a process was killed
	var err error
	b.mounter = zfsfuse.NewMounter()
	for {
		b.store, err = snapshot.Open(b.root, snapshot.Options{Driver: zfs.New(dataset)})
		if !errors.Is(err, snapshot.ErrLocked) {
			break // else a child that a killed process was about to start has the lock
		}
	}
	b.must(err)
	b.namespace, err = b.store.Namespace("t")
	b.must(err)
	b.manager, err = mount.Open(context.Background(), mount.Options{
		Directory: filepath.Join(b.root, "run"), Keep: []string{b.root}, Mounters: map[string]mount.Mounter{zfs.Type: b.mounter}})
	b.must(err)
}

// close closes both, and finds nothing mounted that is a dataset.
func (b *bench) close() {
	b.Helper()
	if b.manager == nil {
		return
	}
	if err := errors.Join(b.manager.Close(context.Background()), b.store.Close()); err != nil {
		b.Error(err)
	}
	b.manager = nil
	b.nothing("closed")
}

// datasets are the file systems of zfs-fuse that are mounted.
func datasets(t *testing.T) (points []string) {
	t.Helper()
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.Contains(line, " fuse.zfs ") {
			points = append(points, strings.TrimSpace(line))
		}
	}
	return points
}

func (b *bench) nothing(when string) {
	b.Helper()
	if points := datasets(b.T); len(points) > 0 {
		b.Errorf("%s, and there is mounted: %v", when, points)
	}
}

// in does something in what mounts show.
func (b *bench) in(mounts []mount.Mount, fn func(dir string)) {
	b.Helper()
	spec, err := mount.FromMounts(mounts)
	b.must(err)
	h, err := b.manager.Acquire(context.Background(), spec)
	b.must(err)
	fn(h.Path() + "/.")
	h.Release()
	b.must(h.Wait(context.Background()))
}

func (b *bench) commit(name, parent string, fn func(dir string)) {
	b.Helper()
	ctx := context.Background()
	mounts, err := b.namespace.Prepare(ctx, "active "+name, parent)
	b.must(err)
	b.in(mounts, fn)
	b.must(b.namespace.Commit(ctx, name, "active "+name))
}

func (b *bench) write(path, content string) {
	b.Helper()
	b.must(os.WriteFile(path, []byte(content), 0o600))
}

// shows verifies a file of a committed snapshot.
func (b *bench) shows(name, file, want string) {
	b.Helper()
	ctx := context.Background()
	mounts, err := b.namespace.View(ctx, "look", name)
	b.must(err)
	b.in(mounts, func(dir string) {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			b.Errorf("%s of %s is %q, %v; it should be %q", file, name, got, err, want)
		}
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			b.Errorf("a view was written to: %v", err)
		}
	})
	b.must(b.namespace.Remove(ctx, "look"))
}

// TestMounted: a dataset is mounted while somebody holds it, once, and not otherwise.
func TestMounted(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	b.commit("one", "", func(dir string) { b.write(dir+"/f", "1") })
	b.nothing("one was committed")
	mounts, err := b.namespace.Prepare(ctx, "two", "one")
	b.must(err)
	b.nothing("two was prepared")
	spec, err := mount.FromMounts(mounts)
	b.must(err)
	first, err := b.manager.Acquire(ctx, spec)
	b.must(err)
	second, err := b.manager.Acquire(ctx, spec)
	b.must(err)
	if points := datasets(t); len(points) != 1 {
		t.Errorf("one is held, and there is mounted: %v", points)
	}
	if _, err := b.namespace.Usage(ctx, "two"); err != nil {
		t.Error(err)
	}
	first.Release()
	b.write(second.Path()+"/g", "2")
	second.Release()
	b.must(second.Wait(ctx))
	b.nothing("both have released it")
	b.must(b.namespace.Commit(ctx, "three", "two"))
	b.shows("three", "f", "1")
	b.shows("three", "g", "2")
	b.nothing("all was looked at")
	for _, name := range []string{"three", "one"} {
		b.must(b.namespace.Remove(ctx, name))
	}
	b.must(b.store.Cleanup(ctx))
	dataset := strings.TrimRight(strings.Split(mounts[0].Source, "/s")[0], "/")
	out, err := zfsfuse.Run("zfs", "list", "-H", "-o", "name", "-t", "all", "-r", dataset)
	if left := strings.TrimSpace(string(out)); err != nil || left != dataset {
		t.Errorf("left after all was removed: %q, %v", left, err)
	}
}

// TestMountOften: a dataset that was mounted for a moment only, by several, can be mounted again, and destroyed.
func TestMountOften(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	var wg sync.WaitGroup
	for i := range 4 {
		name := fmt.Sprint(i)
		mounts, err := b.namespace.Prepare(ctx, name, "")
		b.must(err)
		for range 2 {
			wg.Go(func() {
				for range 20 {
					_, release, err := b.mounter.Mount(ctx, mounts[0])
					if err == nil {
						err = release()
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range 4 {
		b.must(b.namespace.Remove(ctx, fmt.Sprint(i)))
	}
	b.must(b.store.Cleanup(ctx))
}

// TestClosedBefore: the daemon has been told of all files that were closed when their file system goes. Otherwise it
// would have them in use for ever. Here it is slow, and the store is opened by a symbolic link.
func TestClosedBefore(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	mounts, err := b.namespace.Prepare(ctx, "a", "")
	b.must(err)
	b.close()
	link := filepath.Join(t.TempDir(), "link")
	b.must(os.Symlink(b.root, link))
	b.root = link
	b.open(filepath.Dir(mounts[0].Source))
	for range 5 {
		path, release, err := b.mounter.Mount(ctx, mounts[0])
		b.must(err)
		dir, err := os.Open(path)
		b.must(err)
		resume, err := zfsfuse.Pause()
		b.must(err)
		t.Cleanup(resume)
		b.must(dir.Close()) // which waits for nothing
		released := make(chan error, 1)
		go func() { released <- release() }()
		select {
		case err := <-released:
			t.Errorf("unmounted before it was told (%v)", err)
			released <- err
		case <-time.After(100 * time.Millisecond):
		}
		resume()
		b.must(<-released)
		b.nothing("it was released")
	}
	b.must(b.namespace.Remove(ctx, "a"))
	b.must(b.store.Cleanup(ctx))
}

// TestCommandsAtOnce: commands that several goroutines of several processes run at the same time get their own answers.
func TestCommandsAtOnce(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	pool := zfsfuse.Pool(t, poolSize)
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), envCommands+"="+pool)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v: %s", p, err, out)
			}
		})
	}
	wg.Wait()
}

// envCommands is a pool: this program asks for its properties.
const envCommands = "HOLDFAST_TEST_ZFS_COMMANDS"

func commands(pool string) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 5 {
				name := fmt.Sprintf("holdfast:p%d_%d_%d", os.Getpid(), i, n)
				for _, args := range [][]string{{"set", name + "=" + name, pool}, {"get", "-H", "-o", "value", name, pool}} {
					out, err := zfsfuse.Run("zfs", args...)
					if err != nil || args[0] == "get" && strings.TrimSpace(string(out)) != name {
						fmt.Printf("zfs %v: %v: %s\n", args, err, out)
						os.Exit(1)
					}
				}
			}
		})
	}
	wg.Wait()
	os.Exit(0)
}

// TestBusyUnmount: somebody in the directory of the mount delays the unmount only.
func TestBusyUnmount(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	mounts, err := b.namespace.Prepare(ctx, "a", "")
	b.must(err)
	path, release, err := b.mounter.Mount(ctx, mounts[0])
	b.must(err)
	f, err := os.Open(path)
	b.must(err)
	if err := release(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("unmounting what is open: %v", err)
	}
	b.must(f.Close())
	b.must(release())
	b.must(release())
	b.nothing("it was released")
}

// TestBoundElsewhere: somebody else, a container, still has what we have unmounted.
func TestBoundElsewhere(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	mounts, err := b.namespace.Prepare(ctx, "a", "")
	b.must(err)
	path, release, err := b.mounter.Mount(ctx, mounts[0])
	b.must(err)
	elsewhere := t.TempDir()
	b.must(syscall.Mount(path, elsewhere, "", syscall.MS_BIND, ""))
	b.must(release())
	b.write(elsewhere+"/f", "still there")
	b.in(mounts, func(dir string) {
		if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "still there" {
			t.Errorf("mounted again: %q, %v", got, err)
		}
	})
	b.must(syscall.Unmount(elsewhere, 0))
}

// TestOwner: a dataset has one store, and a store one dataset.
func TestOwner(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	b := newBench(t, poolSize)
	b.commit("one", "", func(dir string) { b.write(dir+"/f", "1") })
	dataset := strings.TrimSpace(string(b.output("zfs", "list", "-H", "-o", "name", "-d", "1", "-t", "filesystem")))
	dataset = strings.Split(dataset, "\n")[1]
	b.close()
	refused := func(what, root, dataset, want string) {
		t.Helper()
		_, err := snapshot.Open(root, snapshot.Options{Driver: zfs.New(dataset)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a second store", t.TempDir(), dataset, "another store")
	refused("another dataset", b.root, dataset+"2", "the content of this store is in")
	refused("a pool", t.TempDir(), strings.Split(dataset, "/")[0], "it needs a name")
	refused("an option for a name", t.TempDir(), "-R/x", "it needs a name")
	refused("no pool", t.TempDir(), "nosuchpool/x", "the pool nosuchpool")
	b.output("zfs", "create", "-o", "canmount=off", dataset+"2")
	refused("somebody's dataset", t.TempDir(), dataset+"2", "was not made for a store")
	b.output("zfs", "rename", dataset, dataset+"3")
	refused("one that has gone", b.root, dataset, "is its pool imported?")
	b.output("zfs", "rename", dataset+"3", dataset)
	moved := b.root + "-moved"
	b.must(os.Rename(b.root, moved))
	b.root = moved
	b.open(dataset)
	b.shows("one", "f", "1")
}

func (b *bench) output(name string, args ...string) []byte {
	b.Helper()
	out, err := zfsfuse.Run(name, args...)
	if err != nil {
		b.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return out
}

// TestFull: a full pool is an error that says so, loses nothing, and is good again when something is removed.
func TestFull(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, 64<<20)
	b.commit("kept", "", func(dir string) { b.write(dir+"/f", "kept") })
	var full error
	for i := 0; full == nil && i < 100; i++ {
		name := fmt.Sprint("large", i)
		mounts, err := b.namespace.Prepare(ctx, name, "kept")
		if err != nil {
			full = err
			break
		}
		b.in(mounts, func(dir string) {
			full = os.WriteFile(dir+"/large", make([]byte, 8<<20), 0o600)
		})
		if full == nil {
			full = b.namespace.Commit(ctx, name+" committed", name)
		}
	}
	if !errors.Is(full, syscall.ENOSPC) {
		t.Fatalf("a pool that is filled: %v", full)
	}
	var names []string
	b.must(b.namespace.Walk(ctx, func(i snapshot.Info) error {
		if i.Name != "kept" {
			names = append(names, i.Name)
		}
		return nil
	}))
	for _, name := range names {
		b.must(b.namespace.Remove(ctx, name))
	}
	b.must(b.store.Cleanup(ctx))
	b.shows("kept", "f", "kept")
	b.commit("after", "kept", func(dir string) { b.write(dir+"/g", "after") })
	b.shows("after", "g", "after")
}

// TestDaemonDies: errors that name it; and when it is back, all that was committed is.
func TestDaemonDies(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	b.commit("one", "", func(dir string) { b.write(dir+"/f", "1") })
	mounts, err := b.namespace.Prepare(ctx, "two", "one")
	b.must(err)
	spec, err := mount.FromMounts(mounts)
	b.must(err)
	h, err := b.manager.Acquire(ctx, spec)
	b.must(err)
	zfsfuse.Stop()
	if err := os.WriteFile(h.Path()+"/g", nil, 0o600); !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("writing to a dead file system: %v", err)
	}
	for what, err := range map[string]error{
		"prepare": func() error { _, err := b.namespace.Prepare(ctx, "three", "one"); return err }(),
		"commit":  b.namespace.Commit(ctx, "two committed", "two"),
	} {
		if err == nil || !strings.Contains(err.Error(), "zfs-fuse daemon") {
			t.Errorf("%s without the daemon: %v", what, err)
		}
	}
	h.Release()
	b.must(h.Wait(ctx))
	b.nothing("the mount of a dead daemon was released")
	b.must(zfsfuse.Start())
	b.shows("one", "f", "1")
	mounts, err = b.namespace.Mounts(ctx, "two")
	b.must(err)
	b.in(mounts, func(dir string) { b.write(dir+"/g", "2") })
	b.must(b.namespace.Commit(ctx, "two committed", "two"))
	b.shows("two committed", "g", "2")
	b.must(b.store.Cleanup(ctx))
}

// TestMissingProgram: the error names it and its package.
func TestMissingProgram(t *testing.T) {
	zfs.OnlyPath(t)
	t.Setenv("PATH", t.TempDir())
	_, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: zfs.New("tank/x")})
	if !errors.Is(err, snapshot.ErrUnsupported) || !strings.Contains(err.Error(), "zfsutils-linux") {
		t.Errorf("without the program: %v", err)
	}
}

// TestWhichProgram: a program that does not tell its version is an error, and one that cannot, as zfs-fuse's, is
// unsupported.
func TestWhichProgram(t *testing.T) {
	for prints, want := range map[string]string{"out of processes": "zfs version", "unrecognized command 'version'": "is not OpenZFS 0.8 or later"} {
		zfs.OnlyPath(t)
		bin := t.TempDir()
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		script := "#!/bin/sh\n[ $1 != version ] || { echo \"" + prints + "\" >&2; exit 1; }\necho tank\n"
		if err := os.WriteFile(filepath.Join(bin, "zfs"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := snapshot.Open(t.TempDir(), snapshot.Options{Driver: zfs.New("tank/x")})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), prints) {
			t.Errorf("%s: %v", prints, err)
		}
		if errors.Is(err, snapshot.ErrUnsupported) != strings.Contains(want, "OpenZFS") {
			t.Errorf("%s: %v", prints, err)
		}
	}
}

// envKilled is the directory and dataset of a store: this program works in it until it is killed.
const envKilled = "HOLDFAST_TEST_ZFS_KILLED"

// killed says what is committed, one name in each line.
func killed(where string) {
	root, dataset, _ := strings.Cut(where, "\n")
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	s, err := snapshot.Open(root, snapshot.Options{Driver: zfs.New(dataset)})
	fail(err)
	namespace, err := s.Namespace("t")
	fail(err)
	parent, mounter := "", zfsfuse.NewMounter()
	_ = namespace.Walk(ctx, func(i snapshot.Info) error {
		if i.Kind == snapshot.Committed && i.Name > parent {
			parent = i.Name
		}
		return nil
	})
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s%02d", os.Getenv(envKilled+"_ROUND"), n)
		mounts, err := namespace.Prepare(ctx, "active"+name, parent)
		fail(err)
		path, release, err := mounter.Mount(ctx, mounts[0])
		fail(err)
		if os.Getenv(envKilled+"_HOLD") != "" {
			fmt.Println(path)
			select {}
		}
		fail(os.WriteFile(filepath.Join(path, name), []byte(name), 0o600))
		fail(release())
		fail(namespace.Commit(ctx, name, "active"+name))
		fmt.Println(name)
		view := "view" + name
		_, err = namespace.View(ctx, view, name)
		fail(err)
		fail(namespace.Remove(ctx, view))
		parent = name
	}
}

// TestKilled: kill -9 of the process with the store, at any moment, and opening it again: what was committed is
// there, nothing else is mounted or kept.
func TestKilled(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	mounts, err := b.namespace.Prepare(ctx, "probe", "")
	b.must(err)
	dataset := mounts[0].Source[:strings.LastIndex(mounts[0].Source, "/")]
	b.must(b.namespace.Remove(ctx, "probe"))
	b.close()
	b.leftMounted(dataset)
	committed := map[string]bool{}
	for round := range 12 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), envKilled+"="+b.root+"\n"+dataset, fmt.Sprintf("%s_ROUND=%c", envKilled, 'a'+round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		b.must(err)
		b.must(cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if strings.HasPrefix(lines.Text(), "error") {
				t.Fatal(lines.Text())
			}
			committed[lines.Text()] = true
			if n == round%3 {
				spin(round) // into what follows
				b.must(cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
		b.open(dataset)
		b.nothing("opened again")
		b.must(b.store.Cleanup(ctx))
		known := map[string]bool{dataset: true}
		b.must(b.namespace.Walk(ctx, func(i snapshot.Info) error {
			if i.Kind == snapshot.Committed {
				delete(committed, i.Name)
			}
			return nil
		}))
		if len(committed) > 0 {
			t.Fatalf("committed and lost: %v", committed)
		}
		var names []string
		b.must(b.namespace.Walk(ctx, func(i snapshot.Info) error {
			if i.Kind == snapshot.Committed {
				names = append(names, i.Name)
				committed[i.Name] = true
			} else {
				b.must(b.namespace.Remove(ctx, i.Name))
			}
			return nil
		}))
		for _, name := range names {
			b.shows(name, name, name)
		}
		b.must(b.store.Cleanup(ctx))
		dirs, err := os.ReadDir(filepath.Join(b.root, "snapshots"))
		b.must(err)
		for _, dir := range dirs {
			known[dataset+"/s"+dir.Name()] = true
		}
		for _, line := range strings.Fields(string(b.output("zfs", "list", "-H", "-o", "name", "-r", dataset))) {
			if !known[line] {
				t.Errorf("round %d: the dataset %s is nobody's", round, line)
			}
			delete(known, line)
		}
		if len(known) > 0 {
			t.Errorf("round %d: without a dataset: %v", round, known)
		}
		problems, err := b.store.Check(ctx)
		b.must(errors.Join(append(problems, err)...))
		b.close()
	}
}

// leftMounted: what a killed process has mounted is unmounted when the store is opened.
func (b *bench) leftMounted(dataset string) {
	b.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envKilled+"="+b.root+"\n"+dataset, envKilled+"_HOLD=1")
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	b.must(errors.Join(err, cmd.Process.Kill()))
	_ = cmd.Wait()
	if points := datasets(b.T); len(points) != 1 {
		b.Fatalf("a process was killed that had %q mounted, and there is mounted: %v", line, points)
	}
	b.open(dataset)
	b.nothing("opened after a process that held one")
	if b.Failed() {
		b.FailNow() // it would wait for the dataset for ever
	}
	b.close()
}

// spin does something that takes a different time in each round.
func spin(round int) {
	for range round {
		_ = exec.Command("/bin/true").Run()
	}
}

// TestUsageBeforeParent: a snapshot whose parent was not measured yet took all objects of that, too.
func TestUsageBeforeParent(t *testing.T) {
	if !zfsfuse.Own(t) {
		return
	}
	ctx := context.Background()
	b := newBench(t, poolSize)
	b.commit("one", "", func(dir string) {
		for i := range 100 {
			b.write(filepath.Join(dir, strconv.Itoa(i)), "1")
		}
	})
	info, err := b.namespace.Stat(ctx, "one")
	b.must(err)
	b.must(os.Remove(filepath.Join(b.root, "snapshots", info.ID.String(), "objects"))) // as MeasureLater leaves it for a while
	b.commit("two", "one", func(dir string) { b.write(filepath.Join(dir, "new"), "2") })
	if u, err := b.namespace.Usage(ctx, "two"); err != nil || u.Inodes < 1 || u.Inodes > 20 {
		t.Errorf("%+v, %v", u, err)
	}
}
