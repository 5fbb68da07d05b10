package blobcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
)

const blobRmHelp = `Take a user from each blob, and free what is not used any more.

A blob that was put twice, or that rows refer to, has more users: it stays until the last of them is taken. What
other blobs have too stays in any case. A row that refers to a blob keeps its reference: take
no more users than you have put. So REF is no row here: "stat" prints the digest of a row's blob, and
"holdfast delete" deletes the row.

Space is freed in small transactions. An interruption does not matter: what is left is freed by the next
rm or gc. The file gets shorter by "holdfast vacuum".

--unfinished drops a put that was interrupted, by the name that it was given; --lease releases a lease, as of push and
pull, with what it holds. --dry-run says
how much would be freed, with what gc would free now, and opens the file for reading.`

type blobRmFlags struct {
	cli.StoreName
	dryRun             bool
	unfinished, leases []string
}

type blobRmReport struct {
	File    string         `json:"file"`
	Store   []string       `json:"store"`
	DryRun  bool           `json:"dry_run"`
	Blobs   []removed      `json:"blobs"`
	Dropped []ingestReport `json:"unfinished"`
	// Released are leases.
	Released []leaseReport `json:"released,omitempty"`
	Freed    *freed        `json:"freed,omitempty"`
}

// removed is a blob that lost a user.
type removed struct {
	refReport
	Users uint64 `json:"users_left"`
}

// freed is what a collection has done, or in a dry run would do: then chunks and bytes only.
type freed struct {
	Chunks       int64 `json:"chunks"`
	Bytes        int64 `json:"bytes"`
	Leases       int64 `json:"leases"`
	Ingests      int64 `json:"unfinished"` // that had expired
	Transactions int   `json:"transactions"`
	LongestUS    int64 `json:"longest_us"`
	Damaged      int   `json:"damaged_chunks"`
}

func newBlobRm(a *cli.App) *cobra.Command {
	var f blobRmFlags
	cmd := &cobra.Command{
		Use:   "rm FILE STORE [REF...]",
		Short: "Remove blobs, and free what is not used any more",
		Long:  blobRmHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(f.leases) > 0 && f.dryRun:
				return cli.Usagef("--lease is not for --dry-run; blob stat shows leases")
			case len(args) == 2 && len(f.unfinished)+len(f.leases) == 0:
				return cli.Usagef("REF is missing")
			}
			return cobra.MinimumNArgs(2)(cmd, args)
		},
		RunE: a.Action(func(c *cli.Call) error { return blobRm(c, f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be freed")
	flags.StringArrayVar(&f.unfinished, "unfinished", nil, "drop the unfinished put of this `name`; can be given several times")
	flags.StringArrayVar(&f.leases, "lease", nil, "release the lease of this `id`; can be given several times")
	f.AddStoreFlag(cmd)
	return cmd
}

func blobRm(c *cli.Call, f blobRmFlags) error {
	file, path, err := fileAndStore(c, f.StoreName)
	if err != nil {
		return err
	}
	r := &blobRmReport{File: file, Store: cli.PathNames(path), DryRun: f.dryRun, Blobs: []removed{}, Dropped: []ingestReport{}}
	if f.dryRun {
		err = viewStore(c, f.StoreName, func(_ *cli.Database, b *blobs) error { return wouldRemove(c, b, f, r) })
	} else {
		err = changeStore(c, file, path, func(d *cli.Database) error {
			err := d.Update(func(tx *holdfast.Tx) error {
				s, err := store(c.App, file, tx, path)
				if err != nil {
					return err
				}
				return removeBlobs(c, &blobs{Store: s, call: c, file: file, path: path}, f, r)
			})
			if err == nil {
				r.Freed, err = collect(c, d, path)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	return c.Report(r, func() { printRemoved(c, r) })
}

// changeStore opens the database for writing, in which the store at path is.
func changeStore(c *cli.Call, file string, path [][]byte, fn func(d *cli.Database) error) error {
	info, err := c.Look(file)
	if err == nil {
		err = lookStore(c, file, path)
	}
	if err != nil {
		return err
	}
	return explainBlob(c, file, c.Change(file, info, fn))
}

// removeBlobs takes a user from each blob.
func removeBlobs(c *cli.Call, b *blobs, f blobRmFlags, r *blobRmReport) error {
	for _, name := range c.Args[2:] {
		ref, err := b.resolve(name)
		if err != nil {
			return err
		}
		e := removed{}
		if e.refReport, err = b.report(ref); err != nil {
			return err
		}
		err = b.Delete(ref)
		if errors.Is(err, blob.ErrNotFound) {
			return b.noUser(name, err, ref)
		}
		if err == nil {
			e.Users, err = b.Users(ref)
		}
		if err != nil {
			return err
		}
		r.Blobs = append(r.Blobs, e)
	}
	if err := b.releaseLeases(f, r); err != nil {
		return err
	}
	return b.dropIngests(f, r)
}

// releaseLeases releases leases.
func (b *blobs) releaseLeases(f blobRmFlags, r *blobRmReport) error {
	for _, id := range f.leases {
		var ids []string
		found := false
		for l, err := range b.Leases() {
			if err != nil {
				return err
			}
			ids = append(ids, cli.OneLine(l.ID))
			if l.ID == id {
				found = true
				r.Released = append(r.Released, leaseReport{ID: l.ID, Expires: timeText(l.Expires), Blobs: l.Blobs})
			}
		}
		if !found {
			e := &cli.FileError{File: b.file, What: fmt.Sprintf("no lease %s in %s", cli.Shorten(id), cli.BriefPath(b.path)), Next: "there are none", Err: errNoBlob}
			if len(ids) > 0 {
				e.Next = cli.Shorten(cli.ThereIs(ids[:min(len(ids), cli.MaxNamed)]))
			}
			return e
		}
		l, err := b.Lease(id, time.Time{})
		if err == nil {
			err = l.Release()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropIngests drops unfinished puts.
func (b *blobs) dropIngests(f blobRmFlags, r *blobRmReport) error {
	for _, name := range f.unfinished {
		in, err := b.unfinished(name)
		if err != nil {
			return err
		}
		r.Dropped = append(r.Dropped, in)
		if f.dryRun {
			continue
		}
		ingest, err := b.Ingest(name, blob.IngestOptions{})
		if err == nil {
			err = ingest.Abort()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unfinished finds the unfinished put of that name.
func (b *blobs) unfinished(name string) (ingestReport, error) {
	var names []string
	for in, err := range b.Ingests() {
		if err != nil {
			return ingestReport{}, err
		}
		if in.Name == name {
			return reportIngest(in), nil
		}
		names = append(names, in.Name)
	}
	e := &cli.FileError{File: b.file, What: fmt.Sprintf("no unfinished put %s in %s", cli.Shorten(name), cli.BriefPath(b.path)), Next: "there are none", Err: errNoBlob}
	if len(names) > 0 {
		e.Next = cli.Shorten(cli.ThereIs(names[:min(len(names), cli.MaxNamed)]))
	}
	return ingestReport{}, e
}

// wouldRemove says what removing would free.
func wouldRemove(c *cli.Call, b *blobs, f blobRmFlags, r *blobRmReport) error {
	b.tx = nil // a row is no name of a blob to remove, as in removeBlobs
	var refs []blob.Ref
	taken := map[string]uint64{}
	for _, name := range c.Args[2:] {
		ref, err := b.resolve(name)
		if err != nil {
			return err
		}
		e := removed{}
		if e.refReport, err = b.report(ref); err != nil {
			return err
		}
		if e.Users, err = b.Users(ref); err != nil {
			return err
		}
		refs = append(refs, ref)
		taken[e.Reference]++
		if n := taken[e.Reference]; n <= e.Users {
			e.Users -= n
			r.Blobs = append(r.Blobs, e)
			continue
		}
		return b.noUser(name, errNoBlob, ref)
	}
	if err := b.dropIngests(f, r); err != nil {
		return err
	}
	r.Freed = new(freed)
	var err error
	r.Freed.Chunks, r.Freed.Bytes, err = b.Reclaimable(refs, f.unfinished...)
	if errors.Is(err, blob.ErrNotFound) { // it is a lease's
		return b.noUser(strings.Join(c.Args[2:], " or "), err, refs...)
	}
	return err
}

// noUser is the error of taking a user from one of refs that has none that could be taken. Those that are left are leases.
func (b *blobs) noUser(name string, err error, refs ...blob.Ref) error {
	e := &cli.FileError{File: b.file, What: fmt.Sprintf("%s has no user that could be taken", cli.Shorten(name)), Next: "nothing was removed", Err: err}
	if slices.ContainsFunc(refs, b.isLeased) {
		e.What = fmt.Sprintf("%s has no user that could be taken but leases", cli.Shorten(name))
		e.Next += "; --lease ID releases one; see them with: " + b.line("stat")
	}
	return e
}

// isLeased tells whether a lease holds a blob.
func (b *blobs) isLeased(ref blob.Ref) bool {
	for l, err := range b.Leases() {
		if err != nil {
			continue
		}
		for held, err := range b.Leased(l.ID) {
			if err == nil && held == ref {
				return true
			}
		}
	}
	return false
}

func printRemoved(c *cli.Call, r *blobRmReport) {
	did := "removed"
	if r.DryRun {
		did = "would be removed"
	}
	for _, e := range r.Blobs {
		switch {
		case e.Users > 0:
			fmt.Fprintf(c.Out, "%s stays: it has %s left\n", e.name(), cli.Plural(e.Users, "user"))
		default:
			fmt.Fprintf(c.Out, "%s %s\n", e.name(), did)
		}
	}
	for _, in := range r.Dropped {
		fmt.Fprintf(c.Out, "unfinished put %s of %s so far %s\n", cli.OneLine(in.Name), cli.Size(in.Bytes), did)
	}
	for _, l := range r.Released {
		fmt.Fprintf(c.Out, "lease %s of %s released\n", cli.OneLine(l.ID), cli.Plural(l.Blobs, "blob"))
	}
	switch {
	case r.DryRun:
		fmt.Fprintf(c.Out, "frees %s in %s, with all that waits for it\n", cli.SizeExactly(r.Freed.Bytes), cli.Plural(r.Freed.Chunks, "chunk"))
	case r.Freed != nil:
		printFreed(c, r.Freed)
	}
}

func printFreed(c *cli.Call, f *freed) {
	fmt.Fprintf(c.Out, "freed %s in %s", cli.SizeExactly(f.Bytes), cli.Plural(f.Chunks, "chunk"))
	if f.Leases > 0 {
		fmt.Fprintf(c.Out, "; %s had expired", cli.Plural(f.Leases, "use by leases"))
	}
	if f.Ingests > 0 {
		fmt.Fprintf(c.Out, "; %s had expired", cli.Plural(f.Ingests, "unfinished put"))
	}
	fmt.Fprintln(c.Out)
}

// collect frees what is not used in the store at path.
func collect(c *cli.Call, d *cli.Database, path [][]byte) (*freed, error) {
	ctx, stop := c.Interruptible()
	defer stop()
	total, err := toFree(c, d, path)
	if err != nil {
		return nil, err
	}
	var done atomic.Int64
	end := c.Progress("freeing", max(total, 1), done.Load)
	defer end()
	open := func(tx *holdfast.Tx) (*blob.Store, error) { return store(c.App, d.FilePath, tx, path) }
	s, err := blob.Collect(ctx, d.DB, open, blob.CollectOptions{Progress: func(s blob.CollectStats) { done.Store(s.Bytes) }})
	f := &freed{s.Chunks, s.Bytes, s.Leases, s.Ingests, s.Transactions, s.Longest.Microseconds(), s.Damaged}
	line := c.StoreLine("gc", d.FilePath, path)
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return f, &cli.FileError{File: d.FilePath, What: fmt.Sprintf("interrupted after %s in %s was freed; the rest stays marked", cli.Size(f.Bytes), cli.Plural(f.Chunks, "chunk")), Next: "go on with: " + line, Err: err}
	case err == nil && s.Damaged > 0:
		return f, &cli.FileError{File: d.FilePath, What: fmt.Sprintf("%s freed in %s, and %s passed over that cannot be read: %s", cli.Size(f.Bytes), cli.Plural(f.Chunks, "chunk"), cli.Plural(s.Damaged, "chunk"), s.FirstDamaged),
			Next: "run: " + c.StoreLine("check", d.FilePath, path), Err: s.FirstDamaged}
	}
	return f, err
}

// toFree is how many bytes a collection will free at least, for the progress. Where nothing
// sees that it is not found out.
func toFree(c *cli.Call, d *cli.Database, path [][]byte) (n int64, err error) {
	if !cli.IsTerminal(c.Cmd.ErrOrStderr()) {
		return 0, nil
	}
	err = d.View(func(tx *holdfast.Tx) error {
		s, err := store(c.App, d.FilePath, tx, path)
		if err != nil {
			return err
		}
		u, err := s.Usage()
		n = u.DeadBytes
		return err
	})
	return n, err
}

const blobGCHelp = `Free what no blob, lease or unfinished put uses any more, as rm does after what it removes: what an
interrupted rm has left, rows that were replaced, and leases and unfinished puts that have expired.

That is done in small transactions, and can be interrupted at any time; the next one goes on. The file gets
shorter by "holdfast vacuum".`

type blobGCReport struct {
	File  string   `json:"file"`
	Store []string `json:"store"`
	Freed *freed   `json:"freed"`
}

func newBlobGC(a *cli.App) *cobra.Command {
	var f cli.StoreName
	cmd := &cobra.Command{
		Use:   "gc FILE STORE",
		Short: "Free what is not used any more",
		Long:  blobGCHelp,
		Args:  cobra.ExactArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return blobGC(c, f) }),
	}
	f.AddStoreFlag(cmd)
	return cmd
}

func blobGC(c *cli.Call, f cli.StoreName) error {
	file, path, err := fileAndStore(c, f)
	if err != nil {
		return err
	}
	r := blobGCReport{File: file, Store: cli.PathNames(path)}
	err = changeStore(c, file, path, func(d *cli.Database) (err error) {
		r.Freed, err = collect(c, d, path)
		return err
	})
	if err != nil {
		return err
	}
	return c.Report(r, func() { printFreed(c, r.Freed) })
}
