package blobcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast"
	"holdfast/blob"
	"holdfast/blob/exchange"
	"holdfast/command/cli"
)

const exchangeHelp = `
Of each blob only the pieces are sent that the receiving store does not have, and all are verified as
they arrive. Both stores must have the same hash, chunking and leaf size; --create makes a missing one in a file so.

The other store is in a file (%[1]s), by the same path unless %[1]s-store says another, or on the other end of
a command that --exec gives to the shell, and that runs "holdfast blob serve":

  holdfast blob %[2]s a.db blobs --all --exec "ssh host holdfast blob serve b.db blobs"

What is received is held by a lease of the receiving store, not by users as of put: --lease names it. It lasts until "rm
--lease" releases it, or as long as --lease-for says from the last time on. The same command again sends what is missing,
also after an interruption: what has arrived is committed after each 16 MiB, and kept for as
long as --keep-unfinished says. Rows do not come over, nor the SHA-256 of blobs of several pieces: name these by
their references, as "ls" of the receiving store prints them.`

const blobPushHelp = `Copy blobs to another store: those that are named, or --all that have users.
` + exchangeHelp

const blobPullHelp = `Copy blobs from another store: those that are named, or --all that have users. REF names
a blob of the other store; with --exec by a digest or its first digits, not by a row.
` + exchangeHelp

type exchangeFlags struct {
	cli.StoreName
	other, otherStore, exec string // other: of --to or --from
	all, create, verify     bool
	lease                   string
	leaseFor, keep          time.Duration
}

func (f *exchangeFlags) add(flags *pflag.FlagSet, other string) {
	flags.StringVar(&f.other, other, "", "file of the other store")
	flags.StringVar(&f.otherStore, other+"-store", "", "path of the other store, if it is not STORE")
	flags.StringVar(&f.exec, "exec", "", "command that serves the other store on its standard input and output")
	flags.BoolVar(&f.all, "all", false, "copy all blobs that have users")
	flags.BoolVar(&f.create, "create", false, "create the receiving file and store if they do not exist; not with --exec")
	flags.BoolVar(&f.verify, "verify", false, verifyText)
	flags.StringVar(&f.lease, "lease", "exchange", "lease of the receiving store that holds the blobs")
	cli.DurationVar(flags, &f.leaseFor, "lease-for", 0, "for how long it does; 0: until it is released")
	cli.DurationVar(flags, &f.keep, "keep-unfinished", exchange.DefaultKeep, "for how long what has arrived of a blob is kept if the rest does not")
}

func newBlobPush(a *cli.App) *cobra.Command {
	return newExchange(a, "push", "to", "Copy blobs to another store: what it does not have", blobPushHelp)
}

func newBlobPull(a *cli.App) *cobra.Command {
	return newExchange(a, "pull", "from", "Copy blobs from another store: what this one does not have", blobPullHelp)
}

func newExchange(a *cli.App, name, other, short, long string) *cobra.Command {
	var f exchangeFlags
	cmd := &cobra.Command{
		Use:   name + " FILE STORE [REF...]",
		Short: short,
		Long:  fmt.Sprintf(long, "--"+other, name),
		Args:  cobra.MinimumNArgs(2),
		RunE: a.Action(func(c *cli.Call) error {
			x := &exchanger{Call: c, f: &f, pushes: name == "push", option: "--" + other}
			return x.run()
		}),
	}
	f.add(cmd.Flags(), other)
	f.AddStoreFlag(cmd)
	return cmd
}

type exchangeReport struct {
	File         string   `json:"file"`
	Store        []string `json:"store"`
	Lease        string   `json:"lease"`
	CreatedFile  bool     `json:"created_file"`
	CreatedStore bool     `json:"created_store"`
	Blobs        int64    `json:"blobs"` // that the lease holds
	Bytes        int64    `json:"bytes"`
	Failed       int64    `json:"failed"`
	Chunks       int64    `json:"chunks"` // that were sent or received
	ChunkBytes   int64    `json:"chunk_bytes"`
}

// exchanger runs push and pull.
type exchanger struct {
	*cli.Call
	f      *exchangeFlags
	pushes bool
	option string // that gives the other file
	file   string
	path   [][]byte
	peer   peer
	db     *cli.Database
	refs   []blob.Ref
	find   []string // digits of blobs that the peer looks for
	total  int64    // bytes of the refs
	lost   error    // of a blob of --all whose reference cannot be told
	r      exchangeReport
}

func (x *exchanger) run() error {
	if err := x.arguments(); err != nil {
		return err
	}
	ctx, stop := x.Interruptible()
	defer stop()
	if err := x.resolve(); err != nil {
		return err
	}
	err := x.open()
	if err == nil {
		if err = x.exchange(ctx); err == nil {
			err = x.lost
		}
	}
	for _, d := range []*cli.Database{x.db, x.peer.db} {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	if err != nil && x.r.Blobs == 0 {
		return err
	}
	printed := x.Report(x.r, x.print) // also what was copied before an error
	if err == nil {
		err = printed
	}
	return err
}

// arguments reads the command line.
func (x *exchanger) arguments() (err error) {
	f := x.f
	if x.file, x.path, err = fileAndStore(x.Call, f.StoreName); err != nil {
		return err
	}
	x.peer = peer{flags: f, file: f.other, path: x.path}
	switch {
	case f.all == (len(x.Args) > 2):
		return cli.Usagef("give the blobs, or --all")
	case (f.other == "") == (f.exec == ""):
		return cli.Usagef("give the other store with %s or with --exec", x.option)
	case f.exec != "" && f.otherStore != "":
		return cli.Usagef("%s-store is for %s; --exec has the store in its command", x.option, x.option)
	case f.exec != "" && f.create:
		return cli.Usagef("--create is for %s; with --exec create the receiving store first, with the options of the other: %s blob create FILE STORE", x.option, x.Name())
	case f.exec != "" && f.verify && x.pushes:
		return cli.Usagef("--verify is for the store that receives; give it to blob serve in the command of --exec")
	case len(f.lease) == 0 || len(f.lease) > exchange.MaxLease:
		return cli.Usagef("--lease: an id has 1 to %d bytes", exchange.MaxLease)
	case f.keep < time.Second:
		return cli.Usagef("--keep-unfinished: give a second or more")
	}
	if f.otherStore != "" {
		if x.peer.path, err = f.Path(f.otherStore); err != nil {
			return err
		}
	}
	if info, err := os.Stat(x.file); f.other != "" && err == nil && sameFile(info, f.other) {
		return cli.Usagef("%s and %s are one file; blobs are exchanged between two", x.file, f.other)
	}
	x.r = exchangeReport{File: x.file, Store: cli.PathNames(x.path), Lease: f.lease}
	return nil
}

// resolve finds the blobs that are named, in the store that has them.
func (x *exchanger) resolve() error {
	if !x.pushes && x.peer.file == "" {
		for _, name := range x.Args[2:] {
			if ref, err := blob.ParseRef(name); err == nil {
				x.refs = append(x.refs, ref)
				continue
			}
			n, err := parseRefName(name)
			if err != nil {
				return err
			}
			x.find = append(x.find, n.digits)
		}
		return nil
	}
	file, path := x.file, x.path
	if !x.pushes {
		file, path = x.peer.file, x.peer.path
	}
	return explainBlob(x.Call, file, x.View(file, false, func(_ *cli.Database, tx *holdfast.Tx) error {
		s, err := store(x.App, file, tx, path)
		if err != nil {
			return err
		}
		b := &blobs{Store: s, call: x.Call, file: file, path: path, tx: tx}
		for _, name := range x.Args[2:] {
			ref, err := b.resolve(name)
			if err != nil {
				return err
			}
			x.add(ref)
		}
		for ref, err := range s.Roots() {
			if !x.f.all {
				break
			}
			if err != nil { // the others are copied
				if x.r.Failed++; x.lost == nil {
					x.lost = explainBlob(x.Call, file, err)
				}
				continue
			}
			x.add(ref)
		}
		return x.createLike(s.Options())
	}))
}

func (x *exchanger) add(ref blob.Ref) {
	x.refs = append(x.refs, ref)
	x.total += ref.Size()
}

// createLike creates the receiving store, where it does not exist, like the other one.
func (x *exchanger) createLike(o blob.Options) error {
	if !x.f.create {
		return nil
	}
	file, path := x.receiver()
	p := &putter{Call: x.Call, file: file, path: path, options: o, r: &blobPutReport{}}
	p.f.create = true
	created, err := x.Update(file, true, p.begin)
	x.r.CreatedFile, x.r.CreatedStore = created, p.r.CreatedStore
	return err
}

// receiver is the file that receives, and the store in it.
func (x *exchanger) receiver() (file string, path [][]byte) {
	if x.pushes {
		return x.peer.file, x.peer.path
	}
	return x.file, x.path
}

// open opens the files: the one that receives for writing, the other for reading.
func (x *exchanger) open() (err error) {
	if x.db, err = x.openFile(x.file, x.path, !x.pushes); err != nil || x.peer.file == "" {
		return err
	}
	x.peer.db, err = x.openFile(x.peer.file, x.peer.path, x.pushes)
	return err
}

func (x *exchanger) openFile(file string, path [][]byte, writes bool) (*cli.Database, error) {
	if !writes {
		return x.Read(file, false)
	}
	info, err := x.Look(file)
	if err == nil {
		err = lookStore(x.Call, file, path)
	}
	if err != nil {
		return nil, x.HintCreate(file, cli.WithCreate(err))
	}
	return x.Call.Open(file, info, &holdfast.Options{})
}

func (x *exchanger) exchange(ctx context.Context) error {
	conn, end, err := x.peer.connect(ctx, x.Call)
	if err != nil {
		return err
	}
	var done atomic.Int64
	what, run := "sending", exchange.Push
	o := exchange.Options{Lease: x.f.lease, Keep: x.f.keep, Find: x.find, Verify: x.f.verify}
	o.Progress = func(s exchange.Stats) { done.Store(max(s.Bytes, s.ChunkBytes)) }
	if !x.pushes {
		what, run, o.All = "receiving", exchange.Pull, x.f.all && x.peer.file == ""
	}
	if x.f.leaseFor > 0 {
		o.Expires = time.Now().Add(x.f.leaseFor)
	}
	stop := x.progress(what, &done)
	stats, err := run(ctx, conn, x.db.DB, storeOf(x.Call, x.file, x.path), x.refs, o)
	peerErr := end(err != nil)
	stop()
	x.r.Blobs, x.r.Bytes, x.r.Chunks, x.r.ChunkBytes = stats.Blobs, stats.Bytes, stats.Chunks, stats.ChunkBytes
	x.r.Failed += stats.Failed
	if x.Made = x.file; x.pushes {
		x.Made = x.peer.file
	}
	return x.explain(ctx, err, peerErr)
}

func (x *exchanger) progress(what string, done *atomic.Int64) (stop func()) {
	if x.total == 0 {
		return x.Progress(what, 0, nil)
	}
	return x.Progress(what, x.total, done.Load)
}

func (x *exchanger) print() {
	file, path := x.receiver()
	if x.r.CreatedFile {
		fmt.Fprintf(x.Out, "created the database %s\n", cli.OneLine(file))
	}
	if x.r.CreatedStore {
		fmt.Fprintf(x.Out, "created the store %s\n", cli.PathText(path))
	}
	fmt.Fprintf(x.Out, "%s of %s, held by the lease %s; %s in %s came over\n", cli.Plural(x.r.Blobs, "blob"), cli.SizeExactly(x.r.Bytes),
		cli.OneLine(x.f.lease), cli.SizeExactly(x.r.ChunkBytes), cli.Plural(x.r.Chunks, "chunk"))
	if x.r.Failed > 0 {
		fmt.Fprintf(x.Out, "%s not copied\n", cli.Plural(x.r.Failed, "blob"))
	}
}

const blobServeHelp = `Serve a store on standard input and output to one "blob push" or "blob pull" that runs this command by
--exec, as over ssh. It ends with the exchange.

FILE is opened for writing, or with --read-only for reading: then several can be served at a time, and blobs
pulled only. --lease has what is pushed be held by that lease, whatever the peer names; a peer that may push can
otherwise add to any lease of the store, and have it expire. --verify is for peers that are trusted: one can make
up a blob that is read without an end.`

type serveFlags struct {
	cli.StoreName
	readOnly bool
	verify   bool
	lease    string
	leaseFor time.Duration
}

func newBlobServe(a *cli.App) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve FILE STORE",
		Short: "Serve a store to blob push and blob pull, on standard input and output",
		Long:  blobServeHelp,
		Args:  cobra.ExactArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return blobServe(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.readOnly, "read-only", false, "open the file for reading, and refuse what is pushed")
	flags.BoolVar(&f.verify, "verify", false, verifyText)
	flags.StringVar(&f.lease, "lease", "", "lease that holds what is pushed")
	cli.DurationVar(flags, &f.leaseFor, "lease-for", 0, "with --lease: for how long it does; 0: until it is released")
	f.AddStoreFlag(cmd)
	return cmd
}

var errPeerGone = errors.New("the peer has gone")

// stdio is standard input and output as one connection.
type stdio struct {
	io.Reader
	io.Writer
}

func blobServe(c *cli.Call, f serveFlags) error {
	x := &exchanger{Call: c, f: &exchangeFlags{StoreName: f.StoreName}}
	var err error
	if x.file, x.path, err = fileAndStore(c, f.StoreName); err != nil {
		return err
	}
	in, out := c.Cmd.InOrStdin(), c.Cmd.OutOrStdout()
	if r, ok := in.(*os.File); ok && cli.IsTerminal(r) || cli.IsTerminal(out) {
		return cli.Usagef("serve speaks to a program; run it by --exec of blob push or blob pull")
	}
	if f.leaseFor > 0 && f.lease == "" {
		return cli.Usagef("--lease-for is for --lease")
	}
	if x.db, err = x.openFile(x.file, x.path, !f.readOnly); err != nil {
		return err
	}
	o := exchange.Options{ReadOnly: f.readOnly, Lease: f.lease, Verify: f.verify}
	if f.leaseFor > 0 {
		o.Expires = time.Now().Add(f.leaseFor)
	}
	err = exchange.Serve(c.Ctx, stdio{in, out}, x.db.DB, storeOf(c, x.file, x.path), o)
	if isBrokenPipe(err) { // of what is usually no error
		err = &cli.FileError{File: x.file, What: errPeerGone.Error(), Next: "what has arrived is kept", Err: errPeerGone}
	}
	return explainBlob(c, x.file, errors.Join(err, x.db.Close()))
}
