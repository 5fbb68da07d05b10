package blobcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
	"holdfast/command/internal/rows"
	"holdfast/command/size"
)

const blobPutHelp = `Store files, or standard input (- or no SOURCE), each as a blob of which put prints the digest. The
store, and the file of the database, are created with --create only; --algorithm, --chunking, --leaf-size, --compress and
--encrypt are for a new store, and stay as they are.

What is in the store already, or a part of it, is not stored again, and not read either: with --verify it is,
and what of it is damaged or missing is stored again. A blob that is put twice has two users, and is removed
when both are.

A large source is stored in many transactions, of some 32 MiB each, and takes some tens of MiB of memory whatever
its size. Where one ends early, what was stored stays if a first transaction was committed, and put says how it
is continued: with its flags, --resume and the name that it was given. The source is read from its beginning again, and
has to begin with the same bytes. --resume names a put also from its first time on. "rm
--unfinished" drops it; so does gc when nothing was added for as long as --keep-unfinished says.

--into puts the reference into a row of a bucket, in the transaction that ends the blob: under the
name of the file, or --name, also for a path with slashes. --expect gives the SHA-256 that the source must have; if it has another,
nothing is stored.`

type blobPutFlags struct {
	cli.StoreName
	algorithm, chunking        string
	compress                   string
	leafSize                   int64
	encrypt                    bool
	create, quiet, replace     bool
	verify                     bool
	into, name, expect, resume string
	keep                       time.Duration
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

func newBlobPut(a *cli.App) *cobra.Command {
	var f blobPutFlags
	cmd := &cobra.Command{
		Use:   "put FILE STORE [SOURCE...]",
		Short: "Store files, or standard input",
		Long:  blobPutHelp,
		Args:  cobra.MinimumNArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return blobPut(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.create, "create", false, "create the file, the store, and the bucket of --into, if they do not exist")
	f.addOptions(flags)
	flags.StringVar(&f.expect, "expect", "", "refuse a source that has not this SHA-256")
	flags.StringVar(&f.into, "into", "", "path of a bucket in which a row gets the reference")
	flags.StringVar(&f.name, "name", "", "with --into: the key of the row; default: the name of the file")
	flags.BoolVar(&f.replace, "replace", false, "with --into: replace the reference that a row has, and give up its blob")
	flags.StringVar(&f.resume, "resume", "", "name of the put, to continue it if it was interrupted")
	cli.DurationVar(flags, &f.keep, "keep-unfinished", 7*24*time.Hour, "for how long what is stored is kept if the put is interrupted; 0: for ever")
	flags.BoolVar(&f.verify, "verify", false, verifyText)
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print digests only, a line each")
	f.AddStoreFlag(cmd)
	return cmd
}

// verifyText is what --verify does, wherever something is stored.
const verifyText = "read what is stored already, and store again what of it is damaged or lost"

// putter stores sources.
type putter struct {
	*cli.Call
	ctx     context.Context
	f       blobPutFlags
	file    string
	path    [][]byte // of the store
	into    [][]byte
	expect  *[32]byte
	options blob.Options
	db      *cli.Database
	r       *blobPutReport
}

func blobPut(c *cli.Call, f blobPutFlags) error {
	p := &putter{Call: c, f: f}
	if err := p.arguments(); err != nil {
		return err
	}
	p.r = &blobPutReport{File: p.file, Store: cli.PathNames(p.path), Blobs: []putBlob{}}
	sources := c.Args[2:]
	if len(sources) == 0 {
		sources = []string{"-"}
	}
	for _, source := range sources { // before there is a database without anything in it
		if err := p.lookSource(source); err != nil {
			return err
		}
	}
	ctx, stop := c.Interruptible()
	defer stop()
	p.ctx = ctx
	err := p.sources(sources)
	if printErr := p.print(); err == nil { // also what was stored before an error
		err = printErr
	}
	return err
}

// sources stores all sources. The first one is open before the database is, so that nothing waits for the database
// while the source is a named pipe that nothing writes to.
func (p *putter) sources(sources []string) error {
	if err := p.lookFirst(); err != nil {
		return err
	}
	in, err := p.openSource(sources[0])
	if err != nil {
		return err
	}
	if err := p.open(); err != nil {
		in.Close()
		return err
	}
	for i, source := range sources {
		if i > 0 {
			if in, err = p.openSource(source); err != nil {
				break
			}
		}
		err = p.source(source, in)
		in.Close()
		if err != nil {
			break
		}
	}
	return explainBlob(p.Call, p.file, errors.Join(err, p.db.Close()))
}

// openSource opens a source; -: standard input.
func (p *putter) openSource(source string) (*cli.Input, error) {
	if source == "-" {
		source = ""
	}
	return p.OpenInput(p.ctx, source)
}

// arguments reads the command line.
func (p *putter) arguments() (err error) {
	f := &p.f
	if p.file, p.path, err = fileAndStore(p.Call, f.StoreName); err != nil {
		return err
	}
	several := len(p.Args) > 3
	piped := 0
	for _, source := range p.Args[2:] {
		if source == "-" {
			piped++
		}
	}
	switch {
	case piped > 1:
		return cli.Usagef("standard input is given %d times, and can be read once", piped)
	case several && f.name != "":
		return cli.Usagef("--name is for one SOURCE, and there are %d", len(p.Args)-2)
	case several && f.expect != "":
		return cli.Usagef("--expect is for one SOURCE, and there are %d", len(p.Args)-2)
	case several && f.resume != "":
		return cli.Usagef("--resume is for one SOURCE, and there are %d", len(p.Args)-2)
	case f.into == "" && (f.name != "" || f.replace):
		return cli.Usagef("--name and --replace are for --into, which says in which bucket the row is")
	case f.into != "" && f.name == "" && (len(p.Args) == 2 || piped > 0):
		return cli.Usagef("--into: standard input has no name; give the key of the row with --name")
	case len(f.resume) > holdfast.MaxKeySize:
		return cli.Usagef("--resume: a name has at most %s", cli.SizeExactly(holdfast.MaxKeySize))
	}
	if f.into != "" {
		if p.into, err = f.Path(f.into); err == nil {
			err = oneRowEach(p.Args[2:])
		}
		if err != nil {
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

// oneRowEach is an error if two files would be in one row: with --replace only the last of them would be stored.
func oneRowEach(sources []string) error {
	paths := map[string]string{}
	for _, path := range sources {
		name := filepath.Base(path)
		if other, ok := paths[name]; ok && filepath.Clean(other) != filepath.Clean(path) {
			return cli.Usagef("--into: %s and %s would both be the row %s; put them one by one, with --name", cli.Shorten(other), cli.Shorten(path), cli.Shorten(name))
		}
		paths[name] = path
	}
	return nil
}

// compressions are those of --compress.
var compressions = map[string]blob.Compression{"none": blob.NoCompression, "zstd": blob.Zstd, "zstd-better": blob.ZstdBetter}

// storeOptions reads the options of a new store.
func (p *putter) storeOptions() error {
	f := &p.f
	switch {
	case f.algorithm != "sha256" && f.algorithm != "blake3":
		return cli.Usagef("--algorithm: unknown hash %s; there are sha256, blake3", cli.Shorten(f.algorithm))
	case f.chunking != "fixed" && f.chunking != "fastcdc":
		return cli.Usagef("--chunking: %s is no way to cut; there are fixed, fastcdc", cli.Shorten(f.chunking))
	}
	var known bool
	if p.options.Compression, known = compressions[f.compress]; !known {
		return cli.Usagef("--compress: unknown compression %s; there are none, zstd, zstd-better", cli.Shorten(f.compress))
	}
	p.options.Algorithm, p.options.Chunking = blob.SHA256, blob.FixedSize
	if f.algorithm == "blake3" {
		p.options.Algorithm = blob.BLAKE3
	}
	if f.chunking == "fastcdc" {
		p.options.Chunking = blob.FastCDC
	}
	p.options.LeafSize = int(f.leafSize)
	return p.encryption()
}

// encryption reads the key of a new store that is encrypted.
func (p *putter) encryption() error {
	key, err := p.BlobKey()
	switch {
	case err != nil || !p.f.encrypt:
		return err
	case key == nil:
		return cli.Usagef("--encrypt needs a key: give its file with --key-file; %s blob key makes one", p.Name())
	case p.Cmd.Flags().Changed("algorithm"):
		return cli.Usagef("--algorithm does not go with --encrypt: the hash of an encrypted store is %v", blob.KeyedBLAKE3)
	}
	p.options.Key, p.options.Algorithm = key, 0
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
		return &cli.FileError{File: source, What: "no such file", Next: cli.SimilarFile(source), Err: err}
	case err != nil:
		return p.Explain(source, err)
	case sameFile(info, p.file):
		return cli.Usagef("%s: a database cannot be stored in itself", source)
	case info.IsDir():
		return &cli.FileError{File: source, What: "is a directory", Next: "give the files in it", Err: cli.ErrNotAFile}
	}
	return nil
}

func sameFile(info fs.FileInfo, path string) bool {
	other, err := os.Stat(path)
	return err == nil && os.SameFile(info, other)
}

// open opens the database, and creates it and the store where they do not exist.
func (p *putter) open() error {
	created, err := p.Update(p.file, p.f.create, p.begin)
	if err != nil {
		p.r.CreatedStore, p.r.CreatedBuckets = false, 0 // they went with the transaction
		return err
	}
	p.r.CreatedFile = created
	info, err := p.Look(p.file)
	if err != nil {
		return err
	}
	p.db, err = p.Call.Open(p.file, info, &holdfast.Options{})
	return err
}

// lookFirst finds out whether there is what has to be there.
func (p *putter) lookFirst() error {
	if p.f.create {
		return nil
	}
	err := explainBlob(p.Call, p.file, p.View(p.file, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		if p.into != nil {
			if _, err := p.Locate(p.file, tx, p.into); err != nil {
				return cli.WithCreate(cli.WithSlash(tx, p.into, err))
			}
		}
		s, err := store(p.Call.App, p.file, tx, p.path)
		if err != nil {
			return cli.WithCreate(err)
		}
		return p.sameOptions(s.Options())
	}))
	return p.HintCreate(p.file, err)
}

// begin opens the store, and creates it where it does not exist.
func (p *putter) begin(tx *holdfast.Tx) error {
	if err := p.NotInside(p.file, tx, p.path); err != nil {
		return err
	}
	at, created, err := p.LocateOrCreate(p.file, tx, p.path, p.f.create)
	if err != nil {
		return cli.WithCreate(cli.WithSlash(tx, p.path, err))
	}
	if p.r.CreatedBuckets = created; created == 0 && !(p.f.create && rows.IsEmpty(at.Bucket)) {
		s, err := p.OpenStore(p.file, at, p.path)
		if err != nil {
			return err
		}
		return p.sameOptions(s.Options())
	}
	p.r.CreatedStore = true
	if key, err := p.BlobKey(); err != nil || key != p.options.Key {
		return cmp.Or(err, cli.Usagef("a key is given, and the new store would not be encrypted: --encrypt has it be, or leave the key out"))
	}
	_, err = blob.Create(at.Bucket, p.options)
	return err
}

// sameOptions is an error if the command line asks for a store that is made otherwise.
func (p *putter) sameOptions(has blob.Options) error {
	changed := p.Cmd.Flags().Changed
	wrong := func(flag, is, want string) error {
		return &cli.FileError{File: p.file, What: fmt.Sprintf("store %s has --%s %s, and not %s", cli.BriefPath(p.path), flag, is, want),
			Next: "that stays as it was created; give another store", Err: blob.ErrOptions}
	}
	switch {
	case changed("algorithm") && has.Algorithm != p.options.Algorithm:
		return wrong("algorithm", has.Algorithm.String(), p.f.algorithm)
	case changed("chunking") && has.Chunking != p.options.Chunking:
		return wrong("chunking", has.Chunking.String(), p.f.chunking)
	case changed("compress") && has.Compression != p.options.Compression:
		return wrong("compress", has.Compression.String(), p.f.compress)
	case p.options.LeafSize != 0 && has.LeafSize != p.options.LeafSize:
		return wrong("leaf-size", fmt.Sprint(has.LeafSize), size.Text(p.f.leafSize))
	}
	return nil
}

// print prints what was stored.
func (p *putter) print() error {
	switch {
	case p.f.quiet:
		for _, b := range p.r.Blobs {
			fmt.Fprintln(p.Out, b.name())
		}
		return nil
	case p.JSON:
		if len(p.r.Blobs) == 0 && !p.r.CreatedFile && !p.r.CreatedStore {
			return nil
		}
		return p.PrintJSON(p.r)
	}
	if p.r.CreatedFile {
		fmt.Fprintf(p.Out, "created the database %s\n", cli.OneLine(p.file))
	}
	if p.r.CreatedStore {
		fmt.Fprintf(p.Out, "created the store %s\n", cli.PathText(p.path))
	}
	for _, b := range p.r.Blobs {
		was := "new"
		if b.Existed {
			was = fmt.Sprintf("it was there already, and has %s now", cli.Plural(b.Users, "user"))
		}
		from := ""
		if b.Resumed > 0 {
			from = fmt.Sprintf(", from %s on", cli.Size(b.Resumed))
		}
		fmt.Fprintf(p.Out, "%s  %s%s (%s)\n", b.name(), cli.SizeExactly(b.Bytes), from, was)
		if b.Digest != "" && b.Reference != b.Digest {
			fmt.Fprintf(p.Out, "%s\n", b.Reference)
		}
		if b.Key != "" {
			fmt.Fprintf(p.Out, "key %s in %s refers to it\n", b.Key, cli.PathText(p.into))
		}
	}
	return nil
}
