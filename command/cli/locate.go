package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
)

// Errors of naming something that is not there.
var (
	ErrNoBucket = errors.New("no such bucket")
	ErrNoKey    = errors.New("no such key")
)

// Naming is how the command line names buckets and keys.
type Naming struct {
	BucketFormat string
	keyFormat    string
}

// AddBucketFlag adds the flag that says how buckets are named.
func (n *Naming) AddBucketFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.BucketFormat, "bucket-format", "ascii-encoded", "how BUCKET is given: "+strings.Join(InputFormats, "|"))
}

// AddKeyFlag adds the flag that says how keys are given.
func (n *Naming) AddKeyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.keyFormat, "parse-format", "ascii-encoded", "how KEY is given: "+strings.Join(InputFormats, "|"))
}

// Buckets reads the names of buckets on the command line.
func (n *Naming) Buckets(args []string) ([][]byte, error) {
	if err := CheckFormat("bucket-format", n.BucketFormat, InputFormats); err != nil {
		return nil, err
	}
	var path [][]byte
	for _, s := range args {
		parts := []string{s}
		if n.BucketFormat == "hex" {
			parts = strings.Split(s, "/")
		}
		for _, part := range parts {
			b, err := ParseBytes("bucket", part, n.BucketFormat)
			if err != nil {
				return nil, err
			}
			if len(b) == 0 {
				return nil, Usagef("a bucket without a name was given")
			}
			path = append(path, b)
		}
	}
	return path, nil
}

// Key reads a key on the command line.
func (n *Naming) Key(arg string) ([]byte, error) {
	if err := CheckFormat("parse-format", n.keyFormat, InputFormats); err != nil {
		return nil, err
	}
	k, err := ParseBytes("key", arg, n.keyFormat)
	if err == nil && len(k) == 0 {
		err = Usagef("key required")
	}
	return k, err
}

// PathNames writes the names of buckets for JSON.
func PathNames(path [][]byte) []string {
	names := make([]string, len(path))
	for i, b := range path {
		names[i] = Show(b)
	}
	return names
}

// PathText writes the names of buckets for people, with a / between them, as the command line takes them.
func PathText(path [][]byte) string {
	names := make([]string, len(path))
	for i, b := range path {
		names[i] = PathName(b)
	}
	return strings.Join(names, "/")
}

// Container is a bucket or, with a nil Bucket, the top level of a database.
type Container struct {
	Tx *holdfast.Tx
	*holdfast.Bucket
}

func (c Container) Child(name []byte) *holdfast.Bucket {
	if c.Bucket == nil {
		return c.Tx.Bucket(name)
	}
	return c.Bucket.Bucket(name)
}

func (c Container) Create(name []byte) (*holdfast.Bucket, error) {
	if c.Bucket == nil {
		return c.Tx.CreateBucket(name)
	}
	return c.CreateBucket(name)
}

func (c Container) Remove(name []byte) error {
	if c.Bucket == nil {
		return c.Tx.DeleteBucket(name)
	}
	return c.DeleteBucket(name)
}

func (c Container) NewCursor() *holdfast.Cursor {
	if c.Bucket == nil {
		return c.Tx.Cursor()
	}
	return c.Cursor()
}

// EachBucket calls fn with the name of each bucket in the container.
func (c Container) EachBucket(fn func(name []byte) error) error {
	if c.Bucket == nil {
		return EachTop(c.Tx, func(name []byte, _ *holdfast.Bucket) error { return fn(name) })
	}
	return c.ForEachBucket(fn)
}

// bucketsFrom calls fn with the names of the buckets from one on, until it returns false. It looks at n keys at most,
// buckets or not, and at no more bytes than the file has: on a damaged page names may share theirs.
func (c Container) bucketsFrom(from []byte, n int, fn func(name []byte) bool) {
	cursor, left := c.NewCursor(), c.Tx.Size()
	for k, v := cursor.Seek(from); k != nil && n > 0; k, v = cursor.Next() {
		if left -= int64(len(k)); left < 0 || v == nil && !fn(k) {
			return
		}
		n--
	}
}

// EachTop calls fn for each top-level bucket. A name there that is not a bucket, or
// one that cannot be opened, is damage.
func EachTop(tx *holdfast.Tx, fn func(name []byte, b *holdfast.Bucket) error) error {
	return tx.ForEach(func(name []byte, b *holdfast.Bucket) error {
		if b != nil {
			return fn(name, b)
		}
		if err := tx.Err(); err != nil {
			return err
		}
		return TopLevelKey(name)
	})
}

// Find is locate of a path as the command line has it, in the way n says. What it gives is a name if there is a bucket
// of that name, and otherwise a path, with a / between the names: path becomes that of single names.
func (n *Naming) Find(a *App, file string, tx *holdfast.Tx, path *[][]byte) (in Container, err error) {
	if *path, err = n.SingleNames(a, tx, *path); err != nil {
		return in, err
	}
	return a.Locate(file, tx, *path)
}

// SingleNames divides what path has into names of buckets.
func (n *Naming) SingleNames(a *App, tx *holdfast.Tx, path [][]byte) (names [][]byte, err error) {
	if a.Stock || n.BucketFormat == "hex" { // there a bucket is given by its name
		return path, nil
	}
	at := &Container{Tx: tx} // nil where there is nothing any more
	if tx == nil {
		at = nil
	}
	enter := func(name []byte) {
		names = append(names, name)
		if at == nil {
			return
		}
		if next := at.Child(name); next != nil {
			at.Bucket = next
		} else {
			at = nil
		}
	}
	for _, given := range path {
		if at != nil && at.Child(given) != nil {
			enter(given)
			continue
		}
		parts, err := SplitPath(given)
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			enter(part)
		}
	}
	return names, nil
}

// NamesInFile is singleNames in a file, which is there or not.
func (n *Naming) NamesInFile(a *App, file string, path [][]byte, there bool) (names [][]byte, err error) {
	if !there || len(path) == 0 {
		return n.SingleNames(a, nil, path)
	}
	err = a.View(file, false, func(_ *Database, tx *holdfast.Tx) (err error) {
		names, err = n.SingleNames(a, tx, path)
		return err
	})
	return names, err
}

// Locate opens the bucket at path, nil for the top level.
func (a *App) Locate(file string, tx *holdfast.Tx, path [][]byte) (Container, error) {
	at := Container{Tx: tx}
	for i, name := range path {
		next := at.Child(name)
		if next == nil {
			if err := tx.Err(); err != nil {
				return at, err
			}
			return at, a.NoBucket(file, at, path[:i+1])
		}
		at.Bucket = next
	}
	return at, nil
}

// maxLooked bounds the keys that are looked at for names like one that does not exist.
const maxLooked = 10_000

// NoBucket is the error of a path of which only the last name does not exist.
func (a *App) NoBucket(file string, in Container, path [][]byte) error {
	wrong := path[len(path)-1]
	e := &FileError{File: file, What: fmt.Sprintf("no bucket %s", BriefPath(path)), Err: ErrNoBucket}
	if in.Bucket != nil && in.Get(wrong) != nil {
		e.What += "; it is a key"
		return e
	}
	var names nameList
	in.bucketsFrom(nil, maxLooked, names.add)
	above := path[:len(path)-1]
	list := "list them with: " + a.lineWith("buckets", file, above)
	if a.Stock && len(above) > 0 { // its buckets are those of the top level only
		list = "list what is there with: " + a.lineWith("keys", file, above)
	}
	if len(names.text) == 0 {
		e.Next = "there are no buckets at all there"
		return e
	}
	e.Next = names.similarTo(wrong, "--bucket-format hex") + list
	return e
}

// nameList are names that may have been meant where another was written.
type nameList struct {
	text        []string
	hexadecimal map[string]bool // those that are not text
}

func (l *nameList) add(name []byte) bool {
	text := Brief(name)
	if !Printable(name) {
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
	near := Similar(Show(wrong), l.text)
	for i, name := range near {
		if l.hexadecimal[name] && Printable(wrong) {
			near[i] += " (hexadecimal)"
		}
	}
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("similar: %s; ", strings.Join(near, ", "))
}

// NoKey is the error of a key that does not exist in the bucket at path.
func (a *App) NoKey(file string, b *holdfast.Bucket, path [][]byte, key []byte) error {
	e := &FileError{File: file, What: fmt.Sprintf("no key %s in bucket %s", Brief(key), BriefPath(path)), Err: ErrNoKey}
	if b.Bucket(key) != nil {
		e.What += ": it is a bucket"
		e.Next = "list its keys with: " + a.lineWith("keys", file, append(path[:len(path):len(path)], key))
		return e
	}
	names := keysNear(b, key)
	e.Next = names.similarTo(key, "--parse-format hex") + "list its keys with: " + a.lineWith("keys", file, path)
	return e
}

// keysNear are keys that may have been meant where wrong was written: those on both sides of it, where most mistakes
// lead, and the first ones of the bucket; maxLooked keys at most, and no more bytes than the file has.
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

// NoPrefix is the error of the beginning of names that no bucket at the top level has.
func (a *App) NoPrefix(file string, tx *holdfast.Tx, prefix []byte) error {
	e := &FileError{File: file, What: fmt.Sprintf("no bucket whose name begins with %s", Brief(prefix)), Err: ErrNoBucket}
	var names nameList
	Container{Tx: tx}.bucketsFrom(nil, maxLooked, names.add)
	if len(names.text) == 0 {
		e.Next = "there are no buckets at all"
		return e
	}
	e.Next = names.similarTo(prefix, "") + "list them with: " + a.lineWith("buckets", file, nil)
	return e
}

// lineWith is the command line of a command on the bucket at path.
func (a *App) lineWith(name, file string, path [][]byte) string {
	line := fmt.Sprintf("%s %s %s", a.Name(), name, ShellWord(file))
	hexadecimal := false
	for _, b := range path {
		hexadecimal = hexadecimal || !Printable(b)
	}
	for _, b := range path {
		if hexadecimal {
			line += fmt.Sprintf(" %x", b)
		} else {
			line += " " + ShellWord(string(b))
		}
	}
	if hexadecimal {
		line += " --bucket-format hex"
	}
	return line
}

// PathAndKey reads the arguments that name a bucket and a key in it.
func (n *Naming) PathAndKey(args []string) (path [][]byte, key []byte, err error) {
	last := len(args) - 1
	if path, err = n.Buckets(args[:last]); err != nil {
		return nil, nil, err
	}
	key, err = n.Key(args[last])
	return path, key, err
}
