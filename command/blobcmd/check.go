package blobcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/blob"
	"holdfast/command/cli"
)

const blobCheckHelp = `Check a store: that each chunk is there that a blob consists of, that it is used as often as is
counted, and that nothing lies in the store that is not counted. Each fault is a line, the last says OK
if there is none. The exit code is 3 if there are faults that are not repaired.

With --data all content is read and compared with its digests; without it, that of the trees above it.
"holdfast check" looks at the pages of the file, whatever is in them.

With --digests each blob whose SHA-256 as a whole is recorded is read as a whole, and that compared.

Where the file itself is damaged, what cannot be read there is a fault, and the check goes on with the rest.
Nothing is repaired in such a file: salvage it first.

--repair mends counts and marks, and removes bytes that cannot be reached. It loses no content, and brings none
back: but what is missing is stored again when the same content is put again, which without this repair is
taken for stored. With --discard, which implies --data, pieces whose content is wrong are deleted too: they are
missing then. It writes to the file, in one transaction; everything else only reads.`

type blobCheckFlags struct {
	cli.StoreName
	data, digests, repair, discard bool
}

type blobCheckReport struct {
	File      string       `json:"file"`
	Store     []string     `json:"store"`
	OK        bool         `json:"ok"` // nothing is wrong, or not any more
	Faults    []blobFault  `json:"faults"`
	Truncated bool         `json:"truncated"` // there are more faults
	Count     int64        `json:"fault_count"`
	Repaired  int64        `json:"repaired"`
	Damaged   string       `json:"damaged,omitempty"` // why nothing was repaired: the file itself is damaged
	Checked   blobsChecked `json:"checked"`

	unreadable bool
	lacks      bool // content is missing, or was deleted
	wrong      bool // content is wrong, and is there still
}

type blobsChecked struct {
	Leaves   int64 `json:"leaves"`
	Nodes    int64 `json:"nodes"`
	Bytes    int64 `json:"bytes"`
	Verified int64 `json:"verified_bytes"`
	Dead     int64 `json:"dead_chunks"`
	Digests  int64 `json:"whole_digests"` // of blobs that were compared
}

type blobFault struct {
	Kind     string `json:"kind"`
	Chunk    string `json:"chunk,omitempty"`
	Level    uint8  `json:"level"`
	Detail   string `json:"detail"`
	Repaired bool   `json:"repaired"`
	Deleted  bool   `json:"deleted"` // its content was wrong, and is missing now
}

func newBlobCheck(a *cli.App) *cobra.Command {
	var f blobCheckFlags
	cmd := &cobra.Command{
		Use:   "check FILE STORE",
		Short: "Check a store of blobs, and mend it",
		Long:  blobCheckHelp,
		Args:  cobra.ExactArgs(2),
		RunE: a.Action(func(c *cli.Call) error {
			if f.discard && !f.repair {
				return cli.Usagef("--discard is for --repair")
			}
			f.data = f.data || f.discard
			return blobCheck(c, f)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.data, "data", false, "read all content, and compare it with its digests")
	flags.BoolVar(&f.digests, "digests", false, "read blobs as a whole, and compare with the SHA-256 that is recorded of them")
	flags.BoolVar(&f.repair, "repair", false, "mend what can be mended; this writes to the file")
	flags.BoolVar(&f.discard, "discard", false, "with --repair: delete pieces whose content is wrong, so that they can be stored again")
	f.AddStoreFlag(cmd)
	return cmd
}

func blobCheck(c *cli.Call, f blobCheckFlags) error {
	file, path, err := fileAndStore(c, f.StoreName)
	if err != nil {
		return err
	}
	r := &blobCheckReport{File: file, Store: cli.PathNames(path), Faults: []blobFault{}}
	if f.repair {
		ctx, stop := c.Interruptible()
		defer stop()
		err = changeStore(c, file, path, func(d *cli.Database) error {
			return d.Update(func(tx *holdfast.Tx) error {
				s, err := store(c.App, file, tx, path)
				if err != nil {
					return err
				}
				return checkStore(c, ctx, s, f, r)
			})
		})
		if ctx.Err() != nil && err != nil {
			return &cli.FileError{File: file, What: "interrupted, nothing was repaired", Err: ctx.Err()}
		}
		var damage *holdfast.CorruptError
		if errors.As(err, &damage) && r.Count > 0 {
			r.Damaged, err = damage.Error(), nil // the faults say it; nothing was repaired
			for i := range r.Faults {
				r.Faults[i].Repaired, r.Faults[i].Deleted = false, false
			}
		}
	} else {
		err = viewStore(c, f.StoreName, func(_ *cli.Database, b *blobs) error { return checkStore(c, c.Ctx, b.Store, f, r) })
	}
	if cli.IsDamage(err) {
		return &damagedFile{err}
	}
	if err != nil {
		return err
	}
	r.OK = r.Count == r.Repaired
	err = c.Report(r, func() { printBlobCheck(c, r) })
	if err != nil || r.OK {
		return err
	}
	next := r.next(f.repair)
	if r.unreadable || r.Damaged != "" {
		next = ""
	}
	return &storeFailure{file, int(r.Count - r.Repaired), next}
}

// damagedFile is the error of a check that could not go through a store as the file is damaged: that is
// damage found.
type damagedFile struct{ err error }

func (e *damagedFile) Error() string { return e.err.Error() }

func (e *damagedFile) Unwrap() []error { return []error{e.err, cli.ErrDamaged} }

// next says what to do about the faults that are left. A repair brings no content back, and without one a put takes for
// stored what the index has.
func (r *blobCheckReport) next(repaired bool) string {
	const again = "put the same content again (each put adds a user)"
	switch {
	case !repaired && r.wrong:
		return "run it with --repair --discard, then " + again
	case !repaired && r.lacks:
		return "run it with --repair, then " + again
	case !repaired:
		return "run it with --repair"
	case r.wrong:
		return "what is wrong stays until it is deleted: run it with --repair --discard, then " + again
	case r.lacks:
		return again + " and it is whole"
	}
	return "what is left is not repaired: delete it, or make the store anew from its blobs"
}

// storeFailure is the error of a check that found faults in a store.
type storeFailure struct {
	file   string
	faults int
	next   string // "": pages of the file are damaged
}

func (e *storeFailure) Error() string {
	if e.next == "" {
		return fmt.Sprintf("%s: the file itself is damaged (%s in the store); nothing is repaired in it: see what check says, and salvage it",
			e.file, cli.Plural(e.faults, "fault"))
	}
	return fmt.Sprintf("%s: the store is damaged (%s); %s", e.file, cli.Plural(e.faults, "fault"), e.next)
}

func (e *storeFailure) Unwrap() error { return cli.ErrDamaged }

func checkStore(c *cli.Call, ctx context.Context, s *blob.Store, f blobCheckFlags, r *blobCheckReport) error {
	stop := c.Progress("checking", 0, nil)
	defer stop()
	stats, err := s.Check(ctx, blob.CheckOptions{Data: f.data, Digests: f.digests, Repair: f.repair, Discard: f.discard}, func(p blob.Problem) error {
		r.unreadable = r.unreadable || p.Kind == blob.Unreadable
		if !p.Repaired {
			r.wrong = r.wrong || p.Kind == blob.WrongContent && !p.Discarded
			r.lacks = r.lacks || p.Discarded || p.Kind == blob.MissingBytes || p.Kind == blob.MissingChunk
		}
		if len(r.Faults) == cli.MaxFaults {
			r.Truncated = true
			return nil
		}
		fault := blobFault{Kind: p.Kind.String(), Level: p.Level, Detail: p.Detail, Repaired: p.Repaired, Deleted: p.Discarded}
		if p.Chunk != (blob.Address{}) {
			fault.Chunk = p.Chunk.String()
		}
		r.Faults = append(r.Faults, fault)
		return nil
	})
	r.Count, r.Repaired = stats.Problems, stats.Repaired
	r.Checked = blobsChecked{stats.Leaves, stats.Nodes, stats.Bytes, stats.Verified, stats.Dead, stats.Digests}
	return err
}

func printBlobCheck(c *cli.Call, r *blobCheckReport) {
	for _, f := range r.Faults {
		line := f.Kind + ": "
		if f.Chunk != "" {
			line += "chunk " + f.Chunk + ": "
		}
		line += cli.OneLine(f.Detail)
		switch {
		case f.Repaired:
			line += " " + c.Paint(cli.Green, "(repaired)")
		case f.Deleted:
			line += " " + c.Paint(cli.Yellow, "(deleted: put the same content again)")
		}
		fmt.Fprintln(c.Out, line)
	}
	if r.Truncated {
		fmt.Fprintf(c.Out, "and more: %s in all\n", cli.Count(r.Count))
	}
	if r.OK {
		fmt.Fprintln(c.Out, c.Paint(cli.Green, "OK"))
	}
	fmt.Fprintf(c.Out, "%s and %s, %s; %s compared with their digests\n", leavesText(r.Checked.Leaves), cli.Plural(r.Checked.Nodes, "node"), cli.Size(r.Checked.Bytes), cli.Size(r.Checked.Verified))
	if r.Checked.Digests > 0 {
		fmt.Fprintf(c.Out, "%s compared as a whole\n", cli.Plural(r.Checked.Digests, "blob"))
	}
}
