package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/prune"
	"holdfast/worker/service"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

func init() {
	register((*app).newPrune)
	register((*app).newWhy)
}

const pruneHelp = `Remove snapshots that are not worth their room any more.

What goes is said by policies: those of a file in TOML (--policy), or the defaults, which
--default-policy prints with every field explained. Or the other flags make one policy:
it selects what was not used for --keep, of what --filter says, with --all also what has
the label holdfast.keep, which a service can give to its snapshots; and removes all of it, or with --max-used, --min-free and
--max-snapshots as much as it takes. Bases with a name, and what is leased, pinned or in use,
stay, with all that they stand on; holdfastd why says of one what keeps it. Caches of steps go that
were not used for --caches.

What a step has printed as its result is held for the next step on it: until that has a result, and
for an hour at most (step --hold). With --held such results can go, too.

It can be interrupted: what was removed stays removed.`

type pruneFlags struct {
	app *app

	file                   string
	dryRun, defaults, full bool

	all, held        bool
	keep             string
	filters          []string
	maxUsed, minFree string
	reserved         string
	maxSnapshots     int64

	caches time.Duration
}

// single are the flags that make a policy.
var single = []string{"all", "keep", "filter", "max-used", "min-free", "reserved", "max-snapshots"}

func (f *pruneFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, "policy", "", "file with policies in TOML; default: the built-in ones")
	flags.BoolVar(&f.full, "full", false, "do not abbreviate digests")
	_ = cmd.MarkFlagFilename("policy", "toml")
}

func (a *app) newPrune() *cobra.Command {
	f := pruneFlags{app: a}
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove snapshots by policies", Long: pruneHelp, Args: cobra.NoArgs,
		Example: "  holdfastd prune --dry-run\n  holdfastd prune --keep 7d --filter name~=^step-\n  holdfastd prune --min-free 20%",
		RunE:    a.action(func(c *call) error { return c.prune(&f) }),
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would go, and why")
	flags.BoolVar(&f.defaults, "default-policy", false, "print the built-in policies, and do nothing else")
	flags.BoolVar(&f.all, "all", false, "also what has the label "+prune.LabelKeep)
	flags.StringVar(&f.keep, "keep", "", "what was used less than this ago stays, such as 7d or 36h")
	flags.StringArrayVar(&f.filters, "filter", nil, "only what this matches, such as name~=^step-; any number")
	flags.StringVar(&f.maxUsed, "max-used", "", "until at most this is used, such as 100GB or 60%")
	flags.StringVar(&f.minFree, "min-free", "", "until at least this is free on the disk, such as 20%")
	flags.StringVar(&f.reserved, "reserved", "", "nothing while no more than this is used")
	flags.Int64Var(&f.maxSnapshots, "max-snapshots", 0, "until there are at most so many")
	flags.BoolVar(&f.held, "held", false, "also results that are held for the next step on them")
	cli.DurationVar(flags, &f.caches, "caches", cacheAge, "caches of steps go that were not used for so long, such as 36h; 0: all")
	return cmd
}

// config is what the flags say.
func (f *pruneFlags) config(ctx context.Context, cmd *cobra.Command) (prune.Config, error) {
	given := func(name string) bool { return cmd.Flags().Changed(name) }
	i := slices.IndexFunc(single, given)
	if f.file != "" && i >= 0 {
		return prune.Config{}, cli.Usagef("--policy and --%s: give a file with policies, or the one policy by flags", single[i])
	}
	if i < 0 {
		return f.app.policies(ctx, f.file)
	}
	p := prune.Policy{All: f.all}
	for _, field := range []struct {
		name, text string
		into       interface{ UnmarshalText([]byte) error }
	}{
		{"keep", f.keep, &p.KeepDuration}, {"max-used", f.maxUsed, &p.MaxUsedSpace}, {"min-free", f.minFree, &p.MinFreeSpace},
		{"reserved", f.reserved, &p.ReservedSpace}, {"max-snapshots", fmt.Sprint(f.maxSnapshots), &p.MaxSnapshots},
	} {
		if !given(field.name) {
			continue
		}
		if err := field.into.UnmarshalText([]byte(field.text)); err != nil {
			return prune.Config{}, cli.Usagef("--%s: %v", field.name, err)
		}
	}
	for _, text := range f.filters {
		filter, err := prune.ParseFilter(text)
		if err != nil {
			return prune.Config{}, cli.Usagef("--filter: %v", err)
		}
		p.Filters = append(p.Filters, filter)
	}
	return prune.Config{Policies: []prune.Policy{p}}, nil
}

// explainPolicies is the next step when a file with policies makes no sense.
const explainPolicies = "holdfastd prune --default-policy prints one with every field explained"

// policies are those of a file, or the built-in ones.
func (a *app) policies(ctx context.Context, file string) (prune.Config, error) {
	if file == "" {
		return prune.Default(), nil
	}
	config, err := prune.Load(ctx, a.path(file))
	if errors.Is(err, prune.ErrConfig) {
		err = &nextError{err, explainPolicies}
	}
	return config, err
}

// configuredPolicies are those that a configuration names.
func (a *app) configuredPolicies(ctx context.Context, got *config) (prune.Config, error) {
	config, err := a.policies(ctx, got.Prune.Policy)
	if err != nil && got.file != "" {
		err = fmt.Errorf("%s: prune.policy: %w", got.file, err)
	}
	return config, err
}

func (c *call) prune(f *pruneFlags) error {
	if f.defaults && c.json {
		return cli.PrintJSON(c.out, map[string]string{"toml": prune.DefaultText()})
	}
	if f.defaults {
		fmt.Fprint(c.out, prune.DefaultText())
		return nil
	}
	config, err := f.config(c.ctx, c.cmd)
	if err != nil {
		return err
	}
	return c.withStore(false, func(t *snapshot.Namespace) error {
		old, err := c.caches(t, f.caches)
		if err != nil {
			return err
		}
		if f.dryRun {
			return c.pruneDry(t, f.options(config), old, f.full)
		}
		if old, err = c.removeCaches(t, old); err != nil {
			return err
		}
		return c.pruneNow(t, f.options(config), old)
	})
}

// options are those of a Pruner.
func (f *pruneFlags) options(config prune.Config) prune.Options {
	o := prune.Options{Config: config}
	if f.held {
		o.Despite = step.HoldLease
	}
	return o
}

// newPruner makes a Pruner; what is wrong with its policies is the command line's fault if that has made them.
func newPruner(store *snapshot.Store, o prune.Options) (*prune.Pruner, error) {
	p, err := prune.New(store, o)
	if errors.Is(err, prune.ErrConfig) {
		err = &nextError{err, "give --all, or what is to stay: --keep, --filter, --max-used, --min-free or --max-snapshots"}
	}
	return p, err
}

type prunedSnapshot struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Bytes     int64     `json:"bytes"`
	LastUsed  time.Time `json:"last_used"`
	Policy    int       `json:"policy"`
	Rule      string    `json:"rule"`
	Reason    string    `json:"reason"`
}

type pruneReport struct {
	DryRun    bool             `json:"dry_run"`
	Snapshots int64            `json:"snapshots"`
	Bytes     int64            `json:"bytes"`
	Kept      int64            `json:"kept"` // used by others meanwhile
	Left      int64            `json:"left_snapshots"`
	Used      int64            `json:"used_bytes"`
	Free      int64            `json:"free_bytes"`
	Removals  []prunedSnapshot `json:"removals,omitempty"` // of a dry run
	Caches    []cache          `json:"caches,omitempty"`
	Held      held             `json:"held"` // results that are held for the next step on them, and stay
}

func pruneReportOf(r prune.Result) pruneReport {
	return pruneReport{Snapshots: r.Snapshots, Bytes: r.Bytes, Kept: r.Kept, Left: r.After.Snapshots, Used: r.After.Used, Free: r.After.Free}
}

// pruneDry says what would go. Of very many it keeps in memory only what it prints.
func (c *call) pruneDry(t *snapshot.Namespace, o prune.Options, old []cache, full bool) error {
	p, err := newPruner(t.Store(), o)
	if err != nil {
		return err
	}
	var list []prunedSnapshot
	goes := map[string]bool{}
	stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "planning", Step: cli.ProgressStep}.Start()
	result, err := p.DryRun(c.ctx, func(r *prune.Removal) bool {
		goes[r.Name] = o.Despite != "" && r.Namespace == t.Name()
		list = append(list, prunedSnapshot{r.Namespace, r.Name, r.Usage.Size, r.LastUsed, r.Policy, r.Rule.String(), r.Reason(p.Policies())})
		return true
	})
	stop()
	if err != nil {
		return err
	}
	report := pruneReportOf(result)
	report.DryRun, report.Removals, report.Caches = true, list, old
	if report.Held, err = c.heldResults(t, goes); err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, report)
	}
	if len(list) > 0 {
		lines := [][]string{{"NAME", "SIZE", "LAST USED", "WHY"}}
		for _, r := range list {
			name := abbreviated(r.Name, full)
			if r.Namespace != DefaultNamespace {
				name = printable(r.Namespace) + ": " + name
			}
			lines = append(lines, []string{name, cli.Size(r.Bytes), humanize.Time(r.LastUsed), r.Reason})
		}
		cli.Columns(c.out, lines...)
	}
	for _, one := range old {
		fmt.Fprintf(c.out, "the cache %s would go, with %s, %s\n", printable(one.Name), cli.Size(one.Bytes), one.unused())
	}
	fmt.Fprintf(c.out, "%s would go, with %s; nothing was changed\n", cli.Plural(int(report.Snapshots), "snapshot"), cli.Size(report.Bytes))
	c.sayHeld(report.Held)
	return nil
}

func (c *call) pruneNow(t *snapshot.Namespace, o prune.Options, old []cache) error {
	var done atomic.Int64 // thousandths: how much there is to do is known when it has begun
	o.Progress = func(p prune.Progress) {
		done.Store(p.Snapshots * 1000 / max(p.Snapshots+p.SnapshotsLeft, 1))
	}
	p, err := newPruner(t.Store(), o)
	if err != nil {
		return err
	}
	stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "removing", Total: 1000, Done: done.Load, Step: cli.ProgressStep}.Start()
	result, err := p.Run(c.ctx)
	stop()
	if err == nil {
		err = c.deleted(t.Store())
	}
	if err == nil && c.shared != nil { // without a daemon the next Runner does it
		err = c.shared.runner.ForgetGone(c.ctx)
	}
	if err != nil {
		if result.Snapshots > 0 {
			removed := cli.Plural(int(result.Snapshots), "snapshot")
			if said := c.interruptedAfter(err, removed+" are removed, and stay so; the next holdfastd prune goes on"); said != err {
				return said
			}
			err = fmt.Errorf("%w (%s are removed, and stay so)", err, removed)
		}
		return err
	}
	report := pruneReportOf(result)
	report.Caches = old
	if report.Held, err = c.heldResults(t, nil); err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, report)
	}
	defer c.sayHeld(report.Held)
	if report.Snapshots == 0 {
		fmt.Fprintf(c.out, "nothing to remove; %s used, %s free\n", cli.Size(report.Used), cli.Size(report.Free))
		return nil
	}
	fmt.Fprintf(c.out, "removed %s with %s; %s used, %s free\n", cli.Plural(int(report.Snapshots), "snapshot"),
		cli.Size(report.Bytes), cli.Size(report.Used), cli.Size(report.Free))
	return nil
}

// deleted waits until what was removed is deleted.
func (c *call) deleted(store *snapshot.Store) error {
	totals, err := store.Totals(c.ctx)
	if err != nil {
		return err
	}
	left := func() int64 {
		now, err := store.Totals(c.ctx)
		if err != nil {
			return 0
		}
		return max(totals.Trash-now.Trash, 0)
	}
	stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "deleting", Total: totals.Trash, Done: left, Step: cli.ProgressStep}.Start()
	defer stop()
	return c.interruptedAfter(store.Cleanup(c.ctx), "what is removed stays removed, and the next command deletes what is left of it")
}

const whyHelp = `Say whether the next holdfastd prune would remove a snapshot, and by which rule; or else
what keeps it: who uses it, leases, pins, what stands on it; or for each policy why it spares
the snapshot. With --policy as for prune.`

func (a *app) newWhy() *cobra.Command {
	f := pruneFlags{app: a}
	cmd := &cobra.Command{
		Use: "why NAME", Short: "Say what keeps a snapshot", Long: whyHelp, Args: cobra.ExactArgs(1),
		RunE: a.action(func(c *call) error { return c.why(&f) }), ValidArgsFunction: a.completeSnapshots(0),
	}
	f.register(cmd)
	a.namespaceFlag(cmd, cmd.Flags())
	return cmd
}

type whyReport struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Removed   bool     `json:"removed"` // by the next run
	Reasons   []string `json:"reasons"` // why, or why not
	More      bool     `json:"more"`    // there are further snapshots that keep it
	Command   string   `json:"command"` // of the step whose result it is, cut off; "": it is none
}

func (c *call) why(f *pruneFlags) error {
	config, err := f.config(c.ctx, c.cmd)
	if err != nil {
		return err
	}
	var r whyReport
	err = c.withStore(false, func(t *snapshot.Namespace) error {
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		p, err := newPruner(t.Store(), prune.Options{Config: config})
		if err != nil {
			return err
		}
		answer, err := p.Why(c.ctx, t.Name(), info.Name)
		if err != nil {
			return err
		}
		r = whyReport{Namespace: t.Name(), Name: info.Name, Removed: answer.Next != nil, More: answer.More, Command: info.Labels[step.LabelCommand]}
		if answer.Next != nil {
			r.Reasons = []string{answer.Next.Reason(p.Policies())}
		}
		for n := range answer.Kept {
			r.Reasons = append(r.Reasons, service.Reason(&info, &answer.Kept[n], func(name string) string { return abbreviated(name, f.full || c.json) }))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, r)
	}
	verdict := map[bool]string{false: "stays", true: "goes with the next holdfastd prune"}[r.Removed]
	fmt.Fprintf(c.out, "%s %s\n", abbreviated(r.Name, f.full), verdict)
	for _, reason := range r.Reasons {
		fmt.Fprintf(c.out, "  %s\n", reason)
	}
	if r.Command != "" {
		fmt.Fprintf(c.out, "  it is the result of: %s\n", visible(r.Command))
	}
	if r.More {
		fmt.Fprintln(c.out, "  and more snapshots that stand on it")
	}
	return nil
}
