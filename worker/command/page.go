package command

import (
	"errors"
	"fmt"

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
		return &nextError{errors.New("no daemon serves the store"), "start one: holdfastd serve --http 127.0.0.1:8723"}
	case c.shared.page == "":
		return &nextError{errors.New("the daemon has no page"), "set listen in [http] of its configuration, or start it with --http 127.0.0.1:8723"}
	case c.json:
		return cli.PrintJSON(c.out, map[string]string{"address": c.shared.page})
	}
	_, err := fmt.Fprintln(c.out, c.shared.page)
	return err
}
