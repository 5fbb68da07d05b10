package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/mountinfo"
)

// withoutSets are the sets of features that tests do without.
var withoutSets = map[string][]Feature{
	"all":            nil,
	"staging":        {FeatureCloneDetached},
	"layers by path": {FeatureLayerFD},
	"old overlays":   {FeatureLayerFD, FeatureLowerAppend},
	"loop":           {FeatureErofsFile},
	"no inotify":     {FeatureInotify},
	"no ustat":       {FeatureInotify, FeatureUstat},
	"oldest":         {FeatureCloneDetached, FeatureLayerFD, FeatureLowerAppend, FeatureErofsFile, FeatureInotify, FeatureUstat},
}

// eachKernel runs a test with each set.
func eachKernel(t *testing.T, f func(*stand)) { eachKernelWith(t, Options{}, f) }

func eachKernelWith(t *testing.T, o Options, f func(*stand)) {
	for name, without := range withoutSets {
		o.Without = without
		t.Run(name, func(t *testing.T) { f(newStand(t, o)) })
	}
}

// attached attaches in the step namespace, and returns what a program there reads from "who".
func (s *stand) whoInSteps(h *Handle, file string) string {
	s.Helper()
	n, err := s.StepNamespace()
	must(s, err)
	at, err := h.Attach(n, "")
	must(s, err)
	var b []byte
	err = n.Do(func() (err error) {
		b, err = os.ReadFile(filepath.Join(at, file))
		return err
	})
	must(s, err)
	if _, err := os.Stat(filepath.Join(at, "who")); err == nil {
		s.Errorf("%s, attached in the step namespace, shows outside of it", at)
	}
	return string(b)
}

func TestKinds(t *testing.T) { eachKernel(t, kinds) }

// kinds mounts everything that there is to mount.
func kinds(s *stand) {
	long := strings.Repeat("long/", 60) // over 255 bytes
	a, b := s.layer("a"), s.layer(long+"b")
	upper, options := s.work(long + "up")
	image1 := s.image(filepath.Join(s.dir, "1.erofs"), "image 1")
	image2 := s.image(filepath.Join(s.dir, long, "2.erofs"), "image 2")
	upper2, options2 := s.work("up2")
	cases := []struct {
		name string
		spec Spec
		file string
		want string
	}{
		{"a bind", bind(a, "ro"), "who", "a"},
		{"a recursive bind", bind(a, "rbind", "ro", "nosuid"), "who", "a"},
		{"the bind of a file", bind(a+"/who", "ro"), "", "a"},
		{"an overlay to read", overlay([]string{b, a}), "who", long + "b"},
		{"an overlay to write", overlay([]string{a, b}, options...), "who", "a"},
		{"an image", erofs(image1), "who", "image 1"},
		{"an image with a long name", erofs(image2), "who", "image 2"},
		{"images under an overlay", Spec{
			Mount:  Mount{Type: "overlay", Options: append([]string{"lowerdir=" + a}, options2...)},
			Lowers: []Spec{erofs(image2), erofs(image1)},
		}, "who", "image 2"},
	}
	for _, c := range cases {
		h := s.get(c.spec)
		if got := read(s, filepath.Join(h.Path(), c.file)); got != c.want {
			s.Errorf("%s: read by descriptor: %q; want %q", c.name, got, c.want)
		}
		if got := s.whoInSteps(h, c.file); got != c.want {
			s.Errorf("%s: read in the step namespace: %q; want %q", c.name, got, c.want)
		}
		if err := os.WriteFile(filepath.Join(h.Path(), "new"), []byte("new"), 0o644); (err == nil) != strings.Contains(strings.Join(c.spec.Options, " "), "upperdir") {
			s.Errorf("%s: writing: %v", c.name, err)
		}
		s.free(h)
	}
	for _, u := range []string{upper, upper2} {
		if got := read(s, filepath.Join(u, "new")); got != "new" {
			s.Errorf("%s has %q", u, got)
		}
	}
}

func TestTmpfsIsPrivate(t *testing.T) {
	eachKernel(t, func(s *stand) {
		spec := Spec{Mount: Mount{Type: "tmpfs", Options: []string{"size=64k", "nosuid"}}}
		one, two := s.get(spec), s.get(spec)
		must(s, os.WriteFile(one.Path()+"/secret", []byte("x"), 0o600))
		if _, err := os.Stat(two.Path() + "/secret"); !errors.Is(err, os.ErrNotExist) {
			s.Errorf("a second tmpfs shows the files of the first: %v", err)
		}
		if err := os.WriteFile(two.Path()+"/big", make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			s.Errorf("the option size was lost: %v", err)
		}
		s.free(one)
		s.free(two)
		if st := s.Stats(); st.Mounts != 0 {
			s.Errorf("%d mounts are left; a tmpfs does not idle", st.Mounts)
		}
	})
}

func TestFlags(t *testing.T) {
	eachKernel(t, func(s *stand) {
		h := s.get(bind(s.layer("a"), "ro", "nosuid", "nodev", "noexec", "noatime"))
		var st unix.Statfs_t
		must(s, unix.Fstatfs(h.FD(), &st))
		want := uint64(unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME)
		if flags := uint64(st.Flags); flags&want != want {
			s.Errorf("flags %#x; want %#x of them", st.Flags, want)
		}
	})
}

func TestAttachInHost(t *testing.T) {
	eachKernel(t, func(s *stand) {
		h := s.get(overlay([]string{s.layer("a"), s.layer("b")}))
		at, err := h.Attach(s.Host(), "")
		must(s, err)
		own := filepath.Join(s.dir, "point")
		must(s, os.Mkdir(own, 0o700))
		_, err = h.Attach(s.Host(), own)
		must(s, err)
		for _, p := range []string{at, own} {
			if got := read(s, p+"/who"); got != "a" {
				s.Errorf("%s: %q", p, got)
			}
		}
		f, err := os.Open(own + "/who")
		must(s, err)
		if err := h.Detach(own); !errors.Is(err, unix.EBUSY) {
			s.Errorf("detaching with a file open: %v", err)
		}
		must(s, f.Close())
		must(s, h.Detach(own))
		if _, err := os.Stat(own + "/who"); !errors.Is(err, os.ErrNotExist) {
			s.Errorf("still attached: %v", err)
		}
		s.free(h)
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			s.Errorf("a mount point is left: %v", err)
		}
		k, err := s.records.all()
		must(s, err)
		if len(k.attached) != 0 || len(k.uppers) != 0 {
			s.Errorf("records are left: %+v", k)
		}
	})
}

func TestRecordFirst(t *testing.T) {
	s := newStand(t, Options{})
	upper, options := s.work("up")
	h := s.get(overlay([]string{s.layer("a")}, options...))
	at, err := h.Attach(s.Host(), "")
	must(t, err)
	k, err := s.records.all()
	must(t, err)
	if len(k.uppers) != 1 || k.uppers[h.entry.name].upper != upper {
		t.Errorf("uppers: %+v", k.uppers)
	}
	if len(k.attached) != 1 {
		t.Errorf("attached: %+v", k.attached)
	}
	for _, a := range k.attached {
		if a.path != at || a.dev != h.entry.master.dev {
			t.Errorf("attached: %+v", a)
		}
	}
}

func TestSharing(t *testing.T) {
	s := newStand(t, Options{IdleMax: 2})
	a, b := s.layer("a"), s.layer("b")
	one, two := s.get(overlay([]string{a, b})), s.get(overlay([]string{a, b}))
	other := s.get(overlay([]string{b, a}))
	if one.FD() != two.FD() || one.FD() == other.FD() {
		t.Errorf("descriptors %d %d %d", one.FD(), two.FD(), other.FD())
	}
	one.Release()
	one.Release()
	if got := read(t, two.Path()+"/who"); got != "a" {
		t.Errorf("after the release of another: %q", got)
	}
	if one.FD() != -1 {
		t.Errorf("a released handle has the descriptor %d", one.FD())
	}
	if st := s.Stats(); st.Mounts != 2 || st.Held != 2 || st.Made != 2 || st.Shared != 1 {
		t.Errorf("%+v", st)
	}
	fd := two.FD()
	two.Release()
	if st := s.Stats(); st.Held != 1 || st.Idle != 1 {
		t.Errorf("after the last release: %+v", st)
	}
	again := s.get(overlay([]string{a, b}))
	if again.FD() != fd {
		t.Errorf("an idle mount was mounted anew")
	}
}

func TestTrim(t *testing.T) {
	s := newStand(t, Options{IdleMax: 10})
	var specs []Spec
	for i := range 5 {
		specs = append(specs, bind(s.layer(fmt.Sprint(i)), "ro"))
	}
	held := s.get(specs[4])
	for _, spec := range specs[:4] {
		s.get(spec).Release()
	}
	if n := s.Trim(5); n != 0 {
		t.Errorf("%d were unmounted, and there were not too many", n)
	}
	if n := s.Trim(3); n != 2 {
		t.Errorf("%d of 5 were unmounted", n)
	}
	s.settle()
	made := s.Stats().Made
	s.get(specs[2]).Release()
	s.get(specs[3]).Release()
	if st := s.Stats(); st.Mounts != 3 || st.Made != made {
		t.Errorf("not those that were idle longest: %+v", st)
	}
	if n := s.Trim(0); n != 2 {
		t.Errorf("%d were unmounted; one is held", n)
	}
	s.settle()
	if st := s.Stats(); st.Mounts != 1 || st.Held != 1 {
		t.Errorf("%+v", st)
	}
	held.Release()
}

func TestIdleBounds(t *testing.T) {
	s := newStand(t, Options{IdleMax: 3})
	var specs []Spec
	for i := range 6 {
		specs = append(specs, bind(s.layer(fmt.Sprint(i)), "ro"))
		s.get(specs[i]).Release()
	}
	s.settle()
	if st := s.Stats(); st.Idle != 3 || st.Evicted != 3 {
		t.Errorf("%+v", st)
	}
	made := s.Stats().Made
	for i := 3; i < 6; i++ {
		s.get(specs[i]).Release()
	}
	if got := s.Stats().Made; got != made {
		t.Errorf("%d of the three that were used last were not kept", got-made)
	}
	// Not older than IdleAge.
	s.mu.Lock()
	first := s.idle.Front().Value.(*entry)
	s.expire(first.since.Add(s.opt2().IdleAge))
	s.mu.Unlock()
	s.settle()
	if st := s.Stats(); st.Expired == 0 || st.Idle == 3 {
		t.Errorf("%+v", st)
	}
}

// opt2 are the options with the defaults in them.
func (s *stand) opt2() *Options { return &s.Manager.opt }

// settle waits until nothing is pending.
func (s *stand) settle() {
	s.Helper()
	for {
		st := s.Stats()
		if st.Going == 0 && st.Pending == 0 {
			return
		}
		must(s, s.ctx.Err())
		must(s, s.Retry(s.ctx))
	}
}

func TestTimer(t *testing.T) {
	s := newStand(t, Options{IdleAge: 1})
	h := s.get(bind(s.layer("a"), "ro"))
	h.Release()
	for s.Stats().Mounts > 0 {
		must(t, s.ctx.Err())
	}
	if st := s.Stats(); st.Expired != 1 {
		t.Errorf("%+v", st)
	}
}

func TestMaxMounts(t *testing.T) {
	s := newStand(t, Options{MaxMounts: 3})
	a, b := s.get(bind(s.layer("a"), "ro")), s.get(bind(s.layer("b"), "ro"))
	c := s.get(bind(s.layer("c"), "ro"))
	if _, err := s.Acquire(s.ctx, bind(s.layer("d"), "ro")); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth: %v", err)
	}
	c.Release() // becomes idle, and makes room
	d := s.get(bind(s.layer("d"), "ro"))
	if st := s.Stats(); st.Mounts != 3 || st.Evicted != 1 {
		t.Errorf("%+v", st)
	}
	for _, h := range []*Handle{a, b, d} {
		h.Release()
	}
	// Three in one: an overlay and its two layers.
	spec := Spec{Mount: Mount{Type: "overlay"}, Lowers: []Spec{
		erofs(s.image(filepath.Join(s.dir, "1"), "1")), erofs(s.image(filepath.Join(s.dir, "2"), "2")),
	}}
	h := s.get(spec)
	if st := s.Stats(); st.Mounts != 3 || st.Descriptors != 3 {
		t.Errorf("%+v", st)
	}
	spec.Lowers = append(spec.Lowers, erofs(s.image(filepath.Join(s.dir, "3"), "3")))
	s.free(h)
	if _, err := s.Acquire(s.ctx, spec); !errors.Is(err, ErrFull) {
		t.Errorf("an overlay of three images with room for three mounts: %v", err)
	}
	for _, e := range slices.Collect(keys(s.all)) {
		if e.idle == nil && e.state == mounted {
			t.Errorf("%s is still held", e.plan)
		}
	}
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestUppersAreNotShared(t *testing.T) {
	eachKernel(t, func(s *stand) {
		a := s.layer("a")
		upper, options := s.work("up")
		other, otherOptions := s.work("other")
		link := filepath.Join(s.dir, "link")
		must(s, os.Symlink(filepath.Dir(upper), link))
		h := s.get(overlay([]string{a}, options...))
		refused := map[string]Spec{
			"the same upper and other lowers": overlay([]string{a, s.layer("b")}, options...),
			"by another name":                 overlay([]string{a}, "upperdir="+link+"/fs", "workdir="+link+"/work"),
			"the same work directory":         overlay([]string{a}, otherOptions[0], options[1]),
			"the upper as a lower":            overlay([]string{upper, a}),
			"a lower as an upper":             overlay([]string{other}, "upperdir="+a, otherOptions[1]),
		}
		for name, spec := range refused {
			if _, err := s.Acquire(s.ctx, spec); !errors.Is(err, ErrBusy) {
				s.Errorf("%s: %v", name, err)
			}
		}
		s.free(h)
		for name, spec := range refused {
			g, err := s.Acquire(s.ctx, spec)
			if err != nil {
				s.Errorf("%s, after the release: %v", name, err)
				continue
			}
			s.free(g)
		}
		if len(s.claims) != len(s.idleDirs()) {
			s.Errorf("claims are left: %d, and %d directories of idle mounts", len(s.claims), len(s.idleDirs()))
		}
	})
}

// idleDirs are the directories that idle mounts have claimed.
func (s *stand) idleDirs() map[inode]bool {
	dirs := map[inode]bool{}
	for el := s.idle.Front(); el != nil; el = el.Next() {
		for _, d := range el.Value.(*entry).dirs {
			dirs[inode{d.dev, d.ino}] = true
		}
	}
	return dirs
}

func TestForget(t *testing.T) {
	s := newStand(t, Options{})
	must(t, os.MkdirAll(filepath.Join(s.dir, "7"), 0o755))
	image := s.image(filepath.Join(s.dir, "7", "layer.erofs"), "7")
	over := Spec{Mount: Mount{Type: "overlay", Options: []string{"lowerdir=" + s.layer("a")}}, Lowers: []Spec{erofs(image)}}
	h := s.get(over)
	if err := s.Forget(s.ctx, filepath.Dir(image)); !errors.Is(err, ErrBusy) {
		t.Errorf("while an overlay of it is held: %v", err)
	}
	h.Release()
	must(t, s.Forget(s.ctx, filepath.Dir(image)))
	if st := s.Stats(); st.Mounts != 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.Forget(s.ctx, "/nothing/there"))
}

func TestRefused(t *testing.T) {
	s := newStand(t, Options{})
	a := s.layer("a")
	many := slices.Repeat([]string{a}, MaxLowers+1)
	cases := []struct {
		name string
		spec Spec
		text string
	}{
		{"nothing", Spec{}, "without a type"},
		{"a NUL", bind("/a\x00b"), "NUL"},
		{"an unknown type", Spec{Mount: Mount{Type: "nosuchfs", Source: "x"}}, "nosuchfs"},
		{"no lower", Spec{Mount: Mount{Type: "overlay"}}, "without a lower"},
		{"an empty lower", Spec{Mount: Mount{Type: "overlay", Options: []string{"lowerdir=/a:"}}}, "empty layer"},
		{"a relative lower", overlay([]string{"a", "b"}), "absolute"},
		{"too many lowers", overlay(many), "501"},
		{"an upper alone", overlay([]string{a}, "upperdir="+a), "workdir"},
		{"a lower that is not there", overlay([]string{a, "/not/there"}), "/not/there"},
		{"a lower that is a file", overlay([]string{a, a + "/who"}), "who"},
		{"an unknown option", overlay([]string{a, s.layer("b")}, "nosuch=1"), "Unknown parameter 'nosuch'"},
		{"a long option", overlay([]string{a, s.layer("b")}, "x="+strings.Repeat("x", 300)), "300 bytes"},
		{"one lower and no upper", overlay([]string{a}), "overlay"},
		{"lowers of a bind", Spec{Mount: Mount{Type: "bind", Source: a}, Lowers: []Spec{bind(a)}}, "lower layers"},
		{"options of a bind", bind(a, "size=1"), "size"},
		{"an image that is none", erofs(a + "/who"), "erofs"},
		{"a bad layer", Spec{Mount: Mount{Type: "overlay", Options: []string{"lowerdir=" + a}}, Lowers: []Spec{erofs("/not/there")}}, "lower layer"},
	}
	for _, c := range cases {
		h, err := s.Acquire(s.ctx, c.spec)
		if strings.HasSuffix(c.name, " option") && !s.kernel.features.has(FeatureLowerAppend) {
			c.text = "invalid argument" // is all that mount(2) says
		}
		if err == nil {
			t.Errorf("%s: no error", c.name)
			h.Release()
		} else if !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want a text with %q", c.name, err, c.text)
		}
	}
	s.settle()
	if st := s.Stats(); st.Mounts != st.Idle || len(s.claims) != 0 {
		t.Errorf("something is left: %+v, %d claims", st, len(s.claims))
	}
	k, err := s.records.all()
	must(t, err)
	if len(k.uppers) != 0 {
		t.Errorf("records are left: %+v", k.uppers)
	}
}

// The image lies where erofs does not take a file: a tmpfs.
func TestImageOnTmpfs(t *testing.T) {
	s := newStand(t, Options{})
	used := s.kernel.features.has(FeatureErofsFile)
	tmp := s.get(Spec{Mount: Mount{Type: "tmpfs"}})
	at, err := tmp.Attach(s.Host(), "")
	must(t, err)
	h := s.get(erofs(s.image(filepath.Join(at, "image"), "from a tmpfs")))
	if got := read(t, h.Path()+"/who"); got != "from a tmpfs" {
		t.Errorf("%q", got)
	}
	for _, w := range s.Features() {
		if w.Feature == FeatureErofsFile && w.Used != used {
			t.Errorf("one file system that refuses is taken for the kernel: %v", w.Err)
		}
	}
	h.Release()
	must(t, s.Forget(s.ctx, at))
}

func TestManyLowers(t *testing.T) {
	for name, without := range withoutSets {
		if name != "all" && name != "oldest" && name != "layers by path" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Without: without})
			var lowers []string
			for i := range MaxLowers {
				lowers = append(lowers, s.layer(strings.Repeat("deep/", 30)+fmt.Sprint(i)))
			}
			_, options := s.work("up")
			h := s.get(overlay(lowers, options...))
			all, err := os.ReadDir(h.Path())
			must(t, err)
			if len(all) != MaxLowers+1 {
				t.Errorf("%d files; want %d", len(all), MaxLowers+1)
			}
		})
	}
}

func TestClone(t *testing.T) {
	s := newStand(t, Options{Without: []Feature{FeatureCloneDetached}})
	h := s.get(overlay([]string{s.layer("a"), s.layer("b")}))
	f, err := h.Clone()
	must(t, err)
	h.Release()
	must(t, s.DropIdle(s.ctx))
	s.settle()
	if got := read(t, fmt.Sprintf("/proc/self/fd/%d/who", f.Fd())); got != "a" {
		t.Errorf("%q", got)
	}
	must(t, f.Close())
}

// A mount that is left to its clones goes with the last of them, and its directories are free with Release.
func TestEntrust(t *testing.T) {
	s := newStand(t, Options{})
	_, options := s.work("up")
	spec := overlay([]string{s.layer("a")}, options...)
	h := s.get(spec)
	e := h.entry
	if !s.kernel.leaves(e.master) {
		s.free(h)
		t.Skip("left out: this kernel does not tell when file systems leave it")
	}
	clone, err := h.Clone()
	must(t, err)
	h.Entrust()
	h.Entrust()
	if _, err := h.Clone(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a clone: %v", err)
	}
	if _, err := h.Attach(s.Host(), ""); !errors.Is(err, os.ErrClosed) {
		t.Errorf("an attachment: %v", err)
	}
	if closed(e.master.left) || h.FD() != -1 {
		t.Error("it is gone while there is a clone, or has a descriptor")
	}
	must(t, clone.Close())
	<-e.master.left // before Release
	if s.Manager.reused(e.master.dev, nil) {
		t.Error("its number counts as that of a file system that is there")
	}
	if _, err := s.Acquire(s.ctx, spec); !errors.Is(err, ErrBusy) {
		t.Errorf("its directories are free: %v", err)
	}
	h.Release()
	must(t, h.Wait(s.ctx))
	s.free(s.get(spec))

	first, second := s.get(spec), s.get(spec)
	first.Entrust()
	if second.FD() < 0 {
		t.Error("a mount that another holds is closed")
	}
	s.free(first)
	s.free(second)
}

func TestTwoManagers(t *testing.T) {
	s := newStand(t, Options{})
	_, err := Open(s.ctx, s.opt)
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second manager: %v; want the pid %d", err, os.Getpid())
	}
}

func TestClosed(t *testing.T) {
	s := newStand(t, Options{})
	h := s.get(bind(s.layer("a"), "ro"))
	n, err := s.StepNamespace()
	must(t, err)
	h.Release()
	must(t, s.Close(s.ctx))
	if _, err := s.Acquire(s.ctx, bind(s.dir, "ro")); !errors.Is(err, ErrClosed) {
		t.Errorf("Acquire: %v", err)
	}
	if err := n.Do(func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do: %v", err)
	}
	if _, err := s.StepNamespace(); !errors.Is(err, ErrClosed) {
		t.Errorf("StepNamespace: %v", err)
	}
	if left := mountsBelow(t, s.opt.Directory); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func mountsBelow(t testing.TB, dir string) (points []string) {
	t.Helper()
	must(t, eachMount("", func(m *mountinfo.Mount) {
		if under(m.Point, dir) {
			points = append(points, m.Point)
		}
	}))
	return points
}
