package prune_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// A policy keeps two snapshots of three: the longest unused goes.
func Example() {
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
	names, err := store.Namespace("local")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"first", "second", "third"} {
		if _, err := names.Prepare(ctx, "work", ""); err != nil {
			log.Fatal(err)
		}
		if err := names.Commit(ctx, name, "work"); err != nil {
			log.Fatal(err)
		}
	}

	config, err := prune.Parse("[[policy]]\nmaxSnapshots = 2\n")
	if err != nil {
		log.Fatal(err)
	}
	pruner, err := prune.New(store, prune.Options{Config: config})
	if err != nil {
		log.Fatal(err)
	}
	_, err = pruner.DryRun(ctx, func(r *prune.Removal) bool {
		fmt.Println(r.Name, "would go:", r.Reason(pruner.Policies()))
		return true
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := pruner.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("removed", result.Snapshots)

	// Output:
	// first would go: policy 1: 3 snapshots, maxSnapshots = 2
	// removed 1
}
