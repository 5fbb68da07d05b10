package transfer

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/command/internal/hook"
	"holdfast/command/internal/rows"
)

const putHelp = `Set a key to a value. The command prints what it did.

Neither the file nor a bucket is created unless --create is given.`

type putFlags struct {
	cli.Naming
	valueFormat string
	valueFile   string
	create      bool
}

type putReport struct {
	File           string   `json:"file"`
	Bucket         []string `json:"bucket"`
	Key            string   `json:"key"`
	KeyEncoding    string   `json:"key_encoding"`
	ValueBytes     int      `json:"value_bytes"`
	Replaced       bool     `json:"replaced"`
	ReplacedBytes  int      `json:"replaced_bytes"`
	CreatedFile    bool     `json:"created_file"`
	CreatedBuckets int      `json:"created_buckets"`
}

func newPut(a *cli.App) *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:   "put FILE BUCKET... KEY VALUE",
		Short: "Set a key to a value",
		Long:  putHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.valueFile != "" {
				return cobra.MinimumNArgs(3)(cmd, args)
			}
			return cobra.MinimumNArgs(4)(cmd, args)
		},
		RunE: a.Action(func(c *cli.Call) error { return runPut(c, f) }),
	}
	f.AddBucketFlag(cmd)
	f.AddKeyFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.valueFormat, "value-format", "ascii-encoded", "how VALUE is given: ascii-encoded|hex")
	flags.StringVar(&f.valueFile, "value-file", "", "take the value from this file instead of VALUE; -: from standard input")
	flags.BoolVar(&f.create, "create", false, "create the file and the buckets if they do not exist")
	return cmd
}

// value gives the value to put and the arguments without it.
func value(c *cli.Call, f putFlags) (value []byte, args []string, err error) {
	if err := cli.CheckFormat("value-format", f.valueFormat, cli.InputFormats); err != nil {
		return nil, nil, err
	}
	switch f.valueFile {
	case "":
		last := len(c.Args) - 1
		value, err = cli.ParseBytes("value", c.Args[last], f.valueFormat)
		return value, c.Args[:last], err
	case "-":
		value, err = readValue("standard input", c.Cmd.InOrStdin())
		return value, c.Args, err
	}
	file, err := cli.OpenFile(f.valueFile)
	if err != nil {
		return nil, nil, c.Explain(f.valueFile, err)
	}
	defer file.Close()
	value, err = readValue(f.valueFile, file)
	return value, c.Args, c.Explain(f.valueFile, err)
}

// readValue reads the file of that name to its end. One that is longer than a value can be, or has no end, is not
// taken into memory as a whole.
func readValue(name string, from io.Reader) ([]byte, error) {
	tooLong := &cli.FileError{File: name, What: fmt.Sprintf("longer than a value can be: %s", cli.SizeExactly(hook.LongestValue)), Next: "nothing was set; \"blob put\" stores files of any size", Err: holdfast.ErrValueTooLarge}
	if file, ok := from.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > hook.LongestValue {
			return nil, tooLong
		}
	}
	value, err := io.ReadAll(io.LimitReader(from, hook.LongestValue+1))
	if err == nil && int64(len(value)) > hook.LongestValue {
		return nil, tooLong
	}
	return value, err // never nil
}

func runPut(c *cli.Call, f putFlags) error {
	value, args, err := value(c, f)
	if err != nil {
		return err
	}
	path, key, err := f.PathAndKey(args[1:])
	if err != nil {
		return err
	}
	r := putReport{File: c.Args[0], ValueBytes: len(value)}
	r.Key, r.KeyEncoding = cli.EncodeBytes(key, "auto")
	r.CreatedFile, err = c.Update(r.File, f.create, func(tx *holdfast.Tx) error {
		if path, err = f.SingleNames(c.App, tx, path); err != nil {
			return err
		}
		r.Bucket = cli.PathNames(path)
		if err := c.NotInStore(r.File, tx, path, "\"blob put\" stores a blob there"); err != nil {
			return err
		}
		in, created, err := c.LocateOrCreate(r.File, tx, path, f.create)
		if err != nil {
			return err
		}
		r.CreatedBuckets = created
		if err := rows.NotRow(c, r.File, in.Bucket, path, key, value); err != nil {
			return err
		}
		if old := in.Get(key); old != nil {
			r.Replaced, r.ReplacedBytes = true, len(old)
		}
		return cli.CannotHaveValue(r.File, r.Key, cli.PathText(path), in.Put(key, value))
	})
	if err != nil {
		return err
	}
	return c.Report(r, func() { printPut(c, r, path) })
}

func printPut(c *cli.Call, r putReport, path [][]byte) {
	if r.CreatedFile {
		fmt.Fprintf(c.Out, "created the database %s\n", r.File)
	}
	if r.CreatedBuckets > 0 {
		fmt.Fprintf(c.Out, "created %s of %s\n", cli.Plural(r.CreatedBuckets, "bucket"), cli.PathText(path))
	}
	was := "a new key"
	if r.Replaced {
		was = fmt.Sprintf("it had %s", cli.Plural(r.ReplacedBytes, "byte"))
	}
	fmt.Fprintf(c.Out, "set %s in %s to %s (%s)\n", r.Key, cli.PathText(path), cli.Plural(r.ValueBytes, "byte"), was)
}
