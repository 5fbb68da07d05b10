package command

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

func init() { register((*app).newPage) }

const pageHelp = `Print the address of the page of the daemon that serves the store, with the token that it asks for: open
it in a browser. Who has the address can do what the daemon can.`

func (a *app) newPage() *cobra.Command {
	return &cobra.Command{Use: "page", Short: "Print the address of the daemon's page", Long: pageHelp, Args: cobra.NoArgs, RunE: a.action((*call).page)}
}

func (c *call) page() error {
	switch {
	case c.shared == nil:
		return c.noDaemon()
	case c.shared.page == "":
		return &nextError{errors.New("the daemon has no page"), "set listen in [http] of its configuration, or start it with --http 127.0.0.1:8723"}
	case c.json:
		return cli.PrintJSON(c.out, map[string]string{"address": c.shared.page})
	}
	_, err := fmt.Fprintln(c.out, c.shared.page)
	return err
}

// noDaemon is what is said where none serves the store to this user.
func (c *call) noDaemon() error {
	if _, err := c.isStore(); errors.Is(err, fs.ErrPermission) {
		return err
	}
	command := "holdfastd serve --http 127.0.0.1:8723"
	if c.root != DefaultRoot {
		command = "holdfastd --root " + cli.ShellWord(c.root) + " serve --http 127.0.0.1:8723"
	}
	return &nextError{fmt.Errorf("no daemon serves the store %s", c.root), "start one: " + command}
}
