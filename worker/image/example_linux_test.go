package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	copydriver "holdfast/worker/snapshot/driver/copy"
)

// An archive becomes an image, which is imported once.
func ExampleImportArchive() {
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

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "greeting", Size: 5, Mode: 0o644}); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Write([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	for _, name := range []string{"image", "again"} {
		result, err := image.ImportArchive(ctx, names, bytes.NewReader(archive.Bytes()), image.Options{Name: name})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Name, len(result.Layers), result.Layers[0].Existed)
	}

	// Output:
	// image 1 false
	// again 1 true
}
