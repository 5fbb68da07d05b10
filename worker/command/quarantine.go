package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
)

// This file shows and removes what the store keeps in quarantine. The flags --quarantined of ls and rm are in
// snapshot.go.

type quarantinedReport struct {
	ID        snapshot.ID `json:"id"`
	Directory string      `json:"directory"`
	Bytes     int64       `json:"bytes"`
	Inodes    int64       `json:"inodes"`
	Modified  time.Time   `json:"modified"`
}

func (c *call) listQuarantined() error {
	list := []quarantinedReport{}
	err := c.withStore(false, func(t *snapshot.Namespace) error {
		all, err := t.Store().Quarantined(c.ctx)
		for _, q := range all {
			list = append(list, quarantinedReport{q.ID, fmt.Sprintf("%s/quarantine/%v", t.Store().Root(), q.ID), q.Usage.Size, q.Usage.Inodes, q.Modified})
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return cli.PrintJSON(c.out, list)
	case len(list) == 0:
		fmt.Fprintln(c.out, "nothing is in quarantine")
		return nil
	}
	lines := [][]string{{"ID", "SIZE", "FILES", "CHANGED", "DIRECTORY"}}
	for _, q := range list {
		lines = append(lines, []string{q.ID.String(), cli.Size(q.Bytes), cli.Count(q.Inodes), humanize.Time(q.Modified), printable(q.Directory)})
	}
	cli.Columns(c.out, lines...)
	return nil
}

func (c *call) removeQuarantined() error {
	var ids []snapshot.ID
	all := len(c.args) == 1 && c.args[0] == "all"
	for _, arg := range c.args {
		n, err := strconv.ParseUint(arg, 10, 62)
		if err != nil && !all {
			return cli.Usagef("--quarantined: %q is not the number of a directory; holdfastd snapshot ls --quarantined lists them; or all", arg)
		}
		ids = append(ids, snapshot.ID(n))
	}
	err := c.withStore(false, func(t *snapshot.Namespace) error {
		if all {
			report, err := t.Store().Reconciled(c.ctx)
			if err != nil {
				return err
			}
			ids = report.Quarantined
		}
		if err := t.Store().RemoveQuarantined(c.ctx, ids...); errors.Is(err, snapshot.ErrNotFound) {
			return &nextError{err, "holdfastd snapshot ls --quarantined lists what is there"}
		} else if err != nil {
			return err
		}
		return c.deleted(t.Store())
	})
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, map[string]any{"removed": append([]snapshot.ID{}, ids...)})
	}
	for _, id := range ids {
		fmt.Fprintf(c.out, "removed %v from quarantine\n", id)
	}
	return nil
}

// namedIDs is how many directories are named in a line.
const namedIDs = 8

// inQuarantine says how many directories are in quarantine, and which.
func inQuarantine(ids []snapshot.ID) string {
	var names []string
	for _, id := range ids[:min(len(ids), namedIDs)] {
		names = append(names, id.String())
	}
	if len(ids) > namedIDs {
		names = append(names, "...")
	}
	what := " directories: "
	if len(ids) == 1 {
		what = " directory: "
	}
	return cli.Count(len(ids)) + what + strings.Join(names, ", ")
}

// quarantine tells of what is kept since its origin is not known.
func (d *checkup) quarantine(s *snapshot.Store) {
	report, err := s.Reconciled(d.ctx)
	if err != nil || len(report.Quarantined) == 0 {
		return // df tells of the error
	}
	d.add("Store", "quarantine", stateLacking, inQuarantine(report.Quarantined)+"; metadata.db is older than they are, or was made anew",
		"put the right metadata.db back, or look at them and remove them: holdfastd snapshot ls --quarantined, snapshot rm --quarantined")
}

// missing tells of snapshots whose directories are gone.
func (d *checkup) missing(s *snapshot.Store) {
	report, err := s.Reconciled(d.ctx)
	if err != nil || len(report.Missing) == 0 {
		return
	}
	d.add("Store", "missing", stateLacking, "snapshots have no directory any more: "+inQuarantine(report.Missing)+"; metadata.db is older than their removal, or they were deleted by hand",
		"put the right metadata.db back, or remove the snapshots with these IDs, with what stands on them: holdfastd snapshot stat NAME says the ID")
}

// quotas says how steps are kept within --disk.
func (d *checkup) quotas(root string) {
	err := disk.HasQuotas(root)
	switch {
	case err == nil:
		d.add("Store", "disk limits", stateOK, "project quotas, with which the kernel refuses what a step may not write; with the drivers overlay and erofs", "")
	case errors.Is(err, disk.ErrNoQuota):
		d.add("Store", "disk limits", stateOK, "a step with --disk is looked at every 250 ms, and can write more by then: "+err.Error(), "")
	default:
		d.add("Store", "disk limits", stateLacking, err.Error(), d.next(err))
	}
}
