package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/prune"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

func init() { register((*app).newSnapshot) }

const snapshotHelp = `List, show and remove snapshots: directory trees, each kept as what it changes relative to its
parent. NAME is that of a base or of the result of a step, or a digest, and can be cut short
anywhere while no other begins so.`

const snapshotListHelp = `List snapshots. KIND is

  committed  it never changes
  base       a name for the snapshot that is its PARENT, which it keeps
  cache      a directory that steps share (step --mount type=cache)
  active     it can be written, as while a step runs
  view       it is read, as while it is mounted

and after a comma pinned, damaged (holdfastd verify), or distrusted: the machine went down before
it was on the disk. SIZE and FILES are without those of the parent, as they were found at the
commit.`

func (a *app) newSnapshot() *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot", Short: "List, show and remove snapshots", Long: snapshotHelp, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	var full, quarantined bool
	ls := &cobra.Command{Use: "ls", Short: "List snapshots", Long: snapshotListHelp, Args: cobra.NoArgs, RunE: a.action(func(c *call) error {
		if quarantined {
			return c.listQuarantined()
		}
		return c.list(full)
	})}
	ls.Flags().BoolVar(&full, "full", false, "do not abbreviate digests")
	ls.Flags().BoolVar(&quarantined, "quarantined", false, "what metadata.db does not name, although it or another one did")
	tree := &cobra.Command{Use: "tree", Short: "Show which snapshot is made from which", Args: cobra.NoArgs, RunE: a.action(func(c *call) error { return c.tree(full) })}
	tree.Flags().BoolVar(&full, "full", false, "do not abbreviate digests")
	a.namespaceFlag(cmd, cmd.PersistentFlags())
	cmd.AddCommand(ls, tree,
		&cobra.Command{
			Use: "namespaces", Short: "List the namespaces that have snapshots", Args: cobra.NoArgs, RunE: a.action((*call).namespaces),
			Long: "List the namespaces that have snapshots. What holdfastd makes is in " + DefaultNamespace + "; others belong to\nservices that keep their snapshots in the same store.",
		},
		&cobra.Command{
			Use: "stat NAME", Short: "Show what is known of a snapshot", Args: cobra.ExactArgs(1),
			RunE: a.action((*call).stat), ValidArgsFunction: a.completeSnapshots(0),
		},
		a.newDiff(), a.newRemove())
	return cmd
}

func (a *app) newRemove() *cobra.Command {
	var force, quarantined bool
	cmd := &cobra.Command{
		Use: "rm NAME...", Short: "Remove snapshots", Args: cobra.MinimumNArgs(1), RunE: a.action(func(c *call) error {
			if quarantined {
				return c.removeQuarantined()
			}
			return c.remove(force)
		}),
		Long:              "Remove snapshots. Their names are free at once; what they have is deleted before the command\nends. One with children, leases or a pin stays; a result that is\nonly held for the next step on it goes. Names can be abbreviated, as ls does it.",
		ValidArgsFunction: a.completeSnapshots(-1),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also those of a client, such as a containerd that is gone")
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "directories in quarantine: numbers as ls --quarantined shows them, or all")
	return cmd
}

// abbreviated is a name in a listing.
func abbreviated(name string, full bool) string {
	if digest, ok := strings.CutPrefix(name, "sha256:"); ok && !full && len(digest) == 64 {
		return digest[:12]
	}
	result := name
	if id, ok := strings.CutPrefix(name, step.RunPrefix); ok {
		result = step.ResultPrefix + id
	}
	if id, ok := step.ParseSnapshot(result); ok && !full {
		return strings.TrimSuffix(name, id.String()[12:])
	}
	return printable(name)
}

// printable is a name without what would do something to a terminal.
func printable(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if quoted[1:len(quoted)-1] == name {
		return name
	}
	return quoted
}

func (c *call) all() (list []snapshot.Info, err error) {
	err = c.withStore(false, func(t *snapshot.Namespace) error {
		return t.Walk(c.ctx, func(i snapshot.Info) error {
			list = append(list, i)
			return nil
		})
	})
	return list, err
}

func (c *call) list(full bool) error {
	list, err := c.all()
	if err != nil {
		return err
	}
	if c.json {
		reports := make([]snapshotReport, 0, len(list))
		for _, i := range list {
			reports = append(reports, c.reportOf(i))
		}
		return cli.PrintJSON(c.out, reports)
	}
	if len(list) == 0 {
		fmt.Fprintln(c.out, "no snapshots")
		return nil
	}
	heads := []string{"NAME", "KIND", "PARENT", "SIZE", "FILES", "LAST USED"}
	results := slices.ContainsFunc(list, func(i snapshot.Info) bool { return i.Labels[step.LabelCommand] != "" })
	if results {
		heads = append(heads, "COMMAND")
	}
	lines := [][]string{heads}
	for _, i := range list {
		size, inodes := "-", "-"
		if i.Kind == snapshot.Committed {
			size, inodes = cli.Size(i.Usage.Size), cli.Count(i.Usage.Inodes)
		}
		parent := "-"
		if i.Parent != "" {
			parent = abbreviated(i.Parent, full)
		}
		line := []string{abbreviated(i.Name, full), kindOf(i), parent, size, inodes, humanize.Time(lastUsed(i))}
		if results {
			line = append(line, ranBy(i, full))
		}
		lines = append(lines, line)
	}
	cli.Columns(c.out, lines...)
	return nil
}

// visible is a text on one line, without what would do something to a terminal.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// commandWidth is how many characters of a command a listing shows.
const commandWidth = 48

// ranBy is the command of which a snapshot is the result; "-" if it is of none.
func ranBy(i snapshot.Info, full bool) string {
	text := visible(i.Labels[step.LabelCommand])
	if text == "" {
		return "-"
	}
	if r := []rune(text); len(r) > commandWidth && !full {
		return string(r[:commandWidth-3]) + "..."
	}
	return text
}

func lastUsed(i snapshot.Info) time.Time {
	if i.LastUsed.IsZero() {
		return i.Created
	}
	return i.LastUsed
}

// kindOf says what a snapshot is.
func kindOf(i snapshot.Info) string {
	kind := strings.ToLower(i.Kind.String())
	if i.Kind == snapshot.View && i.Labels[image.LabelBase] != "" {
		kind = "base"
	}
	if i.Kind == snapshot.Active && strings.HasPrefix(i.Name, step.CachePrefix) {
		kind = "cache"
	}
	if i.Distrusted {
		kind += ", distrusted"
	}
	if i.Damaged {
		kind += ", damaged"
	}
	if i.Pinned {
		kind += ", pinned"
	}
	return kind
}

type snapshotReport struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	ID         uint64            `json:"id"`
	Kind       string            `json:"kind"`
	Parent     string            `json:"parent"`
	Created    time.Time         `json:"created"`
	Updated    time.Time         `json:"updated"`
	LastUsed   time.Time         `json:"last_used"`
	Bytes      int64             `json:"bytes"`
	Inodes     int64             `json:"inodes"`
	Pinned     bool              `json:"pinned"`
	Distrusted bool              `json:"distrusted"`
	Damaged    bool              `json:"damaged"`
	Digest     string            `json:"digest"` // "": none
	Verified   time.Time         `json:"verified,omitzero"`
	Labels     map[string]string `json:"labels"`
	Command    string            `json:"command"` // of the step whose result it is, cut off; "": it is none
}

func (c *call) reportOf(i snapshot.Info) snapshotReport {
	labels := i.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	digest := ""
	if i.Digest != (snapshot.Digest{}) {
		digest = i.Digest.String()
	}
	return snapshotReport{cmp.Or(c.namespace, DefaultNamespace), i.Name, uint64(i.ID), strings.ToLower(i.Kind.String()), i.Parent, i.Created, i.Updated, lastUsed(i), i.Usage.Size, i.Usage.Inodes, i.Pinned, i.Distrusted, i.Damaged, digest, i.Verified, labels, labels[step.LabelCommand]}
}

type statReport struct {
	snapshotReport
	Directory string   `json:"directory"`
	Children  []string `json:"children"`
	Leases    []string `json:"leases"`
}

func (c *call) stat() error {
	return c.withStore(false, func(t *snapshot.Namespace) error {
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		if info.Usage, err = t.Usage(c.ctx, info.Name); err != nil {
			return err
		}
		r := statReport{snapshotReport: c.reportOf(info), Directory: fmt.Sprintf("%s/snapshots/%s", t.Store().Root(), info.ID), Children: []string{}, Leases: []string{}}
		children, err := t.Children(c.ctx, info.Name)
		if err != nil {
			return err
		}
		r.Children = append(r.Children, children...)
		held, err := t.Leases(c.ctx, info.Name)
		if err != nil {
			return err
		}
		for _, h := range held {
			r.Leases = append(r.Leases, h.Lease)
		}
		if c.json {
			return cli.PrintJSON(c.out, r)
		}
		c.printStat(info, &r)
		return nil
	})
}

func (c *call) printStat(info snapshot.Info, r *statReport) {
	lines := [][2]string{{"Name", printable(info.Name)}, {"Kind", kindOf(info)}}
	if info.Parent != "" {
		lines = append(lines, [2]string{"Parent", printable(info.Parent)})
	}
	if info.Labels[step.LabelCommand] != "" {
		lines = append(lines, [2]string{"Command", ranBy(info, true)})
	}
	lines = append(lines, [2]string{"Size", cli.SizeExactly(info.Usage.Size)}, [2]string{"Files", cli.Count(info.Usage.Inodes)},
		[2]string{"Created", timeText(info.Created)}, [2]string{"Last used", timeText(lastUsed(info))}, [2]string{"Directory", r.Directory})
	if r.Digest != "" {
		lines = append(lines, [2]string{"Digest", r.Digest}, [2]string{"Verified", timeText(r.Verified)})
	}
	for _, child := range r.Children {
		lines = append(lines, [2]string{"Child", printable(child)})
	}
	for _, lease := range r.Leases {
		lines = append(lines, [2]string{"Lease", printable(lease)})
	}
	for _, key := range slices.Sorted(maps.Keys(info.Labels)) {
		if key == step.LabelCommand {
			continue
		}
		lines = append(lines, [2]string{"Label", printable(key) + " = " + printable(info.Labels[key])})
	}
	cli.Rows(c.out, lines...)
}

// timeText is a time for people.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func (c *call) namespaces() error {
	names := []string{}
	err := c.withStore(false, func(t *snapshot.Namespace) error {
		all, err := t.Store().Namespaces(c.ctx)
		names = append(names, all...)
		return err
	})
	switch {
	case err != nil:
		return err
	case c.json:
		return cli.PrintJSON(c.out, names)
	case len(names) == 0:
		fmt.Fprintln(c.out, "there are no snapshots")
	}
	for _, name := range names {
		fmt.Fprintln(c.out, printable(name))
	}
	return nil
}

func (c *call) remove(force bool) error {
	removed := []string{}
	err := c.withStore(false, func(t *snapshot.Namespace) (err error) {
		defer func() {
			if len(removed) > 0 { // also if another one stays
				err = errors.Join(err, c.deleted(t.Store()))
			}
		}()
		for _, name := range c.args {
			info, err := c.find(t, name)
			if err != nil {
				return err
			}
			if !force {
				if err := c.refuseClient(t, info.Name); err != nil {
					return err
				}
			}
			if err := c.removeOne(t, info.Name); err != nil {
				return c.explainUse(t, info, err)
			}
			removed = append(removed, info.Name)
		}
		return nil
	})
	if c.json {
		return errors.Join(cli.PrintJSON(c.out, map[string]any{"removed": removed}), err)
	}
	for _, name := range removed {
		fmt.Fprintf(c.out, "removed %s\n", printable(name))
	}
	return err
}

// removeOne removes a snapshot, which may be being exported.
func (c *call) removeOne(t *snapshot.Namespace, name string) error {
	if c.shared != nil {
		release, err := c.shared.cache.Withdraw(c.ctx, name)
		if err != nil {
			return err
		}
		defer release()
	}
	return t.Remove(c.ctx, name)
}

// refuseClient fails if a snapshot is a client's.
func (c *call) refuseClient(t *snapshot.Namespace, name string) error {
	if t.Name() == DefaultNamespace {
		return nil
	}
	p, err := newPruner(t.Store(), prune.Options{Config: prune.Default()})
	if err != nil {
		return err
	}
	answer, err := p.Why(c.ctx, t.Name(), name)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(answer.Kept, func(k prune.Kept) bool { return k.Cause == prune.Client }) {
		return nil
	}
	return &nextError{fmt.Errorf("remove snapshot %q: it belongs to the client %s, which removes by itself what it does not need, and fails if something is gone", name, t.Name()),
		"remove it there, or give --force if the client is gone"}
}

// explainUse says who uses a snapshot that cannot be removed.
func (c *call) explainUse(t *snapshot.Namespace, info snapshot.Info, err error) error {
	if !errors.Is(err, snapshot.ErrInUse) {
		return err
	}
	var users []string
	if children, childErr := t.Children(c.ctx, info.Name); childErr == nil && len(children) > 0 {
		users = append(users, cli.Plural(len(children), "snapshot")+" made from it, such as "+printable(children[0]))
	}
	if held, leaseErr := t.Leases(c.ctx, info.Name); leaseErr == nil {
		held = slices.DeleteFunc(held, func(h snapshot.Held) bool { return snapshot.IsWeak(h.Lease) })
		if len(held) > 0 {
			users = append(users, "the lease "+printable(held[0].Lease))
		}
	}
	if info.Pinned {
		users = append(users, "a pin")
	}
	if len(users) == 0 {
		return err
	}
	return &nextError{err, "it is kept by " + strings.Join(users, ", and by ")}
}

func (c *call) tree(full bool) error {
	list, err := c.all()
	if err != nil {
		return err
	}
	children := map[string][]snapshot.Info{}
	for _, i := range list {
		children[i.Parent] = append(children[i.Parent], i)
	}
	for _, of := range children {
		slices.SortFunc(of, func(a, b snapshot.Info) int { return cmp.Compare(a.ID, b.ID) })
	}
	if c.json {
		return cli.PrintJSON(c.out, c.treeOf(children, ""))
	}
	if len(list) == 0 {
		fmt.Fprintln(c.out, "no snapshots")
		return nil
	}
	lines := treeLines{branch: "|-- ", last: "`-- ", through: "|   "}
	if cli.HasUTF8(c.cmd.OutOrStdout()) {
		lines = treeLines{branch: "├── ", last: "└── ", through: "│   "}
	}
	for _, i := range children[""] {
		lines.print(c.out, children, i, "", "", full)
	}
	return nil
}

type treeReport struct {
	snapshotReport
	Children []treeReport `json:"children"`
}

func (c *call) treeOf(children map[string][]snapshot.Info, name string) []treeReport {
	list := make([]treeReport, 0, len(children[name]))
	for _, i := range children[name] {
		list = append(list, treeReport{c.reportOf(i), c.treeOf(children, i.Name)})
	}
	return list
}

// treeLines are what a tree is drawn with.
type treeLines struct{ branch, last, through string }

func (l treeLines) print(w io.Writer, children map[string][]snapshot.Info, i snapshot.Info, lead, below string, full bool) {
	size := ""
	if i.Kind == snapshot.Committed {
		size = ", " + cli.Size(i.Usage.Size)
	}
	fmt.Fprintf(w, "%s%s  %s%s\n", lead, abbreviated(i.Name, full), kindOf(i), size)
	of := children[i.Name]
	for n, child := range of {
		if n == len(of)-1 {
			l.print(w, children, child, below+l.last, below+"    ", full)
		} else {
			l.print(w, children, child, below+l.branch, below+l.through, full)
		}
	}
}
