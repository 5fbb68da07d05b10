package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A bind of a file system that does not lead to a directory to keep was of the empty directory below it, without an
// error, on kernels before 6.15, which clone mounts only where they are attached: a step was given an empty /home. The
// same was so of images and layers. It is what the caller sees, or it is refused.
func TestSourceElsewhere(t *testing.T) {
	eachKernel(t, func(s *stand) {
		elsewhere := s.TempDir()
		must(s, os.Mkdir(filepath.Join(elsewhere, "below"), 0o755))
		must(s, os.WriteFile(filepath.Join(elsewhere, "below", "who"), []byte("what is covered"), 0o600))
		must(s, os.WriteFile(filepath.Join(elsewhere, "image"), nil, 0o600))
		must(s, unix.Mount("elsewhere", elsewhere, "tmpfs", 0, ""))
		s.Cleanup(func() { must(s, unix.Unmount(elsewhere, unix.MNT_DETACH)) })
		below := filepath.Join(elsewhere, "below")
		must(s, os.Mkdir(below, 0o755))
		must(s, os.WriteFile(filepath.Join(below, "who"), []byte("elsewhere"), 0o600))
		image := s.image(filepath.Join(elsewhere, "image"), "elsewhere")
		for _, c := range []struct {
			name string
			spec Spec
			can  bool
		}{
			{"bind", Spec{Mount: Mount{Type: "bind", Source: below, Options: []string{"bind"}}}, true},
			{"rbind", Spec{Mount: Mount{Type: "bind", Source: elsewhere, Options: []string{"rbind", "ro"}}}, true},
			{"erofs", erofs(image), true},
			{"overlay", overlay([]string{below, s.layer("kept")}), s.kernel.features.has(FeatureCloneDetached) && s.kernel.features.appends()},
		} {
			h, err := s.Acquire(s.ctx, c.spec)
			if err != nil {
				if c.can || !errors.Is(err, errors.ErrUnsupported) {
					s.Errorf("%s: %v", c.name, err)
				}
				continue
			}
			who := "who"
			if c.name == "rbind" {
				who = "below/who"
			}
			if got := s.whoInSteps(h, who); got != "elsewhere" || !c.can {
				s.Errorf("%s: %q; can be made: %t", c.name, got, c.can)
			}
			s.free(h)
		}
	})
}

// A recursive bind lacked what is mounted below its source, without an error, where it was made in the staging
// namespace: a step was given an empty directory. And what was mounted read-only later could be written.
func TestMountedBelow(t *testing.T) {
	eachKernel(t, func(s *stand) {
		mount := func(at string) {
			must(s, os.MkdirAll(at, 0o755))
			must(s, unix.Mount("below", at, "tmpfs", 0, ""))
			s.Cleanup(func() { must(s, unix.Unmount(at, 0)) })
			must(s, os.WriteFile(filepath.Join(at, "who"), []byte("below"), 0o600))
		}
		a, b, c := s.layer("a"), s.layer("b c"), s.layer("c")
		mount(filepath.Join(a, "early"))
		n, err := s.StepNamespace() // and so what can be the staging namespace
		must(s, err)
		must(s, n.Do(func() error { return nil }))
		mount(filepath.Join(b, "d e"))
		must(s, unix.Mount(c, c, "", unix.MS_BIND, ""))
		s.Cleanup(func() { must(s, unix.Unmount(c, 0)) })
		must(s, unix.Mount("", c, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		must(s, os.Symlink(b, filepath.Join(s.dir, "link")))
		for _, source := range []string{a, b, filepath.Join(s.dir, "link"), c} {
			h := s.get(bind(source, "rbind"))
			who := map[string]string{a: "early/who", c: "who"}[source]
			if who == "" {
				who = "d e/who"
			}
			if got, err := os.ReadFile(filepath.Join(h.Path(), who)); string(got) != "below" && source != c || err != nil {
				s.Errorf("%s: %q, %v", source, got, err)
			}
			if err := os.WriteFile(filepath.Join(h.Path(), "new"), nil, 0o600); source == c && !errors.Is(err, unix.EROFS) {
				s.Errorf("%s, which is read-only, can be written: %v", source, err)
			}
			s.free(h)
		}
		s.free(s.get(bind(s.layer("plain"), "rbind")))
	})
}

// A relative source was looked for below the root directory where the mount was made in the staging namespace: "etc"
// was the machine's. And one that was idle was given when the working directory was another.
func TestRelativeSource(t *testing.T) {
	eachKernel(t, func(s *stand) {
		for _, name := range []string{"a", "b"} {
			s.layer(name + "/etc")
			s.image(filepath.Join(s.dir, name, "image"), name)
		}
		for _, name := range []string{"a", "b"} {
			s.TB.(*testing.T).Chdir(filepath.Join(s.dir, name))
			for _, c := range []struct {
				spec Spec
				want string
			}{{bind("etc"), name + "/etc"}, {bind("./etc", "rbind"), name + "/etc"}, {bind("../" + name + "/etc"), name + "/etc"}, {erofs("image"), name}} {
				h := s.get(c.spec)
				if got, err := os.ReadFile(h.Path() + "/who"); string(got) != c.want {
					s.Errorf("%s is %q, %v; want %q", c.spec.Source, got, err, c.want)
				}
				h.Release()
			}
		}
	})
}

// Kernels before 6.13 show an overlay's layers as they were given, and these were numbers of descriptors: top saw no
// steps on them, and with damaged records what a killed worker's processes held was not found.
func TestLayersAreShown(t *testing.T) {
	dir := t.TempDir() // without the commas that names of ways have
	eachKernelWith(t, Options{Keep: []string{dir}}, func(s *stand) {
		n, err := s.StepNamespace()
		must(s, err)
		root, options := layersOf(dir, 0)
		for _, d := range []string{root, options[0][len("upperdir="):], options[1][len("workdir="):]} {
			must(s, os.MkdirAll(d, 0o755))
		}
		for _, c := range []struct{ options, want []string }{
			{options, []string{options[0]}},
			{nil, []string{"lowerdir=" + root + ":", "lowerdir+=" + root + ","}},
		} {
			h := s.get(overlay([]string{root, s.layer("below")}, c.options...))
			at, err := h.Attach(n, "")
			must(s, err)
			var info string
			must(s, n.Do(func() error {
				b, err := os.ReadFile("/proc/thread-self/mountinfo")
				info = string(b)
				return err
			}))
			found := false
			for line := range strings.Lines(info) {
				if strings.Contains(line, " "+at+" ") {
					for _, want := range c.want {
						found = found || strings.Contains(line, want)
					}
				}
			}
			if !found {
				s.Errorf("none of %q stands in\n%s", c.want, info)
			}
			s.free(h)
		}
	})
}
