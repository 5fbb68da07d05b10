package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/mount"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

func init() { register((*app).newPush) }

const pushHelp = `Push a base, or the result of a step, to a registry as an image.

REF is the name that it gets, with a tag or latest. Each snapshot of its chain is a layer, made anew of
what the snapshot changes: the same snapshots give the same layers, which are not those that were
pulled. What the registry has already is not sent. The image runs what its base does.

` + credentialsHelp

// exportFlags say how a snapshot becomes an image.
type exportFlags struct{ compression, platform string }

func (f *exportFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.compression, "compression", string(image.CompressGzip), "how layers are compressed: gzip|zstd")
	flags.StringVar(&f.platform, "platform", "", "platform that the image says it is for; default: that of its base, or of this machine")
}

func (f *exportFlags) options() (o image.ExportOptions, err error) {
	switch o.Compression = image.Compression(f.compression); o.Compression {
	case image.CompressGzip, image.CompressZstd:
	default:
		return o, cli.Usagef("--compression is %q; it can be gzip or zstd", f.compression)
	}
	if f.platform != "" {
		if o.Platform, err = image.ParsePlatform(f.platform); err != nil {
			return o, &cli.UsageError{Err: err}
		}
	}
	o.Command = func(i snapshot.Info) string { return i.Labels[step.LabelCommand] }
	o.Progress = &image.ExportProgress{}
	return o, nil
}

func (a *app) newPush() *cobra.Command {
	var f exportFlags
	var r registryFlags
	cmd := &cobra.Command{
		Use: "push NAME REF", Short: "Push a snapshot to a registry as an image", Long: pushHelp, Args: cobra.ExactArgs(2),
		Example:           "  holdfastd push step-2ab7ae2a8e9c registry.example.com/group/app:2",
		ValidArgsFunction: a.completeFirst(), RunE: a.action(func(c *call) error { return c.push(&f, &r) }),
	}
	f.add(cmd.Flags())
	r.add(cmd.Flags())
	a.complete(cmd, "compression", cli.FlagValues([]string{"gzip", "zstd"}))
	return cmd
}

// completeFirst offers the names of snapshots for the first argument, and nothing for others.
func (a *app) completeFirst() cobra.CompletionFunc {
	snapshots := a.completeSnapshots(0)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return snapshots(cmd, args, begun)
	}
}

type pushReport struct {
	Snapshot string `json:"snapshot"`
	Ref      string `json:"ref"`
	Digest   string `json:"digest"`
	Layers   int    `json:"layers"`
	Bytes    int64  `json:"bytes"`
}

func (c *call) push(f *exportFlags, r *registryFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	client, err := c.client(c.args[1], r)
	if err != nil {
		return err
	}
	if err := client.CheckPush(c.args[1]); err != nil {
		return &cli.UsageError{Err: err}
	}
	return c.withTrees(func(t *snapshot.Namespace, show shower) error {
		if err := client.open(t); err != nil {
			return err
		}
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		o.Show = show
		progress := &registry.Progress{}
		stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "pushing", Total: 1000, Step: cli.ProgressStep, Done: func() int64 {
			return thousandths(o.Progress.Layers())/2 + thousandths(progress.Transferred())/2
		}}.Start()
		got, err := client.Push(c.ctx, t, info.Name, c.args[1], o, progress)
		stop()
		if err != nil {
			return c.interruptedAfter(err, "layers that are sent stay in the registry, and the next push does not send them again")
		}
		if c.json {
			return cli.PrintJSON(c.out, pushReport{info.Name, got.Ref, got.Digest, got.Layers, got.Bytes})
		}
		cli.Rows(c.out, [][2]string{{"Image", got.Ref}, {"Digest", got.Digest}, {"Layers", fmt.Sprintf("%s, %s", cli.Count(got.Layers), cli.Size(got.Bytes))}}...)
		return nil
	})
}

// shower shows the tree of a snapshot at a path, as image.ExportOptions.Show says.
type shower = func(ctx context.Context, info snapshot.Info) (path string, release func() error, err error)

// withTrees opens the store, for as long as fn runs, which can have the trees of snapshots shown.
func (c *call) withTrees(fn func(*snapshot.Namespace, shower) error) error {
	if err := c.needStore(); err != nil {
		return err
	}
	if !privileged() {
		return c.inUserNamespace()
	}
	return c.withStore(false, func(t *snapshot.Namespace) error {
		m, done, err := c.someMounts()
		if err != nil {
			return err
		}
		return errors.Join(fn(t, func(ctx context.Context, info snapshot.Info) (string, func() error, error) {
			return showTree(ctx, t, m, info)
		}), done())
	})
}

// showTree mounts a view of a committed snapshot, which is removed by unmounted if the process is killed.
func showTree(ctx context.Context, t *snapshot.Namespace, m *mount.Manager, info snapshot.Info) (string, func() error, error) {
	key, own := viewPrefix+rand.Text(), context.WithoutCancel(ctx)
	list, err := t.View(ctx, key, info.Name)
	if err != nil {
		return "", nil, err
	}
	spec, err := mount.FromMounts(list)
	if err != nil {
		return "", nil, errors.Join(err, t.Remove(own, key))
	}
	h, err := m.Acquire(ctx, spec)
	if err != nil {
		return "", nil, errors.Join(err, t.Remove(own, key))
	}
	return h.Path(), func() error {
		h.Release()
		return errors.Join(h.Wait(own), t.Remove(own, key))
	}, nil
}
