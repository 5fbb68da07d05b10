// Package exporter has the command exporter, which shows Prometheus the figures of all databases that are shared in a
// directory (Options.Share). It reads the shares and opens no database.
//
// It is not among the commands of package command: a program that embeds those, as the drop-in's command bbolt does, would
// depend on Prometheus' libraries.
package exporter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"runtime"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

const help = `Show Prometheus what happens in the databases that programs share: at http://ADDR/metrics the
figures of all in a directory, with the path of the database and the program as labels.

A program shares its databases if it is started with HOLDFAST_SHARE=on in its environment (or with
Options.Share). Run it as a user who may read the databases; none is opened.

holdfast_up is 0 after the program was killed, until it has the database open again. What cannot be
read, or is not what a database shows, is left out, counted in holdfast_exporter_errors and named on
standard error.

Who can connect to the address can read the figures: there is no password. The command ends on
Ctrl-C and SIGTERM, with the exit code 0.`

type flags struct{ listen, dir string }

// NewCommand is the command exporter.
func NewCommand(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Show Prometheus the figures of all databases that programs share",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE:  a.Action(func(c *cli.Call) error { return run(c, f) }),
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:9460", "address to listen on, as HOST:PORT")
	cli.AddShareDir(cmd, &f.dir)
	return cmd
}

func run(c *cli.Call, f flags) error {
	dir, err := cli.ShareDir(f.dir, "")
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("show the figures of databases: sharing needs Linux: %w", errors.ErrUnsupported)
	}
	ctx, stop := c.Interruptible()
	defer stop()
	l, err := listen(ctx, f.listen)
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String() + "/metrics"
	if c.JSON {
		err = json.NewEncoder(c.Out).Encode(map[string]string{"url": url, "dir": dir})
	} else {
		_, err = fmt.Fprintf(c.Out, "the databases shared in %s are shown at %s\n", cli.OneLine(dir), url)
	}
	if err = errors.Join(err, c.Out.Flush()); err != nil {
		return errors.Join(err, l.Close())
	}
	return serve(ctx, l, newCollector(dir, log.New(c.Cmd.ErrOrStderr(), "holdfast exporter: ", 0)), usual)
}

// listen begins to listen on an address of the command line.
func listen(ctx context.Context, address string) (net.Listener, error) {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return nil, cli.Usagef("--listen: %q is not HOST:PORT, such as 127.0.0.1:9460", address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		what := err
		var op *net.OpError
		if errors.As(err, &op) {
			what = op.Err
		}
		return nil, &cli.FileError{File: address, What: "cannot listen there: " + what.Error(), Next: "give a free address of this machine with --listen HOST:PORT", Err: err}
	}
	return l, nil
}
