package inspect

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
)

const doctorHelp = `Tell in plain words how a database is: how much of the file is in use and how
much is free, what a commit that changes one key writes, and what to do next.

All figures are computed from the file, which is checked as by check, and not changed.

Of a damaged file it tells what is sound, which buckets are at risk and what to do; the
exit code is then 3, as that of check. It names the first fault: check prints all.

Of several files each has its verdict before that: sound, bloated if much of it is not needed,
or damaged; the exit code is 3 if any of them is damaged, and 1 if any other cannot be looked at.`

// compactFill is the share to which compaction fills pages, about: to the end, but
// elements do not end there.
const compactFill = 0.9

// compactPages are those of a compacted file that hold no data: its freelist,
// and a page that its last transaction gave up.
const compactPages = 2

// maxKnownBuckets is how many names of buckets are looked at to know the program. None
// that is known has more.
const maxKnownBuckets = 32

// Vacuum, or compaction, is advised if it gives back so much of the file: with less
// the file would soon be as long again by what a program commonly writes.
const (
	worthShare = 0.25
	worthBytes = 2 << 20 // a file of that size is never bloated
)

// freelistHeavy is how many times larger than the rest of a commit the
// freelist is when it is spoken of as a trouble.
const freelistHeavy = 4

// What a commit takes besides writing pages.
const (
	bboltFlushes       = 2
	holdfastFlushes    = 1
	holdfastCloseMetas = 2 // that closing writes after commits
)

type doctorReport struct {
	File           string       `json:"file"`
	Verdict        string       `json:"verdict"` // sound or bloated
	SizeBytes      int64        `json:"size_bytes"`
	PageSize       int64        `json:"page_size_bytes"`
	HighWater      int64        `json:"high_water_pages"`
	LivePages      int64        `json:"live_pages"` // that hold buckets, keys and values
	LiveBytes      int64        `json:"live_bytes"` // of these pages
	UsedBytes      int64        `json:"used_bytes"` // that are filled in them
	FreePages      int64        `json:"free_pages"`
	FreeBytes      int64        `json:"free_bytes"`
	Keys           int64        `json:"keys"`
	Buckets        int64        `json:"buckets"`
	FreeRecorded   bool         `json:"free_pages_recorded"`
	RecordPages    int64        `json:"record_pages"` // that the record takes, besides a part of the meta page
	FreelistStored bool         `json:"freelist_stored"`
	FreelistPages  int64        `json:"freelist_pages"` // that it takes itself
	BboltBehind    bool         `json:"bbolt_behind"`
	Unflushed      bool         `json:"unflushed"`
	Notes          []string     `json:"notes"`
	Seals          sealReport   `json:"seals"` // of the pages that were checked: all in use
	Commit         commitReport `json:"one_key_commit"`
	CompactedBytes int64        `json:"compacted_bytes_estimate"`
	GivenBackBytes int64        `json:"given_back_bytes_estimate"`
	WorthIt        bool         `json:"compaction_advised"`
	Program        string       `json:"program"`             // that keeps such a database; "" if it is not known
	DiskFree       *int64       `json:"disk_free_bytes"`     // of its disk; null where nothing is advised, or the system does not tell
	Next           []string     `json:"next"`                // command lines, which work in place
	NextCopy       []string     `json:"next_copy"`           // in place of them, if a copy is wanted
	InUseBy        *int         `json:"in_use_by,omitempty"` // process

	program *program
}

// commitReport is what a commit that changes one key writes.
type commitReport struct {
	Bucket            []string `json:"bucket"`
	path              string
	PathPages         int64 `json:"path_pages"`
	PathBytes         int64 `json:"path_bytes"`
	MetaBytes         int64 `json:"meta_bytes"`
	FreelistBytes     int64 `json:"freelist_bytes"`
	Bbolt             int64 `json:"bbolt_bytes"`
	BboltNoFreelist   int64 `json:"bbolt_no_freelist_sync_bytes"`
	OpenScanPages     int64 `json:"bbolt_no_freelist_sync_open_scan_pages"`
	BboltFlushes      int64 `json:"bbolt_flushes"`
	Holdfast          int64 `json:"holdfast_bytes"`
	HoldfastFlushes   int64 `json:"holdfast_flushes"`
	HoldfastCloseOnce int64 `json:"holdfast_close_bytes"`
}

func newDoctor(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor FILE...",
		Short: "Explain the state of a database and say what to do",
		Long:  doctorHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.Action(runDoctor),
	}
}

func runDoctor(c *cli.Call) error {
	if len(c.Args) > 1 {
		return eachFile(c, func(file string) (finding, error) {
			r, err := examine(c, file)
			if cli.IsDamage(err) {
				return damaged(c, file, err)
			}
			if err != nil {
				return finding{}, err
			}
			return finding{r.Verdict, r, func() { printDoctor(c, r) }}, nil
		})
	}
	r, err := examine(c, c.Args[0])
	switch {
	case cli.IsDamage(err):
		return doctorDamaged(c, c.Args[0], err)
	case err != nil:
		return err
	case c.JSON:
		return c.PrintJSON(r)
	}
	printDoctor(c, r)
	return nil
}

// examine finds out everything that doctor tells.
func examine(c *cli.Call, path string) (*doctorReport, error) {
	r := &doctorReport{File: path, Notes: []string{}, Next: []string{}, NextCopy: []string{}}
	err := c.View(path, true, func(d *cli.Database, tx *holdfast.Tx) error {
		stop := c.Progress("reading "+cli.Size(tx.Size()), 0, nil)
		defer stop()
		return r.fill(c, d, tx)
	})
	if err != nil {
		return nil, err
	}
	r.advise()
	if r.Verdict = verdictSound; r.WorthIt {
		r.Verdict = verdictBloated
	}
	return r, nil
}

func (r *doctorReport) fill(c *cli.Call, d *cli.Database, tx *holdfast.Tx) error {
	slots, err := d.Metas()
	if err != nil {
		return err
	}
	m := d.Newest(slots, tx)
	stats, state := d.Stats(), d.FileState()
	r.BboltBehind, r.Unflushed, r.FreeRecorded = state.BboltBehind, state.Unflushed, stats.OpenPath == holdfast.OpenedByRecord
	if pid, shared := d.SharedBy(); shared { // which writes to what the notes are about
		r.InUseBy, r.FreeRecorded = &pid, state.FreeRecorded
	} else {
		r.Notes = append(r.Notes, d.Notes(slots)...)
	}
	r.SizeBytes, r.PageSize = d.FileSize, int64(m.PageSize)
	r.HighWater, r.FreePages = int64(m.HighWater), int64(stats.FreePageN+stats.PendingPageN)
	if m.Freelist != page.NoFreelist {
		list, err := d.Freelist(m)
		if err != nil {
			return err
		}
		r.FreelistStored, r.FreelistPages = true, int64(list.Pages)
	}
	r.FreeBytes = r.FreePages * r.PageSize
	root, err := rootUsage(d.File, m)
	if err != nil {
		return err
	}
	if err := r.fillTree(tx, root); err != nil {
		return err
	}
	if err := r.fillVacuum(c, d); err != nil {
		return err
	}
	if err := r.fillCommit(d, m, tx); err != nil {
		return err
	}
	return r.checkAll(tx)
}

// fillVacuum has vacuum say what it would leave. It knows how elements fill pages: of values of a quarter of a
// page and more 90% of it is too much to hope for. Only the process that has the file open can ask it.
func (r *doctorReport) fillVacuum(c *cli.Call, d *cli.Database) error {
	if d.InUse() {
		return nil
	}
	found, err := d.Vacuum(c.Ctx, holdfast.VacuumOptions{DryRun: true})
	if err != nil {
		return err
	}
	r.CompactedBytes = min(max(r.CompactedBytes, found.Expected), r.SizeBytes)
	r.GivenBackBytes = r.SizeBytes - r.CompactedBytes
	return nil
}

// metByCheck is damage that shows only when all of a file is checked: what can be read of it can
// be wrong, as keys out of order are.
type metByCheck struct{ error }

func (e metByCheck) Unwrap() error { return e.error }

// checkAll checks all pages, as check does: a file is not called sound otherwise.
func (r *doctorReport) checkAll(tx *holdfast.Tx) error {
	var seals holdfast.SealCounts
	for err := range tx.Check(holdfast.WithKVStringer(cli.Stringer{}), holdfast.WithSealCounts(&seals)) {
		return metByCheck{err}
	}
	r.Seals = sealReport(seals)
	return nil
}

// fillTree counts what is in the pages, and estimates what compaction leaves.
// root is what the pages of the root bucket take.
func (r *doctorReport) fillTree(tx *holdfast.Tx, root usage) error {
	var sum holdfast.BucketStats
	var estimate int64
	var names []string
	err := cli.EachTop(tx, func(name []byte, b *holdfast.Bucket) error {
		if len(names) < maxKnownBuckets && len(name) <= holdfast.MaxKeySize {
			names = append(names, string(name))
		}
		s := b.Stats()
		sum.Add(s)
		estimate += r.compacted(s)
		return tx.Err()
	})
	if err != nil {
		return err
	}
	if r.program = programOf(r.File, names); r.program != nil {
		r.Program = r.program.name
	}
	r.Buckets = int64(sum.BucketN)
	r.UsedBytes = int64(sum.BranchInuse+sum.LeafInuse) + root.used
	r.LivePages = int64(sum.BranchPageN+sum.BranchOverflowN+sum.LeafPageN+sum.LeafOverflowN) + int64(root.pages)
	r.LiveBytes = r.LivePages * r.PageSize
	if r.FreeRecorded {
		r.RecordPages = max(r.HighWater-int64(page.FirstDataPage)-r.LivePages-r.FreePages-r.FreelistPages, 0)
	}
	others := (int64(page.FirstDataPage) + compactPages) * r.PageSize
	r.CompactedBytes = min(estimate+int64(root.pages)*r.PageSize+others, r.SizeBytes)
	r.GivenBackBytes = r.SizeBytes - r.CompactedBytes
	return nil
}

// compacted is about how many bytes a bucket takes after compaction.
func (r *doctorReport) compacted(s holdfast.BucketStats) int64 {
	filled := func(inuse, alloc int) int64 {
		pages := int64(math.Ceil(float64(inuse) / compactFill / float64(r.PageSize)))
		return min(pages*r.PageSize, int64(alloc))
	}
	least := int64(s.BucketN-s.InlineBucketN) * r.PageSize // each has a page at least
	return max(filled(s.LeafInuse, s.LeafAlloc), least) + filled(s.BranchInuse, s.BranchAlloc)
}

// fillCommit computes what a commit writes that changes one key: the middle one
// of the bucket with the most keys.
func (r *doctorReport) fillCommit(d *cli.Database, m page.Meta, tx *holdfast.Tx) error {
	largest := census{}
	if err := largest.take(cli.Container{Tx: tx}, nil); err != nil {
		return err
	}
	if err := tx.Err(); err != nil {
		return err
	}
	r.Keys = largest.total
	in, key := cli.Container{Tx: tx}, []byte(nil)
	for _, name := range largest.path {
		in.Bucket = in.Child(name)
	}
	cursor := in.NewCursor()
	key, _ = cursor.First()
	for range largest.keys / 2 {
		if next, _ := cursor.Next(); next != nil {
			key = next
		}
	}
	pages, err := commitPages(d.File, m, largest.path, key)
	if err != nil {
		return err
	}
	list := int64(page.FreelistSize(uint64(r.FreePages)))/r.PageSize + 1
	c := &r.Commit
	c.Bucket, c.path = cli.PathNames(largest.path), cli.PathText(largest.path)
	c.PathPages, c.PathBytes, c.MetaBytes = int64(pages), int64(pages)*r.PageSize, r.PageSize
	c.FreelistBytes = list * r.PageSize
	c.BboltNoFreelist = c.PathBytes + c.MetaBytes
	c.Bbolt = c.BboltNoFreelist + c.FreelistBytes
	c.OpenScanPages = r.LivePages
	c.Holdfast = c.PathBytes + c.MetaBytes
	c.HoldfastCloseOnce = c.FreelistBytes + holdfastCloseMetas*c.MetaBytes
	c.BboltFlushes, c.HoldfastFlushes = bboltFlushes, holdfastFlushes
	return nil
}

func (r *doctorReport) advise() {
	r.WorthIt = r.GivenBackBytes >= worthBytes && r.largeShare()
	if r.WorthIt {
		if free, ok := diskFree(r.File); ok {
			r.DiskFree = &free
		}
		r.Next = r.program.vacuumLines(r.File)
		named := r.File
		if target, err := filepath.EvalSymlinks(named); err == nil && isLink(named) { // mv would replace the link, and leave the file as it is
			named = target
		}
		file, copied := cli.ShellWord(named), cli.ShellWord(named+".compact")
		r.NextCopy = append(r.NextCopy, fmt.Sprintf("holdfast compact -o %s %s && mv %s %s", copied, file, copied, file))
	}
}

// isLink tells whether path is a symbolic link.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// largeShare tells whether compaction gives back much of the file, be it large
// or small.
func (r *doctorReport) largeShare() bool {
	return float64(r.GivenBackBytes) >= worthShare*float64(r.SizeBytes)
}

// halfFilled tells whether what compaction gives back is mostly room in pages
// that are in use, and not whole pages.
func (r *doctorReport) halfFilled() bool {
	whole := r.SizeBytes - int64(page.FirstDataPage)*r.PageSize - r.LiveBytes
	return whole < r.GivenBackBytes/2
}

// copyRoom is how much room a compacted copy needs on the disk while it is made, at most:
// elements that leave a page half empty are not in the estimate, and the copy grows by
// a step at a time, at first to twice what it needs.
func (r *doctorReport) copyRoom() int64 {
	need := r.CompactedBytes + r.CompactedBytes/4
	return need + min(need, cli.CompactGrowth)
}

// fits tells whether the disk has room for a compacted copy, as far as it is known.
func (r *doctorReport) fits() bool {
	return r.DiskFree == nil || *r.DiskFree >= r.copyRoom()
}

// census counts keys and finds the bucket that has the most of its own.
type census struct {
	total int64 // keys in all buckets
	keys  int64 // in the bucket at path
	path  [][]byte
}

// maxNesting bounds the buckets in buckets that are followed.
const maxNesting = 1000

func (s *census) take(in cli.Container, path [][]byte) error {
	if len(path) > maxNesting {
		return fmt.Errorf("buckets are nested more than %d deep", maxNesting)
	}
	var own int64
	cursor := in.NewCursor()
	for k, v := cursor.First(); k != nil; k, v = cursor.Next() {
		if v != nil {
			own++
			continue
		}
		child := in.Child(k)
		if child == nil {
			return in.Tx.Err()
		}
		if err := s.take(cli.Container{Tx: in.Tx, Bucket: child}, append(path[:len(path):len(path)], k)); err != nil {
			return err
		}
	}
	s.total += own
	if own > s.keys {
		s.keys, s.path = own, path
	}
	return nil
}
