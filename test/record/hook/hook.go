// Package hook logs what the transactions of bbolt change. It is part of no program of this repository: package record puts its source
// beside that of bbolt, in a copy that programs are built with.
//
// Nothing is logged unless the variable Env of the environment names a directory that has the file Phase. Each transaction that is committed
// is appended, as it is, to a file there which has the name that Phase contains, and ".log". ReadLog of holdfast/bench/age/trace reads it.
package hook

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	Env   = "HOLDFAST_RECORD" // the variable with the directory
	Phase = "phase"           // the file in it with the name of the log
)

// A Bucket is the path of one. The zero value is the root of a database.
type Bucket struct {
	path string // names in hexadecimal, separated by slashes
}

// Child is the bucket of that name in b.
func (b Bucket) Child(name []byte) Bucket {
	text := hex.EncodeToString(name)
	if b.path == "" {
		return Bucket{text}
	}
	return Bucket{b.path + "/" + text}
}

// A Tx collects what a transaction does. It is for one goroutine, as a transaction is. The zero value has done nothing.
type Tx struct {
	lines strings.Builder
	quiet int
}

var directory = os.Getenv(Env)

func (t *Tx) log(op byte, b Bucket, key string, size int) {
	if directory != "" && t.quiet == 0 {
		fmt.Fprintf(&t.lines, "%c %s %s %d\n", op, b.path, key, size)
	}
}

// Put logs that a key was given a value of so many bytes.
func (t *Tx) Put(b Bucket, key []byte, size int) { t.log('p', b, hex.EncodeToString(key), size) }

// Delete logs that a key was deleted.
func (t *Tx) Delete(b Bucket, key []byte) { t.log('d', b, hex.EncodeToString(key), 0) }

// Create logs that a bucket was created.
func (t *Tx) Create(b Bucket) { t.log('c', b, "-", 0) }

// Drop logs that a bucket was deleted with all in it, unless do, which deletes it, fails. What do deletes in it is not logged.
func (t *Tx) Drop(b Bucket, do func() error) error {
	t.quiet++
	err := do()
	t.quiet--
	if err == nil {
		t.log('x', b, "-", 0)
	}
	return err
}

// Moved panics if there is a log, which cannot say that a bucket was moved.
func (t *Tx) Moved(b Bucket) {
	if directory != "" {
		panic("bucket " + b.path + " was moved, and a log cannot say so")
	}
}

var (
	mu     sync.Mutex
	number int // of the last transaction of the process that began to commit
)

// Commit commits by do a transaction of a database, and logs it unless do fails. It panics if the log cannot be written: no part of a
// record may be missing.
func (t *Tx) Commit(db string, do func() error) error {
	// Transactions of a database commit one after the other, so this is their order. The end of do is not: another can commit before it is
	// logged.
	mu.Lock()
	number++
	n := number
	mu.Unlock()
	if err := do(); err != nil || t.lines.Len() == 0 {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if err := write(fmt.Sprintf("tx %d %s\n%send\n", n, hex.EncodeToString([]byte(db)), t.lines.String())); err != nil {
		panic(fmt.Sprintf("log what is done to %s: %v", db, err))
	}
	return nil
}

func write(text string) error {
	phase, err := os.ReadFile(filepath.Join(directory, Phase))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(directory, string(phase)+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
