package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

const manHelp = `Print the manual page of holdfast or of one of its commands, as man(1) reads it:

  holdfast man vacuum | man -l -

With --dir the pages of all commands are written into that directory, which is made if
it is not there: holdfast.1, holdfast-vacuum.1 and so on. Pages that are there already
are replaced.

They say what --help says.`

type manReport struct {
	Dir   string   `json:"dir"`
	Pages []string `json:"pages"`
}

func (a *app) newMan() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print a manual page, or write them all",
		Long:  manHelp,
		RunE: a.action(func(c *call) error {
			if dir != "" {
				return c.manPages(dir)
			}
			return c.manPage()
		}),
		ValidArgsFunction: cli.CompleteCommands,
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory into which the pages of all commands are written")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}

// manPage prints the page of the command that the arguments name.
func (c *call) manPage() error {
	if c.json {
		return usagef("a manual page has no JSON; --json is for --dir")
	}
	root := c.cmd.Root()
	cmd, left, err := root.Find(c.args)
	if err != nil || len(left) > 0 {
		return usagef("no command %s; %s --help lists them", strings.Join(c.args, " "), root.Name())
	}
	return cli.ManPage(cmd, c.out, version())
}

// manPages writes all pages into dir.
func (c *call) manPages(dir string) error {
	if len(c.args) > 0 {
		return usagef("--dir writes the pages of all commands; leave %v out", c.args)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c.explain(dir, err)
	}
	r := manReport{Dir: dir, Pages: []string{}}
	if err := c.manTree(c.cmd.Root(), dir, &r); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(r)
	}
	fmt.Fprintf(c.out, "%s written to %s\n", plural(len(r.Pages), "page"), dir)
	return nil
}

// manTree writes the page of cmd, and of those below it.
func (c *call) manTree(cmd *cobra.Command, dir string, r *manReport) error {
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := c.manTree(child, dir, r); err != nil {
			return err
		}
	}
	name := cli.ManName(cmd)
	o := output{path: filepath.Join(dir, name)}
	err := c.makeFile(o.path, o, func(_ context.Context, temp string) error {
		f, err := os.OpenFile(temp, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := cli.ManPage(cmd, f, version()); err != nil {
			return err
		}
		if err := f.Chmod(0o644); err != nil {
			return err
		}
		return f.Close()
	})
	r.Pages = append(r.Pages, name)
	return c.explain(o.path, err)
}
