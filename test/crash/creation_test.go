package crash

import (
	"fmt"
	"testing"

	"holdfast/test/soak"
)

// A creation failed behind its metas, and cut the file off again. A power failure then
// left the metas and the old size, and zeros in place of the other pages: the file was
// refused as damaged, though nothing had ever been stored in it.
func TestFailedCreation(t *testing.T) {
	tally := &soak.Tally{}
	for fail := 1; fail <= 6; fail++ {
		for seed := 1; seed <= 20; seed++ {
			script, err := Parse(fmt.Sprintf("pagesize 4096\nopen seed=%d fail=%d\nopen seed=%d\ntx seed=%d\n put b1 k1 n=3 9c\n", seed, fail, seed, seed))
			if err != nil {
				t.Fatal(err)
			}
			if fail := runScript(t.TempDir(), script, tally); fail != nil {
				t.Fatalf("%v\n\nin this script (HOLDFAST_SCRIPT=file runs it again):\n\n%s", fail, script)
			}
		}
	}
	for feature, least := range map[string]int{"failure in Open": 50, "truncation": 50, "creation": 500} {
		if n := tally.Get(feature); n < least {
			t.Errorf("%s: %d, want %d at least", feature, n, least)
		}
	}
	t.Log(tally)
}
