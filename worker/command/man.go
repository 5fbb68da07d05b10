package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

func init() { register((*app).newMan) }

const manHelp = `Print the manual page of holdfastd or of one of its commands, as man(1) reads it:

  holdfastd man step | man -l -

With --dir the pages of all commands are written into that directory, which is made if
it is not there: holdfastd.1, holdfastd-step.1 and so on. Pages that are there already
are replaced.

They say what --help says.`

func (a *app) newMan() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "man [COMMAND...]", Short: "Print a manual page, or write them all", Long: manHelp,
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
		return cli.Usagef("a manual page has no JSON; --json is for --dir")
	}
	root := c.cmd.Root()
	cmd, left, err := root.Find(c.args)
	if err != nil || len(left) > 0 {
		return cli.Usagef("no command %s; %s --help lists them", strings.Join(c.args, " "), root.Name())
	}
	return cli.ManPage(cmd, c.out, version())
}

// manPages writes all pages into dir.
func (c *call) manPages(dir string) error {
	if len(c.args) > 0 {
		return cli.Usagef("--dir writes the pages of all commands; leave %v out", c.args)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages, err := manTree(c.cmd.Root(), dir)
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, map[string]any{"dir": dir, "pages": pages})
	}
	fmt.Fprintf(c.out, "%s written to %s\n", cli.Plural(len(pages), "page"), printable(dir))
	return nil
}

// manTree writes the page of cmd, and of those below it, and returns the names of the files.
func manTree(cmd *cobra.Command, dir string) (pages []string, err error) {
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
			continue
		}
		below, err := manTree(child, dir)
		if err != nil {
			return nil, err
		}
		pages = append(pages, below...)
	}
	var page bytes.Buffer
	if err := cli.ManPage(cmd, &page, version()); err != nil {
		return nil, err
	}
	name := cli.ManName(cmd)
	return append(pages, name), os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644)
}
