package blobcmd

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
	"holdfast/command/internal/hook"
	"holdfast/command/internal/rows"
)

// upload is a source that is being stored.
type upload struct {
	*putter
	in      *cli.Input
	ingest  string // its name
	saved   int64  // bytes that are in the store whatever happens
	kept    bool   // what was stored stays: it has a name, or a transaction has committed
	buf     []byte
	put     putBlob
	ref     blob.Ref
	lastErr error // of reading the source
	other   bool  // the source is not the one of which a part is stored
}

// source stores a source, which is open.
func (p *putter) source(source string, in *cli.Input) (err error) {
	u := &upload{putter: p, in: in, ingest: p.f.resume, kept: p.f.resume != "", buf: make([]byte, 1<<20)}
	u.put.Source = source
	if u.ingest == "" {
		u.ingest = "put-" + strings.ToLower(rand.Text()[:8])
	}
	var done func() int64
	if in.Size > 0 {
		done = in.Done.Load
	}
	if in.File != nil || !cli.IsTerminal(os.Stdin) {
		stop := p.Progress("storing", in.Size, done)
		defer stop()
	}
	for more := true; more; {
		if more, err = u.transaction(); err != nil {
			return u.explain(err)
		}
	}
	p.r.Blobs = append(p.r.Blobs, u.put)
	p.Made = p.file
	return nil
}

// transaction stores a piece of the source, and the blob if that is all.
func (u *upload) transaction() (more bool, err error) {
	at, created := int64(0), u.r.CreatedBuckets
	err = u.db.Update(func(tx *holdfast.Tx) error {
		s, err := store(u.putter.Call.App, u.file, tx, u.path)
		if err != nil {
			return err
		}
		s.VerifyStored(u.f.verify)
		b := &blobs{Store: s, call: u.Call, file: u.file, path: u.path}
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
		u.r.CreatedBuckets = created // what came to it went with the transaction
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
		if err != nil || in.Name != u.ingest {
			continue
		}
		known = true
		if was := in.Options.Digest; u.expect != nil && was != [32]byte{} && was != *u.expect {
			u.other = true
			return nil, &cli.FileError{File: u.file, What: fmt.Sprintf("the put %s was begun with --expect sha256:%v", cli.Shorten(u.ingest), blob.Address(was)),
				Next: "give the same, or drop what is stored with: " + u.dropLine(), Err: blob.ErrIngestOptions}
		}
	}
	options.Lifetime = u.f.keep
	if !known {
		options.WholeDigest = true
		if u.expect != nil { // also of who continues it
			options.Digest = *u.expect
		}
	}
	ingest, err := b.Ingest(u.ingest, options)
	if err != nil || u.put.Transactions > 0 {
		return ingest, err
	}
	u.put.Resumed = ingest.Offset()
	u.saved = ingest.Offset()
	err = u.skip(b, ingest)
	u.other = err != nil && u.ctx.Err() == nil
	return ingest, err
}

// skip skips what is stored of the source, which must begin with the same bytes. With --verify it is written again, and given up: what of
// it is damaged is stored again by that.
func (u *upload) skip(b *blobs, ingest *blob.Ingest) error {
	n := ingest.Offset()
	if n == 0 {
		return nil
	}
	if u.in.Size > 0 && u.in.Size < n {
		return &cli.FileError{File: u.in.Name, What: fmt.Sprintf("has %s, and %s are stored by the name %s already", cli.SizeExactly(u.in.Size), cli.SizeExactly(n), cli.Shorten(u.ingest)),
			Next: "this is another file; give the put another name, or drop what is stored with: " + u.dropLine(), Err: blob.ErrSizeMismatch}
	}
	h := sha256.New()
	to := io.Writer(h)
	if u.f.verify {
		w := b.Writer()
		defer w.Abort()
		to = io.MultiWriter(h, w)
	}
	skipped, err := io.CopyBuffer(struct{ io.Writer }{to}, io.LimitReader(u.in, n), u.buf)
	if sum, ok := ingest.DigestSum(); err == nil && skipped == n && ok && !bytes.Equal(h.Sum(nil), sum[:]) {
		err = &cli.FileError{File: u.in.Name, What: fmt.Sprintf("does not begin with the %s that are stored by the name %s already", cli.SizeExactly(n), cli.Shorten(u.ingest)),
			Next: "this is another source; give the put another name, or drop what is stored with: " + u.dropLine(), Err: blob.ErrIngestOptions}
	}
	if err == nil && skipped < n {
		err = &cli.FileError{File: u.in.Name, What: fmt.Sprintf("ends after %s, and %s are stored by the name %s already", cli.SizeExactly(skipped), cli.SizeExactly(n), cli.Shorten(u.ingest)),
			Next: "give all of it from the beginning", Err: io.ErrUnexpectedEOF}
	}
	return err
}

func (u *upload) dropLine() string {
	return u.StoreLine("rm", u.file, u.path) + " --unfinished " + cli.ShellWord(u.ingest)
}

// copy writes a piece of the source. An error of reading is kept for later if what was stored
// stays.
func (u *upload) copy(ingest *blob.Ingest) (more bool, err error) {
	for n := int64(0); n < hook.PutBatch; {
		k, err := io.ReadFull(u.in, u.buf)
		if k > 0 {
			if _, err := ingest.Write(u.buf[:k]); err != nil {
				return false, err
			}
		}
		n += int64(k)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF && u.in.Err() == io.EOF:
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
	var r *row
	if u.into != nil {
		if r, err = u.openRow(tx, b); err != nil {
			return err
		}
	}
	if u.ref, err = ingest.Commit(); err != nil {
		if errors.Is(err, blob.ErrDigestMismatch) {
			err = errors.Unwrap(err) // without the name of the ingest, which the caller has not given
		}
		return err
	}
	digest, ok, err := b.DigestOf(u.ref)
	if err != nil {
		return err
	}
	if u.expect != nil && (!ok || digest != *u.expect) {
		return fmt.Errorf("%w: sha256:%v, not sha256:%v", blob.ErrDigestMismatch, blob.Address(digest), blob.Address(*u.expect))
	}
	again := false // the row had a user of it
	if r != nil {
		if again, err = u.fill(r); err != nil {
			return err
		}
	}
	if u.put.refReport, err = b.report(u.ref); err == nil {
		u.put.Users, err = b.Users(u.ref)
	}
	if err == nil && u.put.Users == 0 {
		err = fmt.Errorf("blob %v has no user after it was put: %w", u.ref, blob.ErrCorrupt)
	}
	u.put.Existed = u.put.Users > 1 || again
	return err
}

// row is the row that gets the reference.
type row struct {
	in      cli.Container
	key     []byte
	old     []byte // what it has; nil: nothing
	givenUp bool   // the user that it had of a blob has been taken
}

// openRow looks for the row that gets the reference, and gives up what it had. That is before the blob is put: a row
// whose blob is gone has no user of it, and would otherwise give up the one of the same blob that is just put.
func (u *upload) openRow(tx *holdfast.Tx, b *blobs) (*row, error) {
	if err := u.NotInside(u.file, tx, u.into); err != nil {
		return nil, err
	}
	in, created, err := u.LocateOrCreate(u.file, tx, u.into, u.f.create)
	if err != nil {
		return nil, cli.WithCreate(cli.WithSlash(tx, u.into, err))
	}
	if blob.IsStore(in.Bucket) {
		return nil, &cli.FileError{File: u.file, What: fmt.Sprintf("bucket %s is a store of blobs", cli.BriefPath(u.into)), Next: "give a bucket for rows with --into", Err: cli.ErrNoBucket}
	}
	u.r.CreatedBuckets += created
	r := &row{in: in, key: []byte(u.f.name)}
	if u.f.name == "" {
		r.key = []byte(filepath.Base(u.in.Name))
	}
	if r.old = bytes.Clone(in.Get(r.key)); r.old != nil {
		r.givenUp, err = giveUp(b.Store, r.old)
	}
	return r, err
}

// fill puts the reference into the row. again: it had it before, with a user of its own.
func (u *upload) fill(r *row) (again bool, err error) {
	u.put.Bucket = cli.PathNames(u.into)
	u.put.Key, u.put.KeyEncoding = cli.EncodeBytes(r.key, "auto")
	value, err := u.ref.MarshalBinary()
	if err != nil {
		return false, err
	}
	if err := rows.NotRow(u.Call, u.file, r.in.Bucket, u.into, r.key, value); err != nil {
		return false, err
	}
	same := bytes.Equal(r.old, value)
	if r.old != nil && !same && !u.f.replace {
		return false, &cli.FileError{File: u.file, What: fmt.Sprintf("key %s in %s has another value already", cli.Brief(r.key), cli.BriefPath(u.into)), Next: "--replace replaces it, --name gives another key", Err: cli.ErrConflict}
	}
	return same && r.givenUp, cli.CannotHaveValue(u.file, cli.Brief(r.key), cli.BriefPath(u.into), r.in.Put(r.key, value))
}

// giveUp takes the user from a blob that a row was; done: it had one. The row may refer to something else.
func giveUp(s *blob.Store, value []byte) (done bool, err error) {
	var ref blob.Ref
	if ref.UnmarshalBinary(value) != nil {
		return false, nil
	}
	err = s.Delete(ref)
	if errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrAlgorithm) || errors.Is(err, blob.ErrInvalidRef) {
		return false, nil
	}
	return err == nil, err
}

// explain says what was stored of a source that could not be stored, and how to go on.
func (u *upload) explain(err error) error {
	if errors.Is(err, blob.ErrDigestMismatch) {
		return u.mismatch(err)
	}
	var known *cli.FileError
	stopped := u.ctx.Err() != nil && errors.Is(err, u.ctx.Err())
	switch {
	case stopped:
		err = &cli.FileError{File: u.file, What: "interrupted", Err: err}
	case errors.As(err, &known):
	case u.in.Err() != nil && errors.Is(err, u.in.Err()):
		err = &cli.FileError{File: u.in.Name, What: u.Plain(err), Err: err}
	default:
		err = explainBlob(u.putter.Call, u.file, err)
	}
	if !errors.As(err, &known) {
		return err
	}
	if u.saved == 0 || u.other {
		if stopped {
			known.What += ", nothing was stored"
		}
		return known
	}
	known.What += fmt.Sprintf("; %s of %s are stored", cli.SizeExactly(u.saved), u.in.Name)
	if known.Next != "" {
		known.Next += "; "
	}
	known.Next += "go on with: " + u.resumeLine()
	return known
}

// resumeLine is the command line that continues the put: with all flags that were given.
func (u *upload) resumeLine() string {
	plain := cli.PlainPath(u.path) && (u.into == nil || cli.PlainPath(u.into))
	pathOf := func(path [][]byte) string {
		if plain {
			return cli.ShellWord(cli.PathText(path))
		}
		return cli.HexPath(path)
	}
	line := fmt.Sprintf("%s blob put %s %s", u.Name(), cli.ShellWord(u.file), pathOf(u.path))
	if u.put.Source == "-" {
		line += " -"
	} else {
		line += " " + cli.ShellWord(u.put.Source)
	}
	if !plain {
		line += " --bucket-format hex"
	}
	u.Cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "resume" || f.Name == "bucket-format":
		case f.Name == "into":
			line += " --into " + pathOf(u.into)
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			line += " --" + f.Name
		case f.Value.Type() == "bool":
			line += " --" + f.Name + "=" + f.Value.String()
		default:
			line += " --" + f.Name + " " + cli.ShellWord(f.Value.String())
		}
	})
	return line + " --resume " + cli.ShellWord(u.ingest)
}

// mismatch drops what was stored of a source that is not what was expected, but for what another put had stored: who
// gave a wrong --expect when continuing it may go on.
func (u *upload) mismatch(err error) error {
	if u.put.Resumed > 0 {
		return &cli.FileError{File: u.in.Name, What: err.Error(), Next: fmt.Sprintf("no blob was made; %s stay stored by the name %s; drop them with: %s", cli.SizeExactly(u.saved), cli.Shorten(u.ingest), u.dropLine()), Err: err}
	}
	if u.put.Transactions > 0 {
		drop := u.db.Update(func(tx *holdfast.Tx) error {
			s, err := store(u.putter.Call.App, u.file, tx, u.path)
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
			_, drop = collect(u.putter.Call, u.db, u.path)
		}
		if drop != nil {
			return errors.Join(err, drop)
		}
	}
	return &cli.FileError{File: u.in.Name, What: err.Error(), Next: "nothing was stored", Err: err}
}
