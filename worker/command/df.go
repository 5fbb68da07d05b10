package command

import (
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newDf) }

func (a *app) newDf() *cobra.Command {
	return &cobra.Command{
		Use: "df", Short: "Show what the store takes, and what is free", Args: cobra.NoArgs, RunE: a.action((*call).df),
		Long: "Show what the store takes, and what is free on its disk. Committed snapshots are counted as they\nwere found when they were committed, all else is measured now. With the drivers copy and\nbtrfs, blocks that snapshots share are counted for each.",
	}
}

type dfReport struct {
	Root            string        `json:"root"`
	Driver          string        `json:"driver"`
	Snapshots       int64         `json:"snapshots"`
	Committed       int64         `json:"committed"`
	Bytes           int64         `json:"bytes"` // of the committed ones
	Inodes          int64         `json:"inodes"`
	Active          int64         `json:"active"` // and views
	ActiveBytes     int64         `json:"active_bytes"`
	Caches          int64         `json:"caches"` // of steps
	CacheBytes      int64         `json:"cache_bytes"`
	Held            held          `json:"held"` // results, among the committed ones, that are held for the next step on them
	Trash           int64         `json:"trash"`
	TrashBytes      int64         `json:"trash_bytes"`
	Quarantine      []snapshot.ID `json:"quarantine"` // directories that metadata.db does not name although one did
	QuarantineBytes int64         `json:"quarantine_bytes"`
	MetadataBytes   int64         `json:"metadata_bytes"`
	EmergencyBytes  int64         `json:"emergency_bytes"` // of the file that is given up when the disk is full
	OtherBytes      int64         `json:"other_bytes"`
	TotalBytes      int64         `json:"total_bytes"`
	FileSystem      string        `json:"file_system"`
	DiskBytes       int64         `json:"disk_bytes"`
	DiskFreeBytes   int64         `json:"disk_free_bytes"`
	DiskInodes      int64         `json:"disk_inodes"`
	DiskFreeInodes  int64         `json:"disk_free_inodes"`
	Quotas          bool          `json:"quotas"` // the kernel refuses a step what is beyond its --disk
}

// dfPatience is after what time it is shown that measuring takes time.
const dfPatience = 200 * time.Millisecond

func (c *call) df() error {
	var r dfReport
	err := c.withStore(false, func(t *snapshot.Namespace) (err error) {
		stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "measuring", Step: dfPatience}.Start()
		defer stop()
		if r, err = c.dfOf(t.Store()); err != nil {
			return err
		}
		r.Quotas = disk.HasQuotas(t.Store().Root()) == nil
		if r.Held, err = c.heldResults(t, nil); err != nil {
			return err
		}
		return c.dfCaches(t, &r)
	})
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, r)
	}
	rows := [][2]string{
		{"Store", r.Root + " (" + r.Driver + ")"},
		{"Snapshots", cli.Count(r.Snapshots) + ", " + cli.Count(r.Committed) + " committed"},
		{"Committed", cli.Size(r.Bytes) + " in " + cli.Count(r.Inodes) + " files"},
		{"In use", cli.Size(r.ActiveBytes) + " in " + cli.Plural(int(r.Active), "snapshot")},
		{"Being removed", cli.Size(r.TrashBytes) + " in " + cli.Plural(int(r.Trash), "snapshot")},
	}
	if r.Caches > 0 {
		rows = append(rows, [2]string{"Caches", cli.Size(r.CacheBytes) + " in " + cli.Plural(int(r.Caches), "cache")})
	}
	if r.Held.Results > 0 {
		rows = append(rows, [2]string{"Held", r.Held.String() + " " + r.Held.lasts()})
	}
	if len(r.Quarantine) > 0 {
		rows = append(rows, [2]string{"Quarantine", cli.Size(r.QuarantineBytes) + " in " + inQuarantine(r.Quarantine) + "; holdfastd snapshot ls --quarantined"})
	}
	rows = append(rows,
		[2]string{"Metadata", cli.Size(r.MetadataBytes)},
		[2]string{"Emergency", cli.Size(r.EmergencyBytes) + ", given up when the disk is full"},
		[2]string{"Other", cli.Size(r.OtherBytes)},
		[2]string{"All", cli.Size(r.TotalBytes)},
		[2]string{"Disk", cli.Size(r.DiskBytes) + " (" + r.FileSystem + "), " + cli.Size(r.DiskFreeBytes) + " free (" + cli.Percent(r.DiskFreeBytes, r.DiskBytes) + ")"},
		[2]string{"Files on it", cli.Count(r.DiskInodes) + " possible, " + cli.Count(r.DiskFreeInodes) + " free"})
	limits := "a step with --disk is measured every 250 ms: there are no project quotas"
	if r.Quotas {
		limits = "project quotas: the kernel refuses a step what is beyond its --disk"
	}
	cli.Rows(c.out, append(rows, [2]string{"Disk limits", limits})...)
	return nil
}

func (c *call) dfOf(s *snapshot.Store) (r dfReport, err error) {
	totals, err := s.Totals(c.ctx)
	if err != nil {
		return r, err
	}
	u, err := prune.Df(c.ctx, s)
	if err != nil {
		return r, err
	}
	report, err := s.Reconciled(c.ctx)
	if err != nil {
		return r, err
	}
	// It is among all else. When it is made while that is measured, it is not.
	emergency := int64(0)
	if info, err := os.Stat(filepath.Join(s.Root(), disk.EmergencyName)); err == nil {
		emergency = min(info.Size(), u.Other)
	}
	return dfReport{
		Root: s.Root(), Driver: s.Driver().Name(), Snapshots: totals.Snapshots, Committed: totals.Committed,
		Bytes: u.Committed.Bytes, Inodes: totals.Usage.Inodes, Active: u.Active.Snapshots, ActiveBytes: u.Active.Bytes,
		Trash: u.Trash.Snapshots, TrashBytes: u.Trash.Bytes,
		Quarantine: append([]snapshot.ID{}, report.Quarantined...), QuarantineBytes: u.Kept.Bytes, MetadataBytes: u.Metadata, EmergencyBytes: emergency, OtherBytes: u.Other - emergency, TotalBytes: u.Total,
		FileSystem: u.FS.Kind, DiskBytes: u.FS.Size, DiskFreeBytes: u.FS.Free, DiskInodes: u.FS.Inodes, DiskFreeInodes: u.FS.FreeInodes,
	}, nil
}

// dfCaches tells caches of steps from other active snapshots.
func (c *call) dfCaches(t *snapshot.Namespace, r *dfReport) error {
	list, err := c.caches(t, 0)
	for _, one := range list {
		r.Caches++
		r.CacheBytes += one.Bytes
		r.Active--
		r.ActiveBytes -= min(one.Bytes, r.ActiveBytes)
	}
	return err
}
