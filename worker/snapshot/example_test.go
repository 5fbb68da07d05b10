package snapshot_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// A snapshot is made on another one, written, and committed.
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

	// With this driver what is to be mounted is a directory, which is written in place.
	mounts, err := names.Prepare(ctx, "work", "")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mounts[0].Source, "greeting"), []byte("hello"), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := names.Commit(ctx, "image", "work"); err != nil {
		log.Fatal(err)
	}

	// The next one begins with the content of the first.
	mounts, err = names.Prepare(ctx, "more work", "image")
	if err != nil {
		log.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(mounts[0].Source, "greeting"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", b)

	// A parent stays while something stands on it.
	err = names.Remove(ctx, "image")
	fmt.Println(err)

	// Output:
	// hello
	// remove snapshot "image": snapshot is in use: it has children
}
