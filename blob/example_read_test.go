package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"holdfast"
	"holdfast/blob"
)

func openBlobs(tx *holdfast.Tx) (*blob.Store, error) { return blob.Open(tx.Bucket([]byte("blobs"))) }

// http.ServeContent serves ranges of a blob, with no transaction open while the client reads. The digest is the entity tag: equal
// tags are equal bytes.
func ExampleOpenReader() {
	db, remove := newDB()
	defer remove()
	var ref blob.Ref
	inStore(db, func(store *blob.Store) (err error) {
		ref, err = store.Put(bytes.Repeat([]byte("0123456789"), 100_000))
		return err
	})

	serve := func(w http.ResponseWriter, r *http.Request) {
		content, err := blob.OpenReader(r.Context(), db, openBlobs, ref)
		if errors.Is(err, blob.ErrNotFound) {
			http.NotFound(w, r)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer content.Close()
		w.Header().Set("ETag", `"`+ref.String()+`"`)
		http.ServeContent(w, r, "", time.Time{}, content)
	}
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.Header.Set("Range", "bytes=500005-500009")
	answer := httptest.NewRecorder()
	serve(answer, request)
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Code, answer.Header().Get("Content-Range"), string(body))
	// Output:
	// 206 bytes 500005-500009/1000000 56789
}

// put stores a blob, and gives the value of a row that names it.
func put(store *blob.Store, content string) (row []byte, err error) {
	ref, err := store.Put([]byte(content))
	if err != nil {
		return nil, err
	}
	return ref.MarshalBinary()
}

// Rows that name blobs are a file system, for fs.WalkDir, templates, or http.FileServerFS.
func ExampleFS() {
	db, remove := newDB()
	defer remove()
	err := db.Update(func(tx *holdfast.Tx) error {
		store, err := openBlobs(tx)
		if err != nil {
			return err
		}
		rows, err := tx.CreateBucket([]byte("site"))
		for _, name := range []string{"index.html", "img/cat.png", "img/dog.png"} {
			var row []byte
			if err == nil {
				row, err = put(store, "content of "+name)
			}
			if err == nil {
				err = rows.Put([]byte(name), row)
			}
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	site := blob.FS(context.Background(), db, openBlobs, func(tx *holdfast.Tx) (*holdfast.Bucket, error) {
		return tx.Bucket([]byte("site")), nil
	})
	images, err := fs.Glob(site, "img/*.png")
	if err != nil {
		log.Fatal(err)
	}
	content, err := fs.ReadFile(site, images[1])
	fmt.Printf("%s: %s, %v\n", images, content, err)
	// Output:
	// [img/cat.png img/dog.png]: content of img/dog.png, <nil>
}

// An upload whose client has gone is given up.
func ExampleWithContext() {
	db, remove := newDB()
	defer remove()
	inStore(db, func(store *blob.Store) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // as that of a request
		w := store.Writer()
		_, err := w.ReadFrom(blob.WithContext(ctx, strings.NewReader("content")))
		fmt.Println(err)
		return nil
	})
	// Output:
	// writing a blob: context canceled
}
