package command

import (
	"encoding/base64"

	"fmt"

	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// Commands that take something out of committed snapshots, which they do not change.

func init() { register((*app).newCopy) }

const copyHelp = `Copy a file, or a directory's content, of a base or result to this machine: a directory into
the directory DEST, besides what it has; a file to DEST, or into it if that is a directory or ends with /.
What is made belongs to you, without set-user-ID and extended attributes. A symbolic link at PATH is
followed within the snapshot, others are copied. With - as DEST it is written as an archive of tar to
standard output, with owners and attributes.

Nothing can be copied into a snapshot: the flag --copy of step makes another one.`

func (a *app) newCopy() *cobra.Command {
	return &cobra.Command{
		Use: "cp NAME:PATH DEST", Short: "Copy something out of a base or result", Long: copyHelp, Args: cobra.ExactArgs(2),
		Example: "  holdfastd cp debian:/etc/debian_version .\n  holdfastd cp step-1f0c:/src/bin - | tar -t",
		RunE:    a.action((*call).copyOut), ValidArgsFunction: a.completeSnapshots(0),
	}
}

func (c *call) copyOut() error {
	name, source, ok := strings.Cut(c.args[0], ":/")
	if !ok || name == "" {
		return cli.Usagef("what to copy is %q; it must be NAME:/PATH, a snapshot and a path in it", c.args[0])
	}
	source = "/" + source
	toTar := c.args[1] == "-"
	if toTar && c.json {
		return cli.Usagef("--json and an archive both go to standard output; give a DEST other than -")
	}
	return c.withContent([]string{name}, func(r *step.Runner, found []snapshot.Info) error {
		if toTar {
			return r.ExportTar(c.ctx, found[0].Name, source, c.out)
		}
		dest := c.path(c.args[1])
		if err := r.CheckOutput(source, dest); err != nil {
			return err
		}
		return r.Export(c.ctx, found[0].Name, source, dest)
	})
}

// withContent calls fn with committed snapshots that have names: those of bases are their topmost layers.
func (c *call) withContent(names []string, fn func(*step.Runner, []snapshot.Info) error) error {
	if err := c.needStore(); err != nil {
		return err
	}
	if !privileged() {
		return c.inUserNamespace()
	}
	err := c.withRunner(step.Options{}, nil, func(t *snapshot.Namespace, r *step.Runner) error {
		var found []snapshot.Info
		for _, name := range names {
			info, err := c.find(t, name)
			if err == nil && info.Kind != snapshot.Active {
				info, err = image.Resolve(c.ctx, t, info.Name)
			}
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", name, err)
			}
			if info.Kind == snapshot.Active {
				return &nextError{fmt.Errorf("snapshot %q is not committed: it can still change", info.Name), "holdfastd mount shows what is in it now"}
			}
			found = append(found, info)
		}
		return fn(r, found)
	})
	if cli.IsClosedPipe(err) {
		return &exitError{code: exitPipe}
	}
	return err
}

const diffHelp = `List what a base or result has changed of another snapshot, which is the one that it stands on
unless BEFORE is given: A for what is added, C changed, D deleted. Names and owners, modes, times of files,
content and extended attributes count, however the store keeps them. Of a deleted directory only
its own path is listed.`

func (a *app) newDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff NAME [BEFORE]", Short: "List what a snapshot has changed", Long: diffHelp, Args: cobra.RangeArgs(1, 2),
		RunE: a.action((*call).diff), ValidArgsFunction: a.completeSnapshots(-1),
	}
}

type changeReport struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64"` // in place of path, if that is not text
	Change     string `json:"change"`      // added, changed or deleted
}

func (c *call) diff() error {
	if c.namespace != "" && c.namespace != DefaultNamespace {
		return cli.Usagef("diff is for the namespace %s", DefaultNamespace)
	}
	list := []changeReport{}
	return c.withContent(c.args, func(r *step.Runner, found []snapshot.Info) error {
		before := found[0].Parent
		if len(found) > 1 {
			before = found[1].Name
		}
		err := r.Diff(c.ctx, before, found[0].Name, func(one step.Change) error {
			if !c.json {
				_, err := fmt.Fprintf(c.out, "%s %s\n", strings.ToUpper(one.Kind[:1]), printable(one.Path))
				return err
			}
			report := changeReport{Path: one.Path, Change: one.Kind}
			if !utf8.ValidString(one.Path) {
				report.Path, report.PathBase64 = "", base64.StdEncoding.EncodeToString([]byte(one.Path))
			}
			list = append(list, report)
			return nil
		})
		if err == nil && c.json {
			err = cli.PrintJSON(c.out, list)
		}
		return err
	})
}
