package step

import (
	"testing"
)

// runtimes runs a test with each runtime.
func runtimes(t *testing.T, f func(*stand)) {
	for name, r := range map[string]Runtime{"native": Native(), "init": nativeInit(), "runc": Runc()} {
		t.Run(name, func(t *testing.T) { f(newStand(t, Options{Runtime: r})) })
	}
}

func TestHitAndMiss(t *testing.T) {
	runtimes(t, func(s *stand) {
		one := sh("base", "echo said; echo made >/file; cat /etc/base")
		first := s.ok(one)
		if first.Hit || string(first.Output) != "said\nbase\n" || first.OutputSize != 10 {
			s.Fatalf("%+v: %s", first, first.Output)
		}
		second := s.ok(one)
		if !second.Hit || string(second.Output) != "said\nbase\n" || second.Snapshot != first.Snapshot {
			s.Fatalf("%+v", second)
		}
		if got := s.read(first.Snapshot, "file"); got != "made\n" {
			s.Fatalf("%q", got)
		}
		if got := s.text(sh(first.Snapshot, "cat /file /etc/base")); got != "made\nbase" {
			s.Fatalf("%q", got)
		}
		s.clean()
	})
}
