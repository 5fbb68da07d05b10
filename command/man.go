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

func newMan(a *cli.App) *cobra.Command {
	var dir string
	return cli.ManCommand("holdfast", "vacuum", &dir, a.Action(func(c *cli.Call) error {
		if dir != "" {
			return manPages(c, dir)
		}
		return cli.PrintManPage(c.Cmd.Root(), c.Args, c.JSON, c.Out, version())
	}))
}

// manPages writes all pages into dir.
func manPages(c *cli.Call, dir string) error {
	r := manReport{Dir: dir, Pages: []string{}}
	err := cli.EachManPage(c.Cmd.Root(), c.Args, func(cmd *cobra.Command, name string) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return c.Explain(dir, err)
		}
		r.Pages = append(r.Pages, name)
		return manFile(c, cmd, filepath.Join(dir, name))
	})
	if err != nil {
		return err
	}
	return c.Report(r, func() { fmt.Fprintf(c.Out, "%s written to %s\n", cli.Plural(len(r.Pages), "page"), dir) })
}

// manFile writes the page of cmd.
func manFile(c *cli.Call, cmd *cobra.Command, path string) error {
	o := cli.OutputFile{Path: path}
	err := c.MakeFile(o.Path, o, func(_ context.Context, temp string) error {
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
	return c.Explain(o.Path, err)
}
