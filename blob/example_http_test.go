package blob_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"holdfast"
	"holdfast/blob"
)

// A Reader is an io.ReadSeeker, so http.ServeContent serves ranges of a blob. The digest is its entity tag: equal tags are equal bytes.
// The transaction is open as long as the client reads; a limit for that is the server's WriteTimeout.
func ExampleReader_serveContent() {
	db, remove := newDB()
	defer remove()
	var ref blob.Ref
	inStore(db, func(store *blob.Store) (err error) {
		ref, err = store.Put(bytes.Repeat([]byte("0123456789"), 100_000))
		return err
	})

	serve := func(w http.ResponseWriter, r *http.Request) {
		err := db.View(func(tx *holdfast.Tx) error {
			store, err := blob.Open(tx.Bucket([]byte("blobs")))
			if err != nil {
				return err
			}
			content, err := store.Reader(ref)
			if err != nil {
				return err
			}
			w.Header().Set("ETag", `"`+ref.String()+`"`)
			http.ServeContent(w, r, "", time.Time{}, content)
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
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
