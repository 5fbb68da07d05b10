package command_test

import (
	"strings"
	"testing"
)

// "blob rm --dry-run" of a blob that was named more often than it has users said that what is left are leases, where there was none.
func TestBlobRmMoreOften(t *testing.T) {
	_, b := makeExchange(t)
	short := digestOf([]byte("a short one"))
	r := run(t, strings.Fields("blob rm blobs.db store --dry-run"+strings.Repeat(" "+short, 3))...)
	wantIn(t, r, 1, "", " has no user that could be taken; nothing was removed\n")
	must(t, "blob", "push", "blobs.db", "store", short, digestOf(b), "--to", "to.db", "--create")
	must(t, "blob", "put", "to.db", "store", "short")
	ref := refOf(t, "to.db", "store", len(b))
	for _, dry := range []string{"", " --dry-run"} { // one user, and a lease
		wantIn(t, run(t, strings.Fields("blob rm to.db store "+short+" "+short+dry)...), 1, "", "has no user that could be taken but leases; nothing was removed")
		wantIn(t, run(t, strings.Fields("blob rm to.db store "+short+" "+ref+dry)...), 1, "", "has no user that could be taken but leases; nothing was removed")
	}
}
