package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

func init() { register((*app).newMan) }

func (a *app) newMan() *cobra.Command {
	var dir string
	return cli.ManCommand("holdfastd", "step", &dir, a.action(func(c *call) error {
		if dir != "" {
			return c.manPages(dir)
		}
		return cli.PrintManPage(c.cmd.Root(), c.args, c.json, c.out, version())
	}))
}

// manPages writes all pages into dir.
func (c *call) manPages(dir string) error {
	pages := []string{}
	err := cli.EachManPage(c.cmd.Root(), c.args, func(cmd *cobra.Command, name string) error {
		var page bytes.Buffer
		if err := cli.ManPage(cmd, &page, version()); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		pages = append(pages, name)
		return os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644)
	})
	if err != nil {
		return err
	}
	if c.json {
		return cli.PrintJSON(c.out, map[string]any{"dir": dir, "pages": pages})
	}
	fmt.Fprintf(c.out, "%s written to %s\n", cli.Plural(len(pages), "page"), printable(dir))
	return nil
}
