package command

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newDf) }

func (a *app) newDf() *cobra.Command {
	return &cobra.Command{
		Use: "df", Short: "Show what the store takes, and what is free", Args: cobra.NoArgs, RunE: a.action((*call).df),
		Long: "Show what the store takes, as it was measured when snapshots were committed, and what is free\non its disk. With the drivers copy and btrfs, blocks that snapshots share are counted for each.",
	}
}

type dfReport struct {
	Root           string `json:"root"`
	Driver         string `json:"driver"`
	Snapshots      int64  `json:"snapshots"`
	Committed      int64  `json:"committed"`
	Bytes          int64  `json:"bytes"`
	Inodes         int64  `json:"inodes"`
	Trash          int64  `json:"trash"`
	MetadataBytes  int64  `json:"metadata_bytes"`
	FileSystem     string `json:"file_system"`
	DiskBytes      int64  `json:"disk_bytes"`
	DiskFreeBytes  int64  `json:"disk_free_bytes"`
	DiskInodes     int64  `json:"disk_inodes"`
	DiskFreeInodes int64  `json:"disk_free_inodes"`
}

// disk is what a file system has.
type disk struct {
	kind                            string
	bytes, free, inodes, freeInodes int64
}

func (c *call) df() error {
	var r dfReport
	err := c.withStore(false, func(t *snapshot.Tenant) error {
		s := t.Store()
		totals, err := s.Totals(c.ctx)
		if err != nil {
			return err
		}
		r = dfReport{Root: s.Root(), Driver: s.Driver().Name(), Snapshots: totals.Snapshots, Committed: totals.Committed,
			Bytes: totals.Usage.Size, Inodes: totals.Usage.Inodes, Trash: totals.Trash}
		var info fs.FileInfo
		if info, err = os.Stat(filepath.Join(s.Root(), "metadata.db")); err != nil {
			return err
		}
		r.MetadataBytes = info.Size()
		d, err := diskOf(s.Root())
		r.FileSystem, r.DiskBytes, r.DiskFreeBytes, r.DiskInodes, r.DiskFreeInodes = d.kind, d.bytes, d.free, d.inodes, d.freeInodes
		return err
	})
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, r)
	}
	cli.Rows(c.out,
		[2]string{"Store", r.Root + " (" + r.Driver + ")"},
		[2]string{"Snapshots", cli.Count(r.Snapshots) + ", " + cli.Count(r.Committed) + " committed"},
		[2]string{"Content", cli.Size(r.Bytes) + " in " + cli.Count(r.Inodes) + " files"},
		[2]string{"Metadata", cli.Size(r.MetadataBytes)},
		[2]string{"Being removed", cli.Plural(int(r.Trash), "snapshot")},
		[2]string{"Disk", cli.Size(r.DiskBytes) + " (" + r.FileSystem + "), " + cli.Size(r.DiskFreeBytes) + " free (" + cli.Percent(r.DiskFreeBytes, r.DiskBytes) + ")"},
		[2]string{"Files on it", cli.Count(r.DiskInodes) + " possible, " + cli.Count(r.DiskFreeInodes) + " free"})
	return nil
}
