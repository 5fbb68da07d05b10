package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A bind of a file system that does not lead to a directory to keep was of the empty directory below it, without an error, on kernels
// before 6.15, which clone mounts only where they are attached: a step was given an empty /home. The same was so of images and layers.
// It is what the caller sees, or it is refused.
func TestSourceElsewhere(t *testing.T) {
	eachWay(t, func(s *stand) {
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
		ways := s.kernel.ways
		for _, c := range []struct {
			name string
			spec Spec
			can  bool
		}{
			{"bind", Spec{Mount: Mount{Type: "bind", Source: below, Options: []string{"bind"}}}, ways.clones() && ways.has(CallMountSetattr)},
			{"rbind", Spec{Mount: Mount{Type: "bind", Source: elsewhere, Options: []string{"rbind", "ro"}}}, ways.clones() && ways.has(CallMountSetattr)},
			{"erofs", erofs(image), ways.configures()},
			{"overlay", overlay([]string{below, s.layer("kept")}), ways.detached() && ways.appends()},
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
			if got := s.whoInNursery(h, who); got != "elsewhere" || !c.can {
				s.Errorf("%s: %q; can be made: %t", c.name, got, c.can)
			}
			s.free(h)
		}
	})
}
