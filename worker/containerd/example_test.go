package containerd_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"holdfast/worker/containerd"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// A client's namespace is a snapshotter.
func ExampleNew() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)

	ctx := context.Background()
	store, err := snapshot.Open(root, snapshot.Options{Driver: copydriver.New()})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	names, err := store.ClientNamespace("containerd")
	if err != nil {
		log.Fatal(err)
	}

	s := containerd.New(names)
	defer s.Close()
	if _, err := s.Prepare(ctx, "work", ""); err != nil {
		log.Fatal(err)
	}
	if err := s.Commit(ctx, "layer", "work"); err != nil {
		log.Fatal(err)
	}
	info, err := s.Stat(ctx, "layer")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Name, info.Kind)

	// Output: layer Committed
}
