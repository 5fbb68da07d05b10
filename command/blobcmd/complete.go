package blobcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

// completeStore has the shell complete the names of stores and, for each command that takes some, as its
// usage line tells, of blobs. The file, and what is put, are completed as files.
func completeStore(a *cli.App, cmd *cobra.Command) {
	use := strings.Fields(cmd.Use)
	takesBlobs := len(use) > 3 && (strings.Contains(use[3], "REF") || use[3] == "A")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 || len(args) > 1 && !takesBlobs {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var n cli.StoreName
		n.BucketFormat = "ascii-encoded"
		if f := cmd.Flags().Lookup("bucket-format"); f != nil {
			n.BucketFormat = f.Value.String()
		}
		quick := *a
		quick.Timeout, quick.Quiet = cli.CompleteTimeout, true
		c := &cli.Call{App: &quick, Cmd: cmd, Args: args}
		err := quick.View(args[0], false, func(_ *cli.Database, tx *holdfast.Tx) error {
			if len(args) == 1 {
				names = storeNames(tx, n.BucketFormat, begun)
				return nil
			}
			path, err := n.Path(args[1])
			if err != nil {
				return err
			}
			s, err := store(&quick, args[0], tx, path)
			if err != nil {
				return err
			}
			names = (&blobs{Store: s, call: c, file: args[0], path: path}).namesFrom(begun)
			return nil
		})
		if err != nil { // it cannot be told here; running the command tells
			names = nil
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// storeNames are the paths of stores that begin with begun, as the command line takes them.
func storeNames(tx *holdfast.Tx, format, begun string) (names []string) {
	for _, path := range cli.StoresIn(tx, cli.MaxCompleted) {
		text := cli.PathText(path)
		if format == "hex" {
			text = cli.HexPath(path)
		} else if !cli.PlainPath(path) { // which can be given as hexadecimal only
			continue
		}
		if strings.HasPrefix(text, begun) {
			names = append(names, text)
		}
	}
	return names
}

// namesFrom are the names of blobs that begin with begun.
func (b *blobs) namesFrom(begun string) (names []string) {
	n := 0
	for ref, err := range b.Roots() {
		if n++; err != nil || n > cli.MaxCompleted {
			break
		}
		for _, name := range []string{b.nameOf(ref), ref.String()} {
			digits := name[strings.IndexByte(name, ':')+1:]
			switch {
			case len(names) > 0 && (names[len(names)-1] == name || names[len(names)-1] == digits):
			case strings.HasPrefix(name, begun):
				names = append(names, name)
			case strings.HasPrefix(digits, begun):
				names = append(names, digits)
			}
		}
	}
	return names
}
