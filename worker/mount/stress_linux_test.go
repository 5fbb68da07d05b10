package mount

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"holdfast/worker/internal/mountinfo"
)

// model is what must hold of the mounts that goroutines have, in its own words.
type model struct {
	mu     sync.Mutex
	held   map[string]int            // spec -> handles
	uppers map[string]map[string]int // upper directory -> spec -> handles
	layers map[string]int            // images that overlays hold
}

// take notes a handle; it tells whether another overlay has the upper directory.
func (m *model) take(c *candidate) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held[c.name]++
	for _, l := range c.images {
		m.layers[l]++
	}
	if c.upper == "" {
		return nil
	}
	if m.uppers[c.upper] == nil {
		m.uppers[c.upper] = map[string]int{}
	}
	m.uppers[c.upper][c.name]++
	if len(m.uppers[c.upper]) > 1 {
		return fmt.Errorf("two overlays on the upper directory %s: %v", c.upper, m.uppers[c.upper])
	}
	return nil
}

func (m *model) give(c *candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	drop(m.held, c.name)
	for _, l := range c.images {
		drop(m.layers, l)
	}
	if c.upper != "" {
		drop(m.uppers[c.upper], c.name)
	}
}

func drop(m map[string]int, key string) {
	if m[key]--; m[key] == 0 {
		delete(m, key)
	}
}

// candidate is a spec, and what is known of it.
type candidate struct {
	name   string
	spec   Spec
	upper  string
	images []string
	want   string // what its file "who" says
}

func (s *stand) candidates() []*candidate {
	var all []*candidate
	add := func(c *candidate) {
		c.name = fmt.Sprint(len(all))
		all = append(all, c)
	}
	var images []string
	for i := range 6 {
		images = append(images, s.image(filepath.Join(s.dir, fmt.Sprint("image", i)), fmt.Sprint("image ", i)))
		add(&candidate{spec: erofs(images[i]), want: fmt.Sprint("image ", i)})
	}
	for i := range 6 {
		name, next := fmt.Sprint("layer", i), fmt.Sprint("layer", (i+1)%6)
		add(&candidate{spec: bind(s.layer(name), "ro"), want: name})
		add(&candidate{spec: overlay([]string{s.layer(name), s.layer(next)}), want: name})
		two := []string{images[i], images[(i+1)%6]}
		add(&candidate{
			spec: Spec{Mount: Mount{Type: "overlay"}, Lowers: []Spec{erofs(two[0]), erofs(two[1])}},
			want: fmt.Sprint("image ", i), images: two,
		})
		// Two overlays that want the same upper directory.
		upper, options := s.work(fmt.Sprint("up", i))
		add(&candidate{spec: overlay([]string{s.layer(name)}, options...), upper: upper, want: name})
		add(&candidate{spec: overlay([]string{s.layer(next)}, options...), upper: upper, want: next})
	}
	add(&candidate{spec: Spec{Mount: Mount{Type: "tmpfs"}}})
	return all
}

// Twenty goroutines acquire and release at random; a checker compares with the model
// whenever all stand still.
func TestStress(t *testing.T) {
	for _, name := range []string{"all", "no inotify", "staging", "old overlays", "oldest"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Without: withoutSets[name], IdleMax: 8, MaxMounts: 60})
			all := s.candidates()
			n, err := s.StepNamespace()
			must(t, err)
			m := &model{held: map[string]int{}, uppers: map[string]map[string]int{}, layers: map[string]int{}}
			busy := 0
			for range 6 {
				handles := make([]map[*Handle]*candidate, 20)
				var wg sync.WaitGroup
				var mu sync.Mutex
				for g := range handles {
					handles[g] = map[*Handle]*candidate{}
					wg.Go(func() {
						refused, err := s.work20(n, m, all, handles[g])
						mu.Lock()
						defer mu.Unlock()
						busy += refused
						if err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				s.settleStress()
				s.compare(m, all)
				for _, have := range handles {
					for h, c := range have {
						m.give(c)
						h.Release()
					}
				}
				s.settleStress()
				s.compare(m, all)
			}
			must(t, s.DropIdle(s.ctx))
			s.settleStress()
			if st := s.Stats(); st.Mounts != 0 || len(s.claims) != 0 || len(s.byPath) != 0 || len(s.shared) != 0 {
				t.Errorf("left: %+v, %d claims", st, len(s.claims))
			}
			if busy == 0 {
				t.Error("nobody wanted an upper directory that another had")
			}
			k, err := s.records.all()
			must(t, err)
			if len(k.uppers) != 0 || len(k.attached) != 0 {
				t.Errorf("records: %+v", k)
			}
			t.Logf("%d refused; %+v", busy, s.Stats())
		})
	}
}

// settleStress waits for unmounts, and for layers that are being closed, which is what a bounded time of tests waits
// for as a whole.
func (s *stand) settleStress() {
	s.Helper()
	s.ctx = contextOf(s)
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.all {
		if e.master.closed != nil { // on a slow machine the last layers were still being closed, and counted
			<-e.master.closed
		}
	}
}

// inherited are the paths of descriptors that were open when the program began, as a log to which
// whoever runs the tests has them write.
var inherited = func() map[string]string {
	paths := map[string]string{}
	all, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range all {
		if path, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(path, "/") {
			paths[fd.Name()] = path
		}
	}
	return paths
}()

// descriptors lists what is open on mounts that are not in the host's namespace: what the
// kernel knows of the manager's mounts.
func (s *stand) descriptors() (list []string) {
	s.Helper()
	host := map[string]bool{}
	for _, line := range strings.Split(read(s, "/proc/thread-self/mountinfo"), "\n") {
		id, _, _ := strings.Cut(line, " ")
		host[id] = true
	}
	all, err := os.ReadDir("/proc/self/fd")
	must(s, err)
	for _, fd := range all {
		path, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || path[0] != '/' || path == os.DevNull || inherited[fd.Name()] == path {
			continue // closed meanwhile, or a pipe and the like; input was opened elsewhere
		}
		for _, line := range strings.Split(read(s, "/proc/self/fdinfo/"+fd.Name()), "\n") {
			if key, id, _ := strings.Cut(line, ":"); key == "mnt_id" && !host[strings.TrimSpace(id)] {
				list = append(list, fd.Name()+": "+path)
			}
		}
	}
	return list
}

// work20 is what one of the goroutines does. It keeps some of its handles.
func (s *stand) work20(n *Namespace, m *model, all []*candidate, have map[*Handle]*candidate) (refused int, err error) {
	for range 40 {
		if len(have) > 2 || len(have) > 0 && rand.IntN(3) == 0 {
			for h, c := range have {
				m.give(c)
				h.Release()
				delete(have, h)
				break
			}
			continue
		}
		c := all[rand.IntN(len(all))]
		h, err := s.Acquire(s.ctx, c.spec)
		if errors.Is(err, ErrBusy) && c.upper != "" {
			refused++
			continue
		}
		if errors.Is(err, ErrFull) {
			continue
		}
		if err != nil {
			return refused, err
		}
		have[h] = c
		if err := m.take(c); err != nil {
			return refused, err
		}
		if err := s.use(n, h, c); err != nil {
			return refused, fmt.Errorf("%+v: %w", c.spec, err)
		}
	}
	return refused, nil
}

// use looks whether a handle is of what was asked for, here and in the step namespace.
func (s *stand) use(n *Namespace, h *Handle, c *candidate) error {
	if c.want == "" {
		return nil
	}
	if b, err := os.ReadFile(h.Path() + "/who"); err != nil || string(b) != c.want {
		return fmt.Errorf("%q, %w", b, err)
	}
	if rand.IntN(2) == 0 {
		return nil
	}
	at, err := h.Attach(n, "")
	if err != nil {
		return err
	}
	return n.Do(func() error {
		if b, err := os.ReadFile(at + "/who"); err != nil || string(b) != c.want {
			return fmt.Errorf("in the step namespace: %q, %w", b, err)
		}
		return nil
	})
}

// compare checks the manager's books, and the kernel's, against the model.
func (s *stand) compare(m *model, all []*candidate) {
	s.Helper()
	byKey := map[string]*candidate{}
	for _, c := range all {
		byKey[c.spec.key()] = c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[string]int{}
	devs := map[uint64]string{}
	for e := range s.all {
		if e.refs == 0 && e.idle == nil {
			s.Errorf("%s is neither held nor idle", e.plan)
		}
		if e.idle != nil && e.plan.writable() {
			s.Errorf("%s can be written and idles", e.plan)
		}
		if e.plan.upper != "" || e.plan.kind == "tmpfs" {
			if other := devs[e.master.dev]; other != "" {
				s.Errorf("%s and %s are one file system", e.plan, other)
			}
			devs[e.master.dev] = e.plan.String()
		}
		name := "tmpfs"
		if e.key != "" {
			name = byKey[e.key].name
		}
		if e.refs > 0 {
			held[name] += e.refs
		}
	}
	want := map[string]int{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.held {
		for _, c := range all {
			if c.name == name && c.spec.Type == "tmpfs" {
				name = "tmpfs"
			}
		}
		want[name] += n
	}
	// An overlay of images holds each once, however many hold it; so does an idle one.
	for e := range s.all {
		for _, h := range e.lowers {
			want[byKey[h.entry.key].name]++
		}
	}
	if !maps.Equal(held, want) {
		s.Errorf("held:\n%v\nwant:\n%v", held, want)
	}
	if s.idle.Len() > s.opt2().IdleMax || len(s.all) > s.opt2().MaxMounts {
		s.Errorf("%d idle of %d", s.idle.Len(), len(s.all))
	}
	if fds := s.descriptors(); len(fds) != len(s.all) {
		s.Errorf("%d mounts, and %d descriptors: %.500q", len(s.all), len(fds), fds)
	}
	if k := s.kernelMounts(); len(k) > 0 && len(m.held) == 0 && s.idle.Len() == 0 {
		s.Errorf("nothing is held, and there is %v", k)
	}
}

// kernelMounts lists what is attached below the manager's directory in the step namespace and the
// staging namespace, but for the mark.
func (s *stand) kernelMounts() (points []string) {
	s.Helper()
	for _, n := range []*Namespace{s.kernel.steps, s.kernel.staging} {
		if n == nil {
			continue
		}
		must(s, n.Do(func() error {
			return eachMount(s.kernel.dir+"/", func(m *mountinfo.Mount) {
				if !strings.HasSuffix(m.Point, "/"+markDir) {
					points = append(points, m.Point)
				}
			})
		}))
	}
	return points
}
