package command

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
)

const blobPutHelp = `Store files, or standard input (- or no SOURCE), each as a blob of which put prints the digest. The
store, and the file of the database, are created with --create only; --algorithm, --chunking and --leaf-size are for
a new store, and stay as they are.

What is in the store already, or a part of it, is not stored again. A blob that is put twice has two
users, and is removed when both are.

A large source is stored in many transactions, and takes some 100 MiB of memory whatever its size. Where
one ends early, what was stored stays, and put says how it is continued: with --resume and the name
that it was given. Files are read on from where the last one ended, standard input
has to come from its beginning again. --resume names a put also from its first time on. "rm
--unfinished" drops it.

--into puts the reference into a row of a bucket, in the transaction that ends the blob: under the
name of the file, or --name. --expect gives the SHA-256 that the source must have; if it has another,
nothing is stored.`

type blobPutFlags struct {
	storeName
	algorithm, chunking, leafSize string
	create, quiet, replace        bool
	into, name, expect, resume    string
}

type blobPutReport struct {
	File           string    `json:"file"`
	Store          []string  `json:"store"`
	CreatedFile    bool      `json:"created_file"`
	CreatedStore   bool      `json:"created_store"`
	CreatedBuckets int       `json:"created_buckets"` // with that of the store
	Blobs          []putBlob `json:"blobs"`
}

// putBlob is a blob that was stored.
type putBlob struct {
	Source string `json:"source"`
	refReport
	Existed      bool     `json:"existed"`
	Users        uint64   `json:"users"`
	Resumed      int64    `json:"resumed_at_bytes"`
	Transactions int      `json:"transactions"`
	Bucket       []string `json:"bucket,omitempty"`
	Key          string   `json:"key,omitempty"`
	KeyEncoding  string   `json:"key_encoding,omitempty"`
}

// putBatch is how many bytes go into one transaction.
var putBatch int64 = 32 << 20

func (a *app) newBlobPut() *cobra.Command {
	var f blobPutFlags
	cmd := &cobra.Command{
		Use:   "put FILE STORE [SOURCE...]",
		Short: "Store files, or standard input",
		Long:  blobPutHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.action(func(c *call) error { return c.blobPut(f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.create, "create", false, "create the file, the store, and the bucket of --into, if they do not exist")
	flags.StringVar(&f.algorithm, "algorithm", "sha256", "of a new store, the hash: sha256|blake3")
	flags.StringVar(&f.chunking, "chunking", "fixed", "of a new store, how blobs are cut, by length or by content: fixed|fastcdc")
	flags.StringVar(&f.leafSize, "leaf-size", "", "of a new store, the length of the pieces; default: what fills 16 pages, 65488 bytes")
	flags.StringVar(&f.expect, "expect", "", "refuse a source that has not this SHA-256")
	flags.StringVar(&f.into, "into", "", "path of a bucket in which a row gets the reference")
	flags.StringVar(&f.name, "name", "", "with --into: the key of the row; default: the name of the file")
	flags.BoolVar(&f.replace, "replace", false, "with --into: replace the reference that a row has, and give up its blob")
	flags.StringVar(&f.resume, "resume", "", "name of the put, to continue it if it was interrupted")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print digests only, a line each")
	f.addStoreFlag(cmd)
	return cmd
}

// putter stores sources.
type putter struct {
	*call
	ctx     context.Context
	f       blobPutFlags
	file    string
	path    [][]byte // of the store
	into    [][]byte
	expect  *[32]byte
	options blob.Options
	db      *database
	r       *blobPutReport
}

func (c *call) blobPut(f blobPutFlags) error {
	p := &putter{call: c, f: f}
	if err := p.arguments(); err != nil {
		return err
	}
	p.r = &blobPutReport{File: p.file, Store: pathNames(p.path), Blobs: []putBlob{}}
	sources := c.args[2:]
	if len(sources) == 0 {
		sources = []string{"-"}
	}
	for _, source := range sources { // before there is a database without anything in it
		if err := p.lookSource(source); err != nil {
			return err
		}
	}
	ctx, stop := interruptible(c.ctx)
	defer stop()
	p.ctx = ctx
	err := p.open()
	if err == nil {
		for _, source := range sources {
			if err = p.source(source); err != nil {
				break
			}
		}
		err = c.explainBlob(p.file, errors.Join(err, p.db.Close()))
	}
	if printErr := p.print(); err == nil { // also what was stored before an error
		err = printErr
	}
	return err
}

// arguments reads the command line.
func (p *putter) arguments() (err error) {
	f := &p.f
	if p.file, p.path, err = p.fileAndStore(f.storeName); err != nil {
		return err
	}
	several := len(p.args) > 3
	switch {
	case several && f.name != "":
		return usagef("--name is for one SOURCE, and there are %d", len(p.args)-2)
	case several && f.expect != "":
		return usagef("--expect is for one SOURCE, and there are %d", len(p.args)-2)
	case several && f.resume != "":
		return usagef("--resume is for one SOURCE, and there are %d", len(p.args)-2)
	case f.into == "" && (f.name != "" || f.replace):
		return usagef("--name and --replace are for --into, which says in which bucket the row is")
	case f.into != "" && f.name == "" && (len(p.args) == 2 || p.args[2] == "-"):
		return usagef("--into: standard input has no name; give the key of the row with --name")
	case len(f.resume) > holdfast.MaxKeySize:
		return usagef("--resume: a name has at most %s", sizeExactly(holdfast.MaxKeySize))
	}
	if f.into != "" {
		if p.into, err = f.path(f.into); err != nil {
			return err
		}
	}
	if f.expect != "" {
		digest, err := parseDigest(f.expect)
		if err != nil {
			return err
		}
		p.expect = &digest
	}
	return p.storeOptions()
}

// storeOptions reads the options of a new store.
func (p *putter) storeOptions() error {
	f := &p.f
	if err := checkFormat("algorithm", f.algorithm, []string{"sha256", "blake3"}); err != nil {
		return err
	}
	if err := checkFormat("chunking", f.chunking, []string{"fixed", "fastcdc"}); err != nil {
		return err
	}
	p.options = blob.Options{Algorithm: blob.SHA256, Chunking: blob.FixedSize}
	if f.algorithm == "blake3" {
		p.options.Algorithm = blob.BLAKE3
	}
	if f.chunking == "fastcdc" {
		p.options.Chunking = blob.FastCDC
	}
	if f.leafSize != "" {
		n, err := humanize.ParseBytes(f.leafSize)
		if err != nil || n < blob.MinLeafSize || n > blob.MaxLeafSize {
			return usagef("--leaf-size: %q is no number of bytes from %s to %s, such as 16KiB", f.leafSize, size(blob.MinLeafSize), size(blob.MaxLeafSize))
		}
		p.options.LeafSize = int(n)
	}
	return nil
}

// lookSource finds out whether there is something to read.
func (p *putter) lookSource(source string) error {
	if source == "-" {
		return nil
	}
	info, err := os.Stat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fileError{file: source, what: "no such file", next: similarFile(source), err: err}
	case err != nil:
		return p.explain(source, err)
	case sameFile(info, p.file):
		return usagef("%s: a database cannot be stored in itself", source)
	case info.IsDir():
		return &fileError{file: source, what: "is a directory", next: "give the files in it", err: errNotAFile}
	}
	return nil
}

func sameFile(info fs.FileInfo, path string) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(info, other)
}

// open opens the database, and creates it and the store where they do not exist.
func (p *putter) open() error {
	if err := p.lookFirst(); err != nil {
		return err
	}
	created, err := p.update(p.file, p.f.create, p.begin)
	if err != nil {
		return err
	}
	p.r.CreatedFile = created
	info, err := p.look(p.file)
	if err != nil {
		return err
	}
	p.db, err = p.call.open(p.file, info, &holdfast.Options{})
	return err
}

// lookFirst finds out whether there is what has to be there.
func (p *putter) lookFirst() error {
	if p.f.create {
		return nil
	}
	err := p.explainBlob(p.file, p.view(p.file, false, func(_ *database, tx *holdfast.Tx) error {
		if p.into != nil {
			if _, err := p.locate(p.file, tx, p.into); err != nil {
				return withCreate(withSlash(tx, p.into, err))
			}
		}
		s, err := p.store(p.file, tx, p.path)
		if err != nil {
			return withCreate(err)
		}
		return p.sameOptions(s.Options())
	}))
	return p.hintCreate(p.file, err)
}

// begin opens the store, and creates it where it does not exist.
func (p *putter) begin(tx *holdfast.Tx) error {
	if err := p.notInside(p.file, tx, p.path); err != nil {
		return err
	}
	at, created, err := p.locateOrCreate(p.file, tx, p.path, p.f.create)
	if err != nil {
		return withCreate(withSlash(tx, p.path, err))
	}
	if p.r.CreatedBuckets = created; created == 0 && !(p.f.create && isEmpty(at.Bucket)) {
		s, err := p.openStore(p.file, at, p.path)
		if err != nil {
			return err
		}
		return p.sameOptions(s.Options())
	}
	p.r.CreatedStore = true
	_, err = blob.Create(at.Bucket, p.options)
	return err
}

// withCreate adds to the error of a bucket that does not exist how to create it.
func withCreate(err error) error {
	var e *fileError
	if errors.As(err, &e) && errors.Is(err, errNoBucket) && !strings.Contains(e.next, "--bucket-format") {
		e.next += "; --create creates it"
	}
	return err
}

// sameOptions is an error if the command line asks for a store that is made otherwise.
func (p *putter) sameOptions(has blob.Options) error {
	changed := p.cmd.Flags().Changed
	wrong := func(flag, is, want string) error {
		return &fileError{file: p.file, what: fmt.Sprintf("store %s has --%s %s, and not %s", briefPath(p.path), flag, is, want),
			next: "that stays as it was created; give another store", err: blob.ErrOptions}
	}
	switch {
	case changed("algorithm") && has.Algorithm != p.options.Algorithm:
		return wrong("algorithm", has.Algorithm.String(), p.f.algorithm)
	case changed("chunking") && has.Chunking != p.options.Chunking:
		return wrong("chunking", has.Chunking.String(), p.f.chunking)
	case p.options.LeafSize != 0 && has.LeafSize != p.options.LeafSize:
		return wrong("leaf-size", fmt.Sprint(has.LeafSize), p.f.leafSize)
	}
	return nil
}

// upload is a source that is being stored.
type upload struct {
	*putter
	in      *input
	ingest  string // its name
	saved   int64  // bytes that are in the store whatever happens
	offset  int64  // bytes read of the source
	kept    bool   // what was stored stays: it has a name, or a transaction has committed
	buf     []byte
	put     putBlob
	ref     blob.Ref
	lastErr error // of reading the source
	other   bool  // the source is not the one of which a part is stored
}

// source stores a source.
func (p *putter) source(source string) error {
	path := source
	if path == "-" {
		path = ""
	}
	in, err := p.openInput(p.ctx, path)
	if err != nil {
		return err
	}
	defer in.close()
	u := &upload{putter: p, in: in, ingest: p.f.resume, kept: p.f.resume != "", buf: make([]byte, 1<<20)}
	u.put.Source = source
	if u.ingest == "" {
		u.ingest = "put-" + strings.ToLower(rand.Text()[:8])
	}
	var done func() int64
	if in.size > 0 {
		done = in.read.Load
	}
	if in.file != nil || !isTerminal(os.Stdin) {
		stop := p.progress("storing", in.size, done)
		defer stop()
	}
	for more := true; more; {
		if more, err = u.transaction(); err != nil {
			return u.explain(err)
		}
	}
	p.r.Blobs = append(p.r.Blobs, u.put)
	return nil
}

// transaction stores a piece of the source, and the blob if that is all.
func (u *upload) transaction() (more bool, err error) {
	var at int64
	err = u.db.Update(func(tx *holdfast.Tx) error {
		s, err := u.store(u.file, tx, u.path)
		if err != nil {
			return err
		}
		b := &blobs{Store: s, call: u.call, file: u.file, path: u.path}
		ingest, err := u.begin(b)
		if err != nil {
			return err
		}
		if more, err = u.copy(ingest); err != nil {
			return err
		}
		at = ingest.Offset()
		if more {
			return ingest.Save()
		}
		return u.end(tx, b, ingest)
	})
	if err != nil {
		return false, err
	}
	u.put.Transactions++
	u.kept = u.kept || more
	u.saved = at
	return more, u.lastErr
}

// begin begins the put, or goes on with it.
func (u *upload) begin(b *blobs) (*blob.Ingest, error) {
	var options blob.IngestOptions
	known := u.put.Transactions > 0
	for in, err := range b.Ingests() {
		if err == nil && in.Name == u.ingest {
			known = true
		}
	}
	options.WholeDigest = !known
	ingest, err := b.Ingest(u.ingest, options)
	if err != nil || u.put.Transactions > 0 {
		return ingest, err
	}
	u.put.Resumed = ingest.Offset()
	u.saved = ingest.Offset()
	err = u.skip(ingest.Offset())
	u.other = err != nil && u.ctx.Err() == nil
	return ingest, err
}

// skip skips what is stored of the source.
func (u *upload) skip(n int64) error {
	if n == 0 {
		return nil
	}
	if u.in.size > 0 && u.in.size < n {
		return &fileError{file: u.in.name, what: fmt.Sprintf("has %s, and %s are stored by the name %s already", sizeExactly(u.in.size), sizeExactly(n), shorten(u.ingest)),
			next: "this is another file; give the put another name, or drop what is stored with: " + u.dropLine(), err: blob.ErrSizeMismatch}
	}
	skipped, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(u.in, n), u.buf)
	if err == nil && skipped < n {
		err = &fileError{file: u.in.name, what: fmt.Sprintf("ends after %s, and %s are stored by the name %s already", sizeExactly(skipped), sizeExactly(n), shorten(u.ingest)),
			next: "give all of it from the beginning", err: io.ErrUnexpectedEOF}
	}
	return err
}

func (u *upload) dropLine() string {
	return u.storeLine("rm", u.file, u.path) + " --unfinished " + shellQuote(u.ingest)
}

// copy writes a piece of the source. An error of reading is kept for later if what was stored
// stays.
func (u *upload) copy(ingest *blob.Ingest) (more bool, err error) {
	for n := int64(0); n < putBatch; {
		k, err := io.ReadFull(u.in, u.buf)
		if k > 0 {
			if _, err := ingest.Write(u.buf[:k]); err != nil {
				return false, err
			}
		}
		n += int64(k)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF && u.in.last.err == io.EOF:
			return false, nil
		case err != nil && u.kept:
			u.lastErr = err
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// end makes a blob of what was written, and puts it into a row.
func (u *upload) end(tx *holdfast.Tx, b *blobs, ingest *blob.Ingest) (err error) {
	if u.ref, err = ingest.Commit(); err != nil {
		return err
	}
	digest, ok, err := b.DigestOf(u.ref)
	if err != nil {
		return err
	}
	if u.expect != nil && (!ok || digest != *u.expect) {
		return fmt.Errorf("%w: sha256:%v, not sha256:%v", blob.ErrDigestMismatch, blob.Address(digest), blob.Address(*u.expect))
	}
	if u.into != nil {
		if err := u.row(tx, b); err != nil {
			return err
		}
	}
	if u.put.refReport, err = b.report(u.ref); err == nil {
		u.put.Users, err = b.Users(u.ref)
	}
	u.put.Existed = u.put.Users > 1
	return err
}

// row puts the reference into a row.
func (u *upload) row(tx *holdfast.Tx, b *blobs) error {
	if err := u.notInside(u.file, tx, u.into); err != nil {
		return err
	}
	in, created, err := u.locateOrCreate(u.file, tx, u.into, u.f.create)
	if err != nil {
		return withCreate(withSlash(tx, u.into, err))
	}
	if blob.IsStore(in.Bucket) {
		return &fileError{file: u.file, what: fmt.Sprintf("bucket %s is a store of blobs", briefPath(u.into)), next: "give a bucket for rows with --into", err: errNoBucket}
	}
	u.r.CreatedBuckets += created
	key := []byte(u.f.name)
	if u.f.name == "" {
		key = []byte(filepath.Base(u.in.name))
	}
	u.put.Bucket = pathNames(u.into)
	u.put.Key, u.put.KeyEncoding = encodeBytes(key, "auto")
	value, err := u.ref.MarshalBinary()
	if err != nil {
		return err
	}
	if old := in.Get(key); old != nil {
		if !bytes.Equal(old, value) && !u.f.replace {
			return &fileError{file: u.file, what: fmt.Sprintf("key %s in %s has another value already", brief(key), briefPath(u.into)), next: "--replace replaces it", err: errConflict}
		}
		if err := giveUp(b.Store, old); err != nil {
			return err
		}
	}
	err = in.Put(key, value)
	if errors.Is(err, holdfast.ErrIncompatibleValue) {
		return &fileError{file: u.file, err: err, what: fmt.Sprintf("%s in %s is a bucket and cannot have a value", brief(key), briefPath(u.into))}
	}
	return err
}

// giveUp takes the user from a blob that a row was. The row may refer to something else.
func giveUp(s *blob.Store, value []byte) error {
	var ref blob.Ref
	if ref.UnmarshalBinary(value) != nil {
		return nil
	}
	err := s.Delete(ref)
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrAlgorithm) || errors.Is(err, blob.ErrInvalidRef) {
		return nil
	}
	return err
}

// explain says what was stored of a source that could not be stored, and how to go on.
func (u *upload) explain(err error) error {
	if errors.Is(err, blob.ErrDigestMismatch) {
		return u.mismatch(err)
	}
	var known *fileError
	stopped := u.ctx.Err() != nil && errors.Is(err, u.ctx.Err())
	switch {
	case stopped:
		err = &fileError{file: u.file, what: "interrupted", err: err}
	case errors.As(err, &known):
	case u.in.last.err != nil && errors.Is(err, u.in.last.err):
		err = &fileError{file: u.in.name, what: u.plain(err), err: err}
	default:
		err = u.explainBlob(u.file, err)
	}
	if !errors.As(err, &known) {
		return err
	}
	if u.saved == 0 || u.other {
		if stopped {
			known.what += ", nothing was stored"
		}
		return known
	}
	known.what += fmt.Sprintf("; %s of %s are stored", sizeExactly(u.saved), u.in.name)
	if known.next != "" {
		known.next += "; "
	}
	source := "-"
	if u.put.Source != source {
		source = shellQuote(u.put.Source)
	}
	known.next += fmt.Sprintf("go on with: %s %s --resume %s", u.storeLine("put", u.file, u.path), source, shellQuote(u.ingest))
	return known
}

// mismatch drops what was stored of a source that is not what was expected.
func (u *upload) mismatch(err error) error {
	if u.put.Transactions > 0 || u.put.Resumed > 0 {
		drop := u.db.Update(func(tx *holdfast.Tx) error {
			s, err := u.store(u.file, tx, u.path)
			if err != nil {
				return err
			}
			ingest, err := s.Ingest(u.ingest, blob.IngestOptions{})
			if err != nil {
				return err
			}
			return ingest.Abort()
		})
		if drop == nil {
			_, drop = u.collect(u.db, u.path)
		}
		if drop != nil {
			return errors.Join(err, drop)
		}
	}
	return &fileError{file: u.in.name, what: err.Error(), next: "nothing was stored", err: err}
}

// print prints what was stored.
func (p *putter) print() error {
	switch {
	case p.f.quiet:
		for _, b := range p.r.Blobs {
			fmt.Fprintln(p.out, b.name())
		}
		return nil
	case p.json:
		if len(p.r.Blobs) == 0 && !p.r.CreatedFile {
			return nil
		}
		return p.printJSON(p.r)
	}
	if p.r.CreatedFile {
		fmt.Fprintf(p.out, "created the database %s\n", p.file)
	}
	if p.r.CreatedStore {
		fmt.Fprintf(p.out, "created the store %s\n", pathText(p.path))
	}
	for _, b := range p.r.Blobs {
		was := "new"
		if b.Existed {
			was = fmt.Sprintf("it was there already, and has %s now", plural(int(b.Users), "user"))
		}
		from := ""
		if b.Resumed > 0 {
			from = fmt.Sprintf(", from %s on", size(b.Resumed))
		}
		fmt.Fprintf(p.out, "%s  %s%s (%s)\n", b.name(), sizeExactly(b.Bytes), from, was)
		if b.Digest != "" && b.Reference != b.Digest {
			fmt.Fprintf(p.out, "%s\n", b.Reference)
		}
		if b.Key != "" {
			fmt.Fprintf(p.out, "key %s in %s refers to it\n", b.Key, strings.Join(b.Bucket, "/"))
		}
	}
	return nil
}
