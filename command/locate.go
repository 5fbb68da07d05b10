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
	var path [][]byte
	for _, s := range args {
		parts := []string{s}
		if n.bucketFormat == "hex" {
			parts = strings.Split(s, "/")
		}
		for _, part := range parts {
			b, err := parseBytes("bucket", part, n.bucketFormat)
			if err != nil {
				return nil, err
			}
			if len(b) == 0 {
				return nil, usagef("a bucket without a name was given")
			}
			path = append(path, b)
		}
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

// pathText writes the names of buckets for people, with a / between them, as the command line takes them.
func pathText(path [][]byte) string {
	names := make([]string, len(path))
	for i, b := range path {
		names[i] = pathName(b)
	}
	return strings.Join(names, "/")
}

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
// It looks at n keys at most, buckets or not, and at no more bytes than the file has: on a damaged page names may share theirs.
func (c container) bucketsFrom(from []byte, n int, fn func(name []byte) bool) {
	cursor, left := c.cursor(), c.tx.Size()
	for k, v := cursor.Seek(from); k != nil && n > 0; k, v = cursor.Next() {
		if left -= int64(len(k)); left < 0 || v == nil && !fn(k) {
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

// find is locate of a path as the command line has it, in the way n says. What it gives is a name if there is a bucket
// of that name, and otherwise a path, with a / between the names: path becomes that of single names.
func (n *naming) find(a *app, file string, tx *holdfast.Tx, path *[][]byte) (in container, err error) {
	if *path, err = n.singleNames(a, tx, *path); err != nil {
		return in, err
	}
	return a.locate(file, tx, *path)
}

// singleNames divides what path has into names of buckets.
func (n *naming) singleNames(a *app, tx *holdfast.Tx, path [][]byte) (names [][]byte, err error) {
	if a.stock || n.bucketFormat == "hex" { // there a bucket is given by its name
		return path, nil
	}
	at := &container{tx: tx} // nil where there is nothing any more
	if tx == nil {
		at = nil
	}
	enter := func(name []byte) {
		names = append(names, name)
		if at == nil {
			return
		}
		if next := at.child(name); next != nil {
			at.Bucket = next
		} else {
			at = nil
		}
	}
	for _, given := range path {
		if at != nil && at.child(given) != nil {
			enter(given)
			continue
		}
		parts, err := splitPath(given)
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			enter(part)
		}
	}
	return names, nil
}

// namesInFile is singleNames in a file, which is there or not.
func (n *naming) namesInFile(a *app, file string, path [][]byte, there bool) (names [][]byte, err error) {
	if !there || len(path) == 0 {
		return n.singleNames(a, nil, path)
	}
	err = a.view(file, false, func(_ *database, tx *holdfast.Tx) (err error) {
		names, err = n.singleNames(a, tx, path)
		return err
	})
	return names, err
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
	e := &fileError{file: file, what: fmt.Sprintf("no bucket %s", briefPath(path)), err: errNoBucket}
	if in.Bucket != nil && in.Get(wrong) != nil {
		e.what += "; it is a key"
		return e
	}
	var names nameList
	in.bucketsFrom(nil, maxLooked, names.add)
	above := path[:len(path)-1]
	list := "list them with: " + a.lineWith("buckets", file, above)
	if a.stock && len(above) > 0 { // its buckets are those of the top level only
		list = "list what is there with: " + a.lineWith("keys", file, above)
	}
	if len(names.text) == 0 {
		e.next = "there are no buckets at all there"
		return e
	}
	e.next = names.similarTo(wrong, "--bucket-format hex") + list
	return e
}

// nameList are names that somebody who wrote another one may have meant.
type nameList struct {
	text        []string
	hexadecimal map[string]bool // those that are no text
}

func (l *nameList) add(name []byte) bool {
	text := brief(name)
	if !printable(name) {
		if l.hexadecimal == nil {
			l.hexadecimal = map[string]bool{}
		}
		l.hexadecimal[text] = true
	}
	l.text = append(l.text, text)
	return true
}

// similarTo says which are like wrong, for messages. asHex is the flag with which wrong is
// taken as hexadecimal, if there is one.
func (l *nameList) similarTo(wrong []byte, asHex string) string {
	if asHex != "" && l.hexadecimal[string(wrong)] {
		return fmt.Sprintf("it is there in hexadecimal: give it with %s; ", asHex)
	}
	near := similar(show(wrong), l.text)
	for i, name := range near {
		if l.hexadecimal[name] && printable(wrong) {
			near[i] += " (hexadecimal)"
		}
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("similar: %s; ", strings.Join(near, ", "))
}

// noKey is the error of a key that does not exist in the bucket at path.
func (a *app) noKey(file string, b *holdfast.Bucket, path [][]byte, key []byte) error {
	e := &fileError{file: file, what: fmt.Sprintf("no key %s in bucket %s", brief(key), briefPath(path)), err: errNoKey}
	if b.Bucket(key) != nil {
		e.what += ": it is a bucket"
		e.next = "list its keys with: " + a.lineWith("keys", file, append(path[:len(path):len(path)], key))
		return e
	}
	names := keysNear(b, key)
	e.next = names.similarTo(key, "--parse-format hex") + "list its keys with: " + a.lineWith("keys", file, path)
	return e
}

// keysNear are keys that somebody who wrote wrong may have meant: those on both sides of it,
// where most mistakes lead, and the first ones of the bucket; maxLooked keys at most, and no more bytes than the file has.
func keysNear(b *holdfast.Bucket, wrong []byte) (names nameList) {
	cursor, seen, left := b.Cursor(), map[string]bool{}, b.Tx().Size()
	look := func(k, v []byte, next func() (k, v []byte)) {
		for n := maxLooked / 3; k != nil && n > 0; n-- {
			if left -= int64(len(k)); left < 0 {
				return
			}
			if v != nil && !seen[string(k)] {
				seen[string(k)] = true
				names.add(k)
			}
			k, v = next()
		}
	}
	k, v := cursor.Seek(wrong)
	look(k, v, cursor.Next)
	cursor.Seek(wrong)
	k, v = cursor.Prev()
	look(k, v, cursor.Prev)
	k, v = cursor.First()
	look(k, v, cursor.Next)
	return names
}

// noPrefix is the error of the beginning of names that no bucket at the top level has.
func (a *app) noPrefix(file string, tx *holdfast.Tx, prefix []byte) error {
	e := &fileError{file: file, what: fmt.Sprintf("no bucket whose name begins with %s", brief(prefix)), err: errNoBucket}
	var names nameList
	container{tx: tx}.bucketsFrom(nil, maxLooked, names.add)
	if len(names.text) == 0 {
		e.next = "there are no buckets at all"
		return e
	}
	e.next = names.similarTo(prefix, "") + "list them with: " + a.lineWith("buckets", file, nil)
	return e
}

// lineWith is the command line of a command on the bucket at path.
func (a *app) lineWith(name, file string, path [][]byte) string {
	line := fmt.Sprintf("%s %s %s", a.name(), name, shellQuote(file))
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
