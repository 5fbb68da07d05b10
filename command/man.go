package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

type manReport struct {
	Dir   string   `json:"dir"`
	Pages []string `json:"pages"`
}

func (a *app) newMan() *cobra.Command {
	var dir string
	return cli.ManCommand("holdfast", "vacuum", &dir, a.action(func(c *call) error {
		if dir != "" {
			return c.manPages(dir)
		}
		return cli.PrintManPage(c.cmd.Root(), c.args, c.json, c.out, version())
	}))
}

// manPages writes all pages into dir.
func (c *call) manPages(dir string) error {
	r := manReport{Dir: dir, Pages: []string{}}
	err := cli.EachManPage(c.cmd.Root(), c.args, func(cmd *cobra.Command, name string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return c.explain(dir, err)
		}
		r.Pages = append(r.Pages, name)
		return c.manFile(cmd, filepath.Join(dir, name))
	})
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(r)
	}
	fmt.Fprintf(c.out, "%s written to %s\n", plural(len(r.Pages), "page"), dir)
	return nil
}

// manFile writes the page of cmd.
func (c *call) manFile(cmd *cobra.Command, path string) error {
	o := output{path: path}
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
	return c.explain(o.path, err)
}
