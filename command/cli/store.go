package cli

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
)

// StoreName is how the command line names a store.
type StoreName struct{ Naming }

// AddStoreFlag adds the flag that says how the names in the path are given.
func (n *StoreName) AddStoreFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.BucketFormat, "bucket-format", "ascii-encoded", "how the names in STORE are given: "+strings.Join(InputFormats, "|"))
}

// Path reads the path of a bucket in one argument.
func (n *StoreName) Path(arg string) ([][]byte, error) {
	if n.BucketFormat != "ascii-encoded" {
		return n.Buckets(strings.Split(arg, "/"))
	}
	return SplitPath([]byte(arg))
}

// OpenStore opens the store in a bucket, with the key that is given.
func (a *App) OpenStore(file string, in Container, path [][]byte) (*blob.Store, error) {
	key, err := a.BlobKey()
	if err != nil {
		return nil, err
	}
	s, err := blob.OpenEncrypted(in.Bucket, key)
	switch {
	case errors.Is(err, blob.ErrKey):
		return nil, a.wrongKey(file, in, path, err)
	case !errors.Is(err, blob.ErrNotStore):
		return s, err
	}
	e := &FileError{File: file, What: fmt.Sprintf("bucket %s is not a store of blobs", BriefPath(path)), Err: err}
	names := StoresIn(in.Tx, MaxNamed)
	if len(names) == 0 {
		e.Next = fmt.Sprintf("there is none in it; %s blob put --create makes one in a new bucket", a.Name())
		return nil, e
	}
	var texts []string
	for _, path := range names {
		texts = append(texts, storeText(path))
	}
	e.Next = ThereIs(texts)
	return nil, e
}

// ThereIs says which things there are.
func ThereIs(names []string) string {
	if len(names) > 1 {
		return "there are " + strings.Join(names, " and ")
	}
	return "there is " + strings.Join(names, " and ")
}

// NotInside is an error if the bucket at path would be one in a store, where nothing but its own can be.
func (a *App) NotInside(file string, tx *holdfast.Tx, path [][]byte) error {
	at := Container{Tx: tx}
	for i, name := range path[:len(path)-1] {
		if at.Bucket = at.Child(name); at.Bucket == nil {
			break
		}
		if blob.IsStore(at.Bucket) {
			return &FileError{File: file, What: fmt.Sprintf("bucket %s is a store of blobs, in which there can be no other bucket", BriefPath(path[:i+1])), Next: "give another bucket", Err: ErrNoBucket}
		}
	}
	return tx.Err()
}

// NotInStore is an error if the bucket at path is a store of blobs or a part of one: whatever else is put there or
// deleted damages the store. next says what does it.
func (a *App) NotInStore(file string, tx *holdfast.Tx, path [][]byte, next string) error {
	at := Container{Tx: tx}
	for i, name := range path {
		if at.Bucket = at.Child(name); at.Bucket == nil {
			break
		}
		if blob.IsStore(at.Bucket) {
			what := "bucket " + BriefPath(path[:i+1]) + " is a store of blobs, whose keys are not to be changed one by one"
			return &FileError{File: file, What: what, Next: next, Err: ErrNoBucket}
		}
	}
	return tx.Err()
}

// WithSlash adds to the error of a bucket that does not exist how to give one that has a
// slash in its name.
func WithSlash(tx *holdfast.Tx, path [][]byte, err error) error {
	var e *FileError
	whole := bytes.Join(path, []byte("/"))
	if len(path) > 1 && errors.As(err, &e) && errors.Is(err, ErrNoBucket) && tx.Bucket(whole) != nil {
		e.Next = fmt.Sprintf("a bucket has this name with the slash in it: give it as %s", ShellWord(PathName(whole)))
	}
	return err
}

// StoresIn are the paths of stores at the top level and one level below it, n of them at most.
func StoresIn(tx *holdfast.Tx, n int) (paths [][][]byte) {
	add := func(b *holdfast.Bucket, path ...[]byte) bool {
		if b != nil && blob.IsStore(b) {
			paths = append(paths, path)
			return true
		}
		return false
	}
	look := maxLooked
	Container{Tx: tx}.bucketsFrom(nil, look, func(name []byte) bool {
		b := tx.Bucket(name)
		if name = bytes.Clone(name); b == nil || add(b, name) {
			return len(paths) < n
		}
		Container{tx, b}.bucketsFrom(nil, MaxCompleted, func(inner []byte) bool {
			look--
			add(b.Bucket(inner), name, bytes.Clone(inner))
			return look > 0 && len(paths) < n
		})
		return look > 0 && len(paths) < n
	})
	return paths
}

// StoreLine is the command line of a command on the store at path.
func (a *App) StoreLine(name, file string, path [][]byte) string {
	return fmt.Sprintf("%s blob %s %s %s", a.Name(), name, ShellWord(file), storeText(path))
}

// storeText writes the path of a store as the command line takes it.
func storeText(path [][]byte) string {
	if !PlainPath(path) {
		return HexPath(path) + " --bucket-format hex"
	}
	return ShellWord(PathText(path))
}

// PlainPath tells whether the path can be given as it is.
func PlainPath(path [][]byte) bool {
	return !slices.ContainsFunc(path, func(name []byte) bool { return !Printable(name) || bytes.Contains(name, []byte("/")) })
}

// HexPath writes the path as it is taken with --bucket-format hex.
func HexPath(path [][]byte) string {
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = hex.EncodeToString(name)
	}
	return strings.Join(names, "/")
}
