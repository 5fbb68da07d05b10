package command

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
)

const blobHelp = `Store files of any size in a database, and get them out again.

A store is a bucket. It keeps each blob in pieces that are named by their digests, so what is there
already is not stored again, and all that is read is verified.

STORE is the path of the bucket, with a / between the names. REF names a blob: by its digest, as
OCI writes it (sha256:...), by the reference that put prints (sha256-tree:...), by seven or more of the
first hexadecimal digits of either, by the bytes of a reference in hexadecimal, as "get" prints
them of a row, or by the row that "put --into" gave the reference to: BUCKET/KEY.`

func (a *app) newBlob() *cobra.Command {
	cmd := group("blob", "Store files of any size, and get them out again", blobHelp)
	cmd.AddCommand(a.newBlobPut(), a.newBlobGet(), a.newBlobCat(), a.newBlobLs(), a.newBlobRm(),
		a.newBlobStat(), a.newBlobDiff(), a.newBlobCheck(), a.newBlobGC())
	for _, child := range cmd.Commands() {
		a.completeStore(child)
	}
	return cmd
}

// storeName is how the command line names a store.
type storeName struct{ naming }

// addStoreFlag adds the flag that says how the names in the path are given.
func (n *storeName) addStoreFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.bucketFormat, "bucket-format", "ascii-encoded", "how the names in STORE are given: "+strings.Join(inputFormats, "|"))
}

// path reads the path of a bucket in one argument.
func (n *storeName) path(arg string) ([][]byte, error) {
	if n.bucketFormat != "ascii-encoded" {
		return n.buckets(strings.Split(arg, "/"))
	}
	return splitPath([]byte(arg))
}

// fileAndStore are the arguments that all commands on blobs begin with.
func (c *call) fileAndStore(n storeName) (file string, path [][]byte, err error) {
	path, err = n.path(c.args[1])
	return c.args[0], path, err
}

// store opens the store in the bucket at path.
func (a *app) store(file string, tx *holdfast.Tx, path [][]byte) (*blob.Store, error) {
	in, err := a.locate(file, tx, path)
	if err != nil {
		return nil, withSlash(tx, path, err)
	}
	return a.openStore(file, in, path)
}

func (a *app) openStore(file string, in container, path [][]byte) (*blob.Store, error) {
	s, err := blob.Open(in.Bucket)
	if !errors.Is(err, blob.ErrNotStore) {
		return s, err
	}
	e := &fileError{file: file, what: fmt.Sprintf("bucket %s is no store of blobs", briefPath(path)), err: err}
	names := storesIn(in.tx, maxNamed)
	if len(names) == 0 {
		e.next = fmt.Sprintf("there is none in it; %s blob put --create makes one in a new bucket", a.name())
		return nil, e
	}
	var texts []string
	for _, path := range names {
		texts = append(texts, storeText(path))
	}
	e.next = thereIs(texts)
	return nil, e
}

// thereIs says which things there are.
func thereIs(names []string) string {
	if len(names) > 1 {
		return "there are " + strings.Join(names, " and ")
	}
	return "there is " + strings.Join(names, " and ")
}

// notInside is an error if the bucket at path would be one in a store, where nothing but its own can be.
func (a *app) notInside(file string, tx *holdfast.Tx, path [][]byte) error {
	at := container{tx: tx}
	for i, name := range path[:len(path)-1] {
		if at.Bucket = at.child(name); at.Bucket == nil {
			break
		}
		if blob.IsStore(at.Bucket) {
			return &fileError{file: file, what: fmt.Sprintf("bucket %s is a store of blobs, in which there can be no other bucket", briefPath(path[:i+1])), next: "give another bucket", err: errNoBucket}
		}
	}
	return tx.Err()
}

// notInStore is an error if the bucket at path is a store of blobs or a part of one: whatever else is put there or deleted
// damages the store. next says what does it.
func (a *app) notInStore(file string, tx *holdfast.Tx, path [][]byte, next string) error {
	at := container{tx: tx}
	for i, name := range path {
		if at.Bucket = at.child(name); at.Bucket == nil {
			break
		}
		if blob.IsStore(at.Bucket) {
			what := "bucket " + briefPath(path[:i+1]) + " is a store of blobs, whose keys are not to be changed one by one"
			return &fileError{file: file, what: what, next: next, err: errNoBucket}
		}
	}
	return tx.Err()
}

// withSlash adds to the error of a bucket that does not exist how to give one that has a
// slash in its name.
func withSlash(tx *holdfast.Tx, path [][]byte, err error) error {
	var e *fileError
	whole := bytes.Join(path, []byte("/"))
	if len(path) > 1 && errors.As(err, &e) && errors.Is(err, errNoBucket) && tx.Bucket(whole) != nil {
		e.next = fmt.Sprintf("a bucket has this name with the slash in it: give it as %s", shellQuote(pathName(whole)))
	}
	return err
}

// storesIn are the paths of stores at the top level and one level below it, n of them at most.
func storesIn(tx *holdfast.Tx, n int) (paths [][][]byte) {
	add := func(b *holdfast.Bucket, path ...[]byte) bool {
		if b != nil && blob.IsStore(b) {
			paths = append(paths, path)
			return true
		}
		return false
	}
	look := maxLooked
	container{tx: tx}.bucketsFrom(nil, look, func(name []byte) bool {
		b := tx.Bucket(name)
		if name = bytes.Clone(name); b == nil || add(b, name) {
			return len(paths) < n
		}
		container{tx, b}.bucketsFrom(nil, maxCompleted, func(inner []byte) bool {
			look--
			add(b.Bucket(inner), name, bytes.Clone(inner))
			return look > 0 && len(paths) < n
		})
		return look > 0 && len(paths) < n
	})
	return paths
}

// viewStore opens the database for reading, and the store that the arguments name in it.
func (c *call) viewStore(n storeName, fn func(*database, *blobs) error) error {
	file, path, err := c.fileAndStore(n)
	if err != nil {
		return err
	}
	return c.explainBlob(file, c.view(file, false, func(d *database, tx *holdfast.Tx) error {
		s, err := c.store(file, tx, path)
		if err != nil {
			return err
		}
		return fn(d, &blobs{Store: s, call: c, file: file, path: path, tx: tx})
	}))
}

// lookStore is an error if the file has no such store. Opening it for writing can change it: that is left
// to what can succeed.
func (c *call) lookStore(file string, path [][]byte) error {
	return c.explainBlob(file, c.view(file, false, func(_ *database, tx *holdfast.Tx) error {
		_, err := c.store(file, tx, path)
		return err
	}))
}

// blobs is an open store with what the command knows of it.
type blobs struct {
	*blob.Store
	call *call
	file string
	path [][]byte
	tx   *holdfast.Tx // nil: rows are not looked at
}

// explainBlob says the next step of an error of a store that is damaged.
func (c *call) explainBlob(file string, err error) error {
	var corrupt *blob.CorruptError
	if err == nil || !errors.As(err, &corrupt) && !errors.Is(err, blob.ErrMissing) && !errors.Is(err, blob.ErrCorrupt) {
		return c.explain(file, err)
	}
	var known *fileError
	what := err.Error()
	if errors.As(err, &known) {
		if what = known.what; known.next != "" {
			return err
		}
	}
	line := c.name() + " blob check --data " + shellQuote(file)
	if len(c.args) > 1 {
		line += " " + shellQuote(c.args[1])
	}
	return &fileError{file: file, what: "damaged: " + what, next: "all that is wrong shows: " + line, err: err}
}

// parseDigest reads a SHA-256 digest, as OCI writes it or without the name of the algorithm.
func parseDigest(s string) (digest [32]byte, err error) {
	text := strings.TrimPrefix(s, "sha256:")
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(digest) {
		return digest, usagef("%q is no SHA-256 digest: sha256: and 64 hexadecimal digits", s)
	}
	return [32]byte(b), nil
}
