package snapshot_test

import (
	"context"
	"slices"
	"testing"

	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/copy"
)

// Pages have all snapshots of the namespace once, in order, and none of a namespace whose name begins with the same letters.
func TestPage(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir(), snapshot.Options{Driver: copy.New()})
	want := []string{"a", "a/b", "a\x01", "b", "z"}
	for _, namespace := range []string{"one", "one-more"} {
		names, err := s.Namespace(namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			if _, err := names.Prepare(ctx, name, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := s.Namespace("one")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	for limit := 1; limit < 7; limit++ {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := names.Page(ctx, after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("%d of at most %d: %v", len(page), limit, err)
			}
			if len(page) == 0 {
				break
			}
			for _, info := range page {
				got = append(got, info.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}
