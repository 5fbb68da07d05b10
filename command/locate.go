package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
)

// Errors of naming something that is not there.
var (
	errNoBucket = errors.New("no such bucket")
	errNoKey    = errors.New("no such key")
)

// naming is how the command line names buckets and keys.
type naming struct {
	bucketFormat string
	keyFormat    string
}

// addBucketFlag adds the flag that says how buckets are named.
func (n *naming) addBucketFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.bucketFormat, "bucket-format", "ascii-encoded", "how BUCKET is given: "+strings.Join(inputFormats, "|"))
}

// addKeyFlag adds the flag that says how keys are given.
func (n *naming) addKeyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.keyFormat, "parse-format", "ascii-encoded", "how KEY is given: "+strings.Join(inputFormats, "|"))
}

// buckets reads the names of buckets on the command line.
func (n *naming) buckets(args []string) ([][]byte, error) {
	if err := checkFormat("bucket-format", n.bucketFormat, inputFormats); err != nil {
		return nil, err
	}
	path := make([][]byte, len(args))
	for i, s := range args {
		b, err := parseBytes("bucket", s, n.bucketFormat)
		if err != nil {
			return nil, err
		}
		if len(b) == 0 {
			return nil, usagef("a bucket without a name was given")
		}
		path[i] = b
	}
	return path, nil
}

// key reads a key on the command line.
func (n *naming) key(arg string) ([]byte, error) {
	if err := checkFormat("parse-format", n.keyFormat, inputFormats); err != nil {
		return nil, err
	}
	k, err := parseBytes("key", arg, n.keyFormat)
	if err == nil && len(k) == 0 {
		err = usagef("key required")
	}
	return k, err
}

// pathNames writes the names of buckets for JSON.
func pathNames(path [][]byte) []string {
	names := make([]string, len(path))
	for i, b := range path {
		names[i] = show(b)
	}
	return names
}

// pathText writes the names of buckets for people.
func pathText(path [][]byte) string { return strings.Join(pathNames(path), "/") }

// container is a bucket or, with a nil Bucket, the top level of a database.
type container struct {
	tx *holdfast.Tx
	*holdfast.Bucket
}

func (c container) child(name []byte) *holdfast.Bucket {
	if c.Bucket == nil {
		return c.tx.Bucket(name)
	}
	return c.Bucket.Bucket(name)
}

func (c container) create(name []byte) (*holdfast.Bucket, error) {
	if c.Bucket == nil {
		return c.tx.CreateBucket(name)
	}
	return c.CreateBucket(name)
}

func (c container) remove(name []byte) error {
	if c.Bucket == nil {
		return c.tx.DeleteBucket(name)
	}
	return c.DeleteBucket(name)
}

func (c container) cursor() *holdfast.Cursor {
	if c.Bucket == nil {
		return c.tx.Cursor()
	}
	return c.Cursor()
}

// eachBucket calls fn with the name of each bucket in the container.
func (c container) eachBucket(fn func(name []byte) error) error {
	if c.Bucket == nil {
		return eachTop(c.tx, func(name []byte, _ *holdfast.Bucket) error { return fn(name) })
	}
	return c.ForEachBucket(fn)
}

// bucketsFrom calls fn with the names of the buckets from one on, until it returns false.
// It looks at n keys at most, buckets or not.
func (c container) bucketsFrom(from []byte, n int, fn func(name []byte) bool) {
	cursor := c.cursor()
	for k, v := cursor.Seek(from); k != nil && n > 0; k, v = cursor.Next() {
		if v == nil && !fn(k) {
			return
		}
		n--
	}
}

// eachTop calls fn for each top-level bucket. A name there that is no bucket, or
// one that cannot be opened, is damage.
func eachTop(tx *holdfast.Tx, fn func(name []byte, b *holdfast.Bucket) error) error {
	return tx.ForEach(func(name []byte, b *holdfast.Bucket) error {
		if b != nil {
			return fn(name, b)
		}
		if err := tx.Err(); err != nil {
			return err
		}
		return topLevelKey(name)
	})
}

// locate opens the bucket at path, nil for the top level.
func (a *app) locate(file string, tx *holdfast.Tx, path [][]byte) (container, error) {
	at := container{tx: tx}
	for i, name := range path {
		next := at.child(name)
		if next == nil {
			if err := tx.Err(); err != nil {
				return at, err
			}
			return at, a.noBucket(file, at, path[:i+1])
		}
		at.Bucket = next
	}
	return at, nil
}

// maxLooked bounds the keys that are looked at for names like one that does not exist.
const maxLooked = 10_000

// noBucket is the error of a path of which only the last name does not exist.
func (a *app) noBucket(file string, in container, path [][]byte) error {
	wrong := path[len(path)-1]
	e := &fileError{file: file, what: fmt.Sprintf("no bucket %s", pathText(path)), err: errNoBucket}
	if in.Bucket != nil && in.Get(wrong) != nil {
		e.what += "; it is a key"
		return e
	}
	var names []string
	in.bucketsFrom(nil, maxLooked, func(name []byte) bool {
		names = append(names, show(name))
		return true
	})
	list := fmt.Sprintf("list them with: %s buckets %s", a.name(), shellQuote(file))
	if !a.stock || len(path) == 1 {
		for _, b := range path[:len(path)-1] {
			list += " " + shellQuote(show(b))
		}
	}
	near := similar(show(wrong), names)
	switch {
	case len(names) == 0:
		e.next = "there are no buckets at all there"
	case len(near) > 0:
		e.next = fmt.Sprintf("similar: %s; %s", strings.Join(near, ", "), list)
	default:
		e.next = list
	}
	return e
}

// noKey is the error of a key that does not exist in the bucket at path.
func (a *app) noKey(file string, b *holdfast.Bucket, path [][]byte, key []byte) error {
	what := fmt.Sprintf("no key %s in bucket %s", show(key), pathText(path))
	if b.Bucket(key) != nil {
		return &fileError{file: file, what: what + ": it is a bucket", err: errNoKey,
			next: fmt.Sprintf("list its keys with: %s", a.keysLine(file, append(path[:len(path):len(path)], key)))}
	}
	return &fileError{file: file, what: what, err: errNoKey,
		next: fmt.Sprintf("list its keys with: %s", a.keysLine(file, path))}
}

func (a *app) keysLine(file string, path [][]byte) string {
	line := a.name() + " keys " + shellQuote(file)
	hexadecimal := false
	for _, b := range path {
		hexadecimal = hexadecimal || !printable(b)
	}
	for _, b := range path {
		if hexadecimal {
			line += fmt.Sprintf(" %x", b)
		} else {
			line += " " + shellQuote(string(b))
		}
	}
	if hexadecimal {
		line += " --bucket-format hex"
	}
	return line
}
