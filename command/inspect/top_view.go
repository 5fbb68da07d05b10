package inspect

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"holdfast"
	"holdfast/command/cli"
)

// rates are what happened in a database between two looks, and how it stands.
type rates struct {
	File          string    `json:"file"`
	PID           int       `json:"pid"`
	Time          time.Time `json:"time"`
	Seconds       float64   `json:"seconds"` // between the looks; 0: there are no newer figures
	Stale         bool      `json:"stale"`   // not heard of for long: killed, or stopped
	Commits       float64   `json:"commits_per_second"`
	CommitP50     int64     `json:"commit_p50_us"` // upper bounds, of the time between
	CommitP99     int64     `json:"commit_p99_us"`
	Flushes       float64   `json:"flushes_per_second"`
	Written       float64   `json:"written_bytes_per_second"`
	Begun         float64   `json:"reads_per_second"` // reading transactions begun
	Readers       int       `json:"open_readers"`
	OldestAgeMS   int64     `json:"oldest_reader_age_ms"`
	OldestBehind  int       `json:"oldest_reader_behind"` // transactions committed since
	FreeBytes     int64     `json:"free_bytes"`
	PendingBytes  int64     `json:"pending_bytes"`
	FileBytes     int64     `json:"size_bytes"`
	Vacuuming     bool      `json:"vacuuming"`
	VacuumFreed   int64     `json:"vacuum_freed_bytes"`
	VacuumWaits   string    `json:"vacuum_waits"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Others        int       `json:"other_readers"`       // transactions of other processes
	OldestOther   *reader   `json:"oldest_other_reader"` // of them; null if there are none

	program string
	shared  bool   // there is a share, in which others can read
	why     string // what the program must be if it is stale
}

// addOthers adds who reads the database in other processes.
func (r *rates) addOthers(s seen) {
	r.Others, r.OldestOther = reading(s.others)
	r.shared, r.why = s.file == "", "was killed or stopped"
	if r.shared { // whose lock tells
		r.why = "is stopped, or hangs"
	}
}

// newRates compares two looks at the same database. One that was opened again in between
// begins anew.
func newRates(last, now *holdfast.Snapshot) rates {
	pageSize := int64(now.PageSize)
	r := rates{
		File: now.Path, PID: now.PID, Time: now.Taken, Stale: isStale(now), program: now.Program,
		Readers: now.Stats.OpenTxN, OldestAgeMS: now.Stats.OldestReader.Age.Milliseconds(), OldestBehind: now.Stats.OldestReader.Behind,
		FreeBytes: int64(now.Stats.FreePageN) * pageSize, PendingBytes: int64(now.Stats.PendingPageN) * pageSize, FileBytes: now.FileSize,
		Vacuuming: now.Stats.Vacuum.Running, VacuumFreed: now.Stats.Vacuum.Freed, VacuumWaits: now.Stats.Vacuum.Waits,
		UptimeSeconds: now.Taken.Sub(now.Opened).Seconds(),
	}
	if !now.Opened.Equal(last.Opened) {
		last = &holdfast.Snapshot{Taken: now.Opened}
	}
	if r.Seconds = now.Taken.Sub(last.Taken).Seconds(); r.Seconds <= 0 {
		r.Seconds = 0
		return r
	}
	d := now.Stats.Sub(&last.Stats)
	r.Commits = float64(d.Commits) / r.Seconds
	r.Flushes = float64(d.Flushes) / r.Seconds
	r.Written = float64(now.Stats.BytesWritten-last.Stats.BytesWritten) / r.Seconds
	r.Begun = float64(d.TxN) / r.Seconds
	r.CommitP50 = d.CommitLatency.Quantile(0.5).Microseconds()
	r.CommitP99 = d.CommitLatency.Quantile(0.99).Microseconds()
	return r
}

// topView shows rates: as JSON, as a picture that is drawn anew, or as lines.
type topView struct {
	*cli.Call
	terminal bool
	lines    int
}

func newTopView(c *cli.Call) *topView {
	return &topView{Call: c, terminal: cli.IsTerminal(c.Cmd.OutOrStdout())}
}

// headerEvery is after how many lines the header comes again.
const headerEvery = 20

func (v *topView) show(r rates) error {
	switch {
	case v.JSON:
		return json.NewEncoder(v.Out).Encode(r)
	case v.terminal:
		v.draw(r)
		return nil
	}
	if v.lines%headerEvery == 0 {
		fmt.Fprintf(v.Out, "%8s %9s %8s %8s %8s %10s %8s %7s %7s %9s %9s %9s%s\n",
			"TIME", "COMMITS/S", "P50", "P99", "FLUSH/S", "WRITTEN/S", "READS/S", "READERS", "OTHERS", "FREE", "PENDING", "SIZE", "  OLDEST OF OTHERS")
	}
	v.lines++
	oldest := ""
	if o := r.OldestOther; o != nil {
		oldest = fmt.Sprintf("  %s: %s", o.process(), o.state())
	}
	fmt.Fprintf(v.Out, "%8s %9s %8s %8s %8s %10s %8s %7d %7d %9s %9s %9s%s\n",
		r.Time.Local().Format(time.TimeOnly), rate(r.Commits), r.latency(r.CommitP50), r.latency(r.CommitP99), rate(r.Flushes),
		cli.Size(int64(r.Written)), rate(r.Begun), r.Readers, r.Others, cli.Size(r.FreeBytes), cli.Size(r.PendingBytes), cli.Size(r.FileBytes), oldest)
	return nil
}

// rate writes a number a second.
func rate(f float64) string {
	if f > 0 && f < 10 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return cli.Count(int64(f + 0.5))
}

// latency writes microseconds, if there were any commits.
func (r *rates) latency(us int64) string {
	if us == 0 {
		return "-"
	}
	return "<" + cli.Briefly(time.Duration(us)*time.Microsecond)
}

// clearScreen moves to the upper left corner and clears what is after it.
const clearScreen = "\x1b[H\x1b[2J"

// draw draws a screen.
func (v *topView) draw(r rates) {
	if cli.HasColour(v.Cmd.OutOrStdout()) { // a terminal that understands such things
		fmt.Fprint(v.Out, clearScreen)
	} else {
		fmt.Fprintln(v.Out)
	}
	fmt.Fprintf(v.Out, "%s  %s\n", v.Paint(cli.Bold, cli.Quoted(r.File)), r.Time.Local().Format(time.TimeOnly))
	rows := [][2]string{
		{"Process", fmt.Sprintf("%d, %s, open for %s", r.PID, cli.Quoted(r.program), time.Duration(r.UptimeSeconds)*time.Second)},
		{"Commits", fmt.Sprintf("%s/s; half within %s, 99%% within %s", rate(r.Commits), r.latency(r.CommitP50), r.latency(r.CommitP99))},
		{"Written", fmt.Sprintf("%s/s with %s flushes/s", cli.Size(int64(r.Written)), rate(r.Flushes))},
		{"Readers", v.readers(r)},
		{"File", fmt.Sprintf("%s; %s (%s) free, %s wait for readers", cli.Size(r.FileBytes), cli.Size(r.FreeBytes), cli.Percent(r.FreeBytes, r.FileBytes), cli.Size(r.PendingBytes))},
		{"Vacuum", v.vacuumed(r)},
	}
	if r.shared {
		rows = append(rows, [2]string{"Others", v.others(r)})
	}
	cli.Rows(v.Out, rows...)
	if r.Stale {
		fmt.Fprintln(v.Out, v.Paint(cli.Red, "no new figures for "+staleAfter.String()+": the process "+r.why))
	}
}

func (v *topView) readers(r rates) string {
	s := fmt.Sprintf("%s open, %s begun/s", cli.Count(r.Readers), rate(r.Begun))
	if r.OldestBehind > 0 && r.Readers > 0 { // it may be one of another process
		s += v.Paint(cli.Yellow, fmt.Sprintf("; the oldest reads a state of %s ago, %s behind",
			time.Duration(r.OldestAgeMS)*time.Millisecond, cli.Plural(r.OldestBehind, "commit")))
	}
	return s
}

// others are the readers in other processes.
func (v *topView) others(r rates) string {
	if r.OldestOther == nil {
		return "no other process reads it"
	}
	text := fmt.Sprintf("the oldest, %s, reads %s", r.OldestOther.process(), r.OldestOther.state())
	if r.OldestOther.Behind > 0 {
		text = v.Paint(cli.Yellow, text)
	}
	return fmt.Sprintf("%s in other processes; %s", cli.Plural(r.Others, "transaction"), text)
}

func (v *topView) vacuumed(r rates) string {
	s := "idle"
	switch {
	case r.Vacuuming:
		s = v.Paint(cli.Green, "running")
	case r.VacuumWaits != "":
		s = "waits for " + cli.Quoted(r.VacuumWaits)
	}
	return fmt.Sprintf("%s; %s given back by AutoVacuum", s, cli.Size(r.VacuumFreed))
}
