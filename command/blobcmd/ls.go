package blobcmd

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/blob"
	"holdfast/command/cli"
)

const blobLsHelp = `List the blobs of a store: digest, size, and how many users each has. A put is a user, and so is
each row that keeps a reference by "put --into" or "import --blob-columns"; rm takes one of them.`

type blobEntry struct {
	refReport
	Users uint64 `json:"users"`
}

func newBlobLs(a *cli.App) *cobra.Command {
	var f cli.StoreName
	cmd := &cobra.Command{
		Use:   "ls FILE STORE",
		Short: "List the blobs of a store",
		Long:  blobLsHelp,
		Args:  cobra.ExactArgs(2),
		RunE:  a.Action(func(c *cli.Call) error { return blobLs(c, f) }),
	}
	f.AddStoreFlag(cmd)
	return cmd
}

func blobLs(c *cli.Call, f cli.StoreName) error {
	return viewStore(c, f, func(_ *cli.Database, b *blobs) error {
		if c.JSON {
			return c.ListJSON("store", b.path, "blobs", func(add func(any) error) error {
				return b.each(func(e blobEntry) error { return add(e) })
			})
		}
		return b.each(func(e blobEntry) error { // one by one, so that any number does
			_, err := fmt.Fprintf(c.Out, "%s  %10s  %s\n", e.name(), cli.Size(e.Bytes), cli.Plural(e.Users, "user"))
			return err
		})
	})
}

// each calls fn with each blob that has users, also after one that is damaged, which is the error then.
func (b *blobs) each(fn func(blobEntry) error) error {
	var damage error
	for ref, err := range b.Roots() {
		if err != nil {
			damage = cmp.Or(damage, err)
			continue
		}
		var e blobEntry
		if e.refReport, err = b.report(ref); err != nil {
			return err
		}
		if e.Users, err = b.Users(ref); err != nil {
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return damage
}

const blobStatHelp = `Tell how a blob is stored, or with no REF what is in the store: its options, how much its
blobs would take by themselves and what they take in it, puts that are not finished, and leases.`

func newBlobStat(a *cli.App) *cobra.Command {
	var f cli.StoreName
	cmd := &cobra.Command{
		Use:   "stat FILE STORE [REF]",
		Short: "Tell how a blob is stored, or what is in a store",
		Long:  blobStatHelp,
		Args:  cobra.RangeArgs(2, 3),
		RunE: a.Action(func(c *cli.Call) error {
			if len(c.Args) == 3 {
				return blobStat(c, f)
			}
			return storeStat(c, f)
		}),
	}
	f.AddStoreFlag(cmd)
	return cmd
}

type blobStatReport struct {
	File  string   `json:"file"`
	Store []string `json:"store"`
	refReport
	Level       int    `json:"level"`
	Leaves      int64  `json:"leaves"`
	Nodes       int64  `json:"nodes"`
	Chunks      int64  `json:"chunks"` // different ones
	Content     int64  `json:"chunks_bytes"`
	Stored      int64  `json:"stored_bytes"` // of these, compressed perhaps
	Shared      int64  `json:"shared_chunks"`
	SharedBytes int64  `json:"shared_bytes"`
	Users       uint64 `json:"users"`
}

func blobStat(c *cli.Call, f cli.StoreName) error {
	return viewStore(c, f, func(_ *cli.Database, b *blobs) error {
		ref, err := b.resolve(c.Args[2])
		if err != nil {
			return err
		}
		s, err := b.Stat(ref)
		if err != nil {
			return err
		}
		r := blobStatReport{File: b.file, Store: cli.PathNames(b.path), Level: s.Level, Leaves: s.Leaves, Nodes: s.Nodes, Chunks: s.Chunks,
			Content: s.Content, Stored: s.Stored, Shared: s.Shared, SharedBytes: s.SharedBytes, Users: s.Users}
		if r.refReport, err = b.report(ref); err != nil {
			return err
		}
		if c.JSON {
			return c.PrintJSON(r)
		}
		lines := [][2]string{}
		if r.Digest != "" {
			lines = append(lines, [2]string{"Digest", r.Digest})
		}
		lines = append(lines, [][2]string{
			{"Reference", r.Reference},
			{"Size", cli.SizeExactly(r.Bytes)},
			{"Tree", fmt.Sprintf("%s and %s above them", leavesText(r.Leaves), cli.Plural(r.Nodes, "node"))},
			{"Stored", fmt.Sprintf("%s in %s%s", cli.SizeExactly(r.Stored), cli.Plural(r.Chunks, "different chunk"), ratioText(r.Stored, r.Content))},
			{"Shared", fmt.Sprintf("%s in %s that others use too, or this blob more than once", cli.Size(r.SharedBytes), cli.Plural(r.Shared, "chunk"))},
			{"Users", cli.Count(r.Users)},
		}...)
		cli.Rows(c.Out, lines...)
		return nil
	})
}

type storeStatReport struct {
	File       string         `json:"file"`
	Store      []string       `json:"store"`
	Algorithm  string         `json:"algorithm"`
	Chunking   string         `json:"chunking"`
	LeafSize   int            `json:"leaf_bytes"`
	Compress   string         `json:"compression"`
	Encrypted  bool           `json:"encrypted"`
	Blobs      int64          `json:"blobs"`
	Users      uint64         `json:"users"`
	Content    int64          `json:"content_bytes"` // of the blobs, each counted once
	Leaves     int64          `json:"leaves"`
	LeafBytes  int64          `json:"leaves_bytes"`         // as they are stored
	Expanded   int64          `json:"leaves_content_bytes"` // before compression
	Live       int64          `json:"live_content_bytes"`   // of those that are not dead
	Compressed int64          `json:"compressed_leaves"`
	Nodes      int64          `json:"nodes"`
	NodeBytes  int64          `json:"nodes_bytes"`
	Packed     int64          `json:"packed_chunks"`
	Dead       int64          `json:"dead_chunks"`
	DeadBytes  int64          `json:"dead_bytes"`
	Digests    int64          `json:"digests"`
	Unreadable int64          `json:"unreadable"`
	Ingests    []ingestReport `json:"unfinished"`
	Leases     []leaseReport  `json:"leases"`
}

// ingestReport is a put that is not finished.
type ingestReport struct {
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`   // that are stored
	Saved   string `json:"saved"`   // when that was
	Expires string `json:"expires"` // "": never
}

func reportIngest(in blob.IngestInfo) ingestReport {
	return ingestReport{in.Name, in.Offset, timeText(in.Saved), timeText(in.Expires)}
}

// timeText writes when something expires, or was; "": never.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

type leaseReport struct {
	ID      string `json:"id"`
	Expires string `json:"expires"` // "": never
	Blobs   int    `json:"blobs"`
}

func storeStat(c *cli.Call, f cli.StoreName) error {
	return viewStore(c, f, func(_ *cli.Database, b *blobs) error {
		r, err := b.storeStat()
		if err != nil {
			return err
		}
		return c.Report(r, func() { printStoreStat(c, b, r) })
	})
}

// storeStat finds out what is in the store.
func (b *blobs) storeStat() (*storeStatReport, error) {
	stop := b.call.Progress("counting", 0, nil)
	defer stop()
	u, err := b.Usage()
	if err != nil {
		return nil, err
	}
	o := b.Options()
	r := &storeStatReport{File: b.file, Store: cli.PathNames(b.path), Algorithm: o.Algorithm.String(), Chunking: o.Chunking.String(), LeafSize: o.LeafSize, Compress: o.Compression.String(), Encrypted: o.Key != nil,
		Blobs: u.Blobs, Users: u.Users, Content: u.Content, Leaves: u.Leaves, LeafBytes: u.LeafBytes, Expanded: u.LeafContent, Live: u.LiveContent, Compressed: u.Compressed, Nodes: u.Nodes, NodeBytes: u.NodeBytes,
		Packed: u.Packed, Dead: u.Dead, DeadBytes: u.DeadBytes, Digests: u.Digests, Unreadable: u.Unreadable,
		Ingests: []ingestReport{}, Leases: []leaseReport{}}
	for in, err := range b.Ingests() {
		if err != nil {
			return nil, err
		}
		r.Ingests = append(r.Ingests, reportIngest(in))
	}
	for l, err := range b.Leases() {
		if err != nil {
			return nil, err
		}
		r.Leases = append(r.Leases, leaseReport{ID: l.ID, Expires: timeText(l.Expires), Blobs: l.Blobs})
	}
	return r, nil
}

func printStoreStat(c *cli.Call, b *blobs, r *storeStatReport) {
	stored := r.LeafBytes + r.NodeBytes
	compression := ""
	if r.Compress != blob.NoCompression.String() {
		compression = ", compressed with " + r.Compress
	}
	if r.Encrypted {
		compression += ", encrypted"
	}
	lines := [][2]string{
		{"Store", fmt.Sprintf("%s in %s", cli.PathText(b.path), cli.OneLine(r.File))},
		{"Options", fmt.Sprintf("%s, %s leaves of %s%s", r.Algorithm, r.Chunking, cli.SizeExactly(int64(r.LeafSize)), compression)},
		{"Blobs", fmt.Sprintf("%s with %s", cli.Count(r.Blobs), cli.Plural(r.Users, "user"))},
		{"Content", cli.SizeExactly(r.Content)},
		{"Stored", fmt.Sprintf("%s: %s (%s) and %s (%s)", cli.SizeExactly(stored), leavesText(r.Leaves), cli.Size(r.LeafBytes), cli.Plural(r.Nodes, "node"), cli.Size(r.NodeBytes))},
	}
	if r.Compressed > 0 {
		lines = append(lines, [2]string{"Compressed", fmt.Sprintf("%s of the leaves%s", cli.Count(r.Compressed), ratioText(r.LeafBytes, r.Expanded))})
	}
	if saved := r.Content - r.Live; saved > 0 {
		lines = append(lines, [2]string{"Shared", fmt.Sprintf("%s, %s of the content, is there once where blobs have it more often", cli.Size(saved), cli.Percent(saved, r.Content))})
	}
	if r.Dead > 0 {
		lines = append(lines, [2]string{"To free", fmt.Sprintf("%s in %s that are not used: %s", cli.Size(r.DeadBytes), cli.Plural(r.Dead, "chunk"), b.line("gc"))})
	}
	for _, in := range r.Ingests {
		until := ""
		if in.Expires != "" {
			until = ", until " + in.Expires
		}
		lines = append(lines, [2]string{"Unfinished", fmt.Sprintf("%s, %s so far%s", cli.OneLine(in.Name), cli.SizeExactly(in.Bytes), until)})
	}
	for _, l := range r.Leases {
		until := "until it is released"
		if l.Expires != "" {
			until = "until " + l.Expires
		}
		lines = append(lines, [2]string{"Lease", fmt.Sprintf("%s of %s %s", cli.OneLine(l.ID), cli.Plural(l.Blobs, "blob"), until)})
	}
	if r.Unreadable > 0 {
		lines = append(lines, [2]string{"Damaged", fmt.Sprintf("%s cannot be read: %s", cli.Plural(r.Unreadable, "chunk"), b.line("check"))})
	}
	cli.Rows(c.Out, lines...)
}

// ratioText writes how much of the content the bytes are that are stored compressed.
func ratioText(stored, content int64) string {
	if stored >= content { // encryption makes leaves longer
		return ""
	}
	return fmt.Sprintf(", %s of the %s before compression", cli.Percent(stored, content), cli.Size(content))
}

// leavesText writes n leaves.
func leavesText(n int64) string {
	return strings.Replace(cli.Plural(n, "leaf"), "leafs", "leaves", 1)
}
