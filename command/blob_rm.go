package command

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
)

const blobRmHelp = `Take a user from each blob, and free what is not used any more.

A blob that was put twice, or that rows refer to, has more users: it stays until the last of them is taken. What
other blobs have too stays in any case. A row that refers to a blob keeps its reference: take
no more users than you have put.

Space is freed in small transactions. An interruption does not matter: what is left is freed by the next
rm or gc. The file gets shorter by "holdfast vacuum".

--unfinished drops a put that was interrupted, by the name that it was given. --dry-run says
how much would be freed, with what gc would free now, and opens the file for reading.`

type blobRmFlags struct {
	storeName
	dryRun     bool
	unfinished []string
}

type blobRmReport struct {
	File    string         `json:"file"`
	Store   []string       `json:"store"`
	DryRun  bool           `json:"dry_run"`
	Blobs   []removed      `json:"blobs"`
	Dropped []ingestReport `json:"unfinished"`
	Freed   *freed         `json:"freed,omitempty"`
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

func (a *app) newBlobRm() *cobra.Command {
	var f blobRmFlags
	cmd := &cobra.Command{
		Use:   "rm FILE STORE [REF...]",
		Short: "Remove blobs, and free what is not used any more",
		Long:  blobRmHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && len(f.unfinished) == 0 {
				return usagef("REF is missing")
			}
			return cobra.MinimumNArgs(2)(cmd, args)
		},
		RunE: a.action(func(c *call) error { return c.blobRm(f) }),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be freed")
	flags.StringArrayVar(&f.unfinished, "unfinished", nil, "drop the unfinished put of this name; can be given several times")
	f.addStoreFlag(cmd)
	return cmd
}

func (c *call) blobRm(f blobRmFlags) error {
	file, path, err := c.fileAndStore(f.storeName)
	if err != nil {
		return err
	}
	r := &blobRmReport{File: file, Store: pathNames(path), DryRun: f.dryRun, Blobs: []removed{}, Dropped: []ingestReport{}}
	if f.dryRun {
		err = c.viewStore(f.storeName, func(_ *database, b *blobs) error { return c.wouldRemove(b, f, r) })
	} else {
		err = c.changeStore(file, path, func(d *database) error {
			err := d.Update(func(tx *holdfast.Tx) error {
				s, err := c.store(file, tx, path)
				if err != nil {
					return err
				}
				return c.removeBlobs(&blobs{Store: s, call: c, file: file, path: path}, f, r)
			})
			if err == nil {
				r.Freed, err = c.collect(d, path)
			}
			return err
		})
	}
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(r)
	}
	c.printRemoved(r)
	return nil
}

// changeStore opens the database for writing, in which the store at path is.
func (c *call) changeStore(file string, path [][]byte, fn func(d *database) error) error {
	info, err := c.look(file)
	if err == nil {
		err = c.lookStore(file, path)
	}
	if err != nil {
		return err
	}
	return c.explainBlob(file, c.change(file, info, fn))
}

// removeBlobs takes a user from each blob.
func (c *call) removeBlobs(b *blobs, f blobRmFlags, r *blobRmReport) error {
	for _, name := range c.args[2:] {
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
			return b.noUser(name, err)
		}
		if err == nil {
			e.Users, err = b.Users(ref)
		}
		if err != nil {
			return err
		}
		r.Blobs = append(r.Blobs, e)
	}
	return b.dropIngests(f, r)
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
	e := &fileError{file: b.file, what: fmt.Sprintf("no unfinished put %s in %s", shorten(name), briefPath(b.path)), next: "there are none", err: errNoBlob}
	if len(names) > 0 {
		e.next = shorten(thereIs(names[:min(len(names), maxNamed)]))
	}
	return ingestReport{}, e
}

// wouldRemove says what removing would free.
func (c *call) wouldRemove(b *blobs, f blobRmFlags, r *blobRmReport) error {
	var refs []blob.Ref
	taken := map[string]uint64{}
	for _, name := range c.args[2:] {
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
		return b.noUser(name, errNoBlob)
	}
	if err := b.dropIngests(f, r); err != nil {
		return err
	}
	r.Freed = new(freed)
	var err error
	r.Freed.Chunks, r.Freed.Bytes, err = b.Reclaimable(refs, f.unfinished...)
	if errors.Is(err, blob.ErrNotFound) { // it is a lease's
		return b.noUser(strings.Join(c.args[2:], " or "), err)
	}
	return err
}

// noUser is the error of taking a user from a blob that has none that could be taken.
func (b *blobs) noUser(name string, err error) error {
	return &fileError{file: b.file, what: fmt.Sprintf("%s has no user that could be taken", shorten(name)), next: "nothing was removed", err: err}
}

func (c *call) printRemoved(r *blobRmReport) {
	did := "removed"
	if r.DryRun {
		did = "would be removed"
	}
	for _, e := range r.Blobs {
		switch {
		case e.Users > 0:
			fmt.Fprintf(c.out, "%s stays: it has %s left\n", e.name(), plural(e.Users, "user"))
		default:
			fmt.Fprintf(c.out, "%s %s\n", e.name(), did)
		}
	}
	for _, in := range r.Dropped {
		fmt.Fprintf(c.out, "unfinished put %s of %s so far %s\n", oneLine(in.Name), size(in.Bytes), did)
	}
	switch {
	case r.DryRun:
		fmt.Fprintf(c.out, "frees %s in %s, with all that waits for it\n", sizeExactly(r.Freed.Bytes), plural(r.Freed.Chunks, "chunk"))
	case r.Freed != nil:
		c.printFreed(r.Freed)
	}
}

func (c *call) printFreed(f *freed) {
	fmt.Fprintf(c.out, "freed %s in %s", sizeExactly(f.Bytes), plural(f.Chunks, "chunk"))
	if f.Leases > 0 {
		fmt.Fprintf(c.out, "; %s had expired", plural(f.Leases, "use by leases"))
	}
	if f.Ingests > 0 {
		fmt.Fprintf(c.out, "; %s had expired", plural(f.Ingests, "unfinished put"))
	}
	fmt.Fprintln(c.out)
}

// collect frees what is not used in the store at path.
func (c *call) collect(d *database, path [][]byte) (*freed, error) {
	ctx, stop := c.interruptible()
	defer stop()
	total, err := c.toFree(d, path)
	if err != nil {
		return nil, err
	}
	var done atomic.Int64
	end := c.progress("freeing", max(total, 1), done.Load)
	defer end()
	open := func(tx *holdfast.Tx) (*blob.Store, error) { return c.store(d.path, tx, path) }
	s, err := blob.Collect(ctx, d.DB, open, blob.CollectOptions{Progress: func(s blob.CollectStats) { done.Store(s.Bytes) }})
	f := &freed{s.Chunks, s.Bytes, s.Leases, s.Ingests, s.Transactions, s.Longest.Microseconds(), s.Damaged}
	line := c.storeLine("gc", d.path, path)
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return f, &fileError{file: d.path, what: fmt.Sprintf("interrupted after %s in %s was freed; the rest stays marked", size(f.Bytes), plural(f.Chunks, "chunk")), next: "go on with: " + line, err: err}
	case err == nil && s.Damaged > 0:
		return f, &fileError{file: d.path, what: fmt.Sprintf("%s freed in %s, and %s passed over that cannot be read: %s", size(f.Bytes), plural(f.Chunks, "chunk"), plural(s.Damaged, "chunk"), s.FirstDamaged),
			next: "run: " + c.storeLine("check", d.path, path), err: s.FirstDamaged}
	}
	return f, err
}

// toFree is how many bytes a collection will free at least, for the progress. Where nothing
// sees that it is not found out.
func (c *call) toFree(d *database, path [][]byte) (n int64, err error) {
	if !isTerminal(c.cmd.ErrOrStderr()) {
		return 0, nil
	}
	err = d.View(func(tx *holdfast.Tx) error {
		s, err := c.store(d.path, tx, path)
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

func (a *app) newBlobGC() *cobra.Command {
	var f storeName
	cmd := &cobra.Command{
		Use:   "gc FILE STORE",
		Short: "Free what is not used any more",
		Long:  blobGCHelp,
		Args:  cobra.ExactArgs(2),
		RunE:  a.action(func(c *call) error { return c.blobGC(f) }),
	}
	f.addStoreFlag(cmd)
	return cmd
}

func (c *call) blobGC(f storeName) error {
	file, path, err := c.fileAndStore(f)
	if err != nil {
		return err
	}
	r := blobGCReport{File: file, Store: pathNames(path)}
	err = c.changeStore(file, path, func(d *database) (err error) {
		r.Freed, err = c.collect(d, path)
		return err
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(r)
	}
	c.printFreed(r.Freed)
	return nil
}
