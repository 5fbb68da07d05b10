package step

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A canceled step left a directory in ROOT/runc/state: runc had kept it, and could not delete it.
func TestRuncCannotDelete(t *testing.T) {
	needRoot(t)
	real, err := exec.LookPath("runc")
	must(t, err)
	program := filepath.Join(t.TempDir(), "runc")
	// runc --root DIR ... run ... NAME
	must(t, os.WriteFile(program, fmt.Appendf(nil, `#!/bin/sh
case " $* " in *" delete "*) exit 1;; esac
%s "$@"
code=$?
for name; do :; done
mkdir -p "$2/$name" && echo "{" >"$2/$name/state.json"
exit $code
`, real), 0o755))
	s := newStand(t, Options{Runtime: runc{program: program}})
	s.ok(sh("base", "true"))
	var failed *Failure
	if _, err := s.Run(s.ctx, sh("base", "exit 3"), nil); !errors.As(err, &failed) || failed.Code != 3 {
		t.Error(err)
	}
	s.clean()
}
