package crash

import (
	"testing"
)

// everyStep is a script with every kind of step and of edit.
const everyStep = `
# a comment
pagesize 1024
open seed=1 cut=2 disk=3
open seed=2 nofreelistsync
tx seed=3
  put b0/n1 k5 n=30 40x
  bucket b1
  seq b0/n1
reader
tx seed=4
  del b0/n1 k5 n=12
  drop b1
  put b2 k1 n=1 3000y
  append a0 k0 n=2 5000y
  append a0 k2 n=5 50y
tx seed=5 together
  put b1 k1 n=5 10a
tx together rollback
  put b1 k2 n=5 10b
tx together
  put b2 k3 n=5 10c
release
nosync nosync
tx seed=6
  put b0 k1 n=40 30d
sync
tx seed=6
  put b0 k1 n=40 30e
sync seed=6 failsync=1
nosync nosync
tx seed=6
  put b0 k1 n=40 30f
sync seed=7 cut=1
tx seed=7
  put b0 k7 n=40 30e
nosync
tx seed=8 fail=2
  put b0 k7 n=40 30f
tx seed=9 fail=3
  put b0 k7 n=40 30g
tx seed=9 failsync=2 die
  put b0 k7 n=40 30g
tx seed=10 kill=2
  put b0 k7 n=40 30h
tx seed=11 cut=2 disk=4
  put b0 k7 n=40 30i
stock nofreelistsync
  put b0 k9 n=20 30j
open seed=12
tx seed=13
  put b0 k7 n=40 30k
close seed=13
open seed=13 ahead
tx seed=13
  put b0 k1 n=80 500k
tx seed=13
  del b0 k1 n=70
reader
vacuum seed=13 pages=2
release during
reader during
tx seed=13 during
  put b0 k7 n=40 30l
sync during
vacuum seed=13 pages=1 cut=30 disk=3
tx during
  put b0 k7 n=40 300m
open seed=13 ahead
vacuum seed=13 pages=1 together
tx during
  put b0 k8 n=40 300n
tx during
  del b0 k7 n=40
close seed=14 cut=1 disk=2
open seed=15
close seed=16
`

// TestScriptText prints scripts and reads them again.
func TestScriptText(t *testing.T) {
	scripts := []Script{}
	for seed := range uint64(200) {
		scripts = append(scripts, generate(seed))
	}
	all, err := Parse(everyStep)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(scripts, all) {
		text := s.String()
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if again.String() != text {
			t.Fatalf("printed and read:\n%s\nbecame\n%s", text, again)
		}
	}
	for _, bad := range []string{"", "pagesize 1024\nput b0 k1 n=1 1a", "pagesize 1024\nopen what", "pagesize 1024\nopen cut=x",
		"pagesize 1024\ntx\n put b0", "pagesize 1024\ntx\n turn b0", "pagesize", "pagesize 1024\nopen where=3"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is a script", bad)
		}
	}
}
