package transfer

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/command/internal/rows"
)

const exportHelp = `Write all buckets and keys, or those of a bucket, as lines of JSON, in the order of
the keys, to standard output or to a file. "import" reads them. The database is only read.

The first line names the format, the last one says how much there was, so that what is cut off
is noticed. In between each bucket has a line, with its sequence unless that is 0, and each key:

  {"bucket":["users"],"sequence":7}
  {"bucket":["users"],"key":"anna","value":"admin"}

Names, keys and values that are not text are {"hex":"00ff"} or {"base64":"AP8="}.

--csv writes the keys and values of one bucket as CSV, without the buckets in it. Rows that
"import --blob-columns" has put there get all their columns again, with the content of their blobs.`

type exportFlags struct {
	cli.OutputFile
	cli.Naming
	app         *cli.App
	csv         bool
	header      bool
	keyFormat   string
	valueFormat string
}

type exportReport struct {
	File        string   `json:"file"`
	Bucket      []string `json:"bucket"`
	Output      string   `json:"output"`
	OutputBytes int64    `json:"output_bytes"`
	Buckets     uint64   `json:"buckets"`
	Keys        uint64   `json:"keys"`
	LeftOut     uint64   `json:"buckets_left_out"` // by --csv

	noText bool // with --csv: "auto" has written something as hexadecimal
}

func newExport(a *cli.App) *cobra.Command {
	f := exportFlags{app: a}
	cmd := &cobra.Command{
		Use:   "export FILE [BUCKET...]",
		Short: "Write buckets and keys as lines of JSON, or a bucket as CSV",
		Long:  exportHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.Action(func(c *cli.Call) error { return runExport(c, f) }),
	}
	f.AddBucketFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.Path, "output", "o", "", "file to write in place of standard output")
	flags.BoolVar(&f.Force, "force", false, "replace the file that is written if it exists")
	flags.BoolVar(&f.csv, "csv", false, "write the keys and values of BUCKET... as CSV")
	flags.BoolVar(&f.header, "header", false, "with --csv: the first line names the columns")
	formats := strings.Join(cli.OutputFormats, "|")
	flags.StringVar(&f.keyFormat, "key-format", "auto", "with --csv: how keys are written: "+formats)
	flags.StringVar(&f.valueFormat, "value-format", "auto", "with --csv: how values are written: "+formats)
	_ = cmd.MarkFlagFilename("output")
	if !a.Stock {
		a.AddKeyFlag(cmd)
	}
	return cmd
}

// check looks at what the flags say together.
func (f *exportFlags) check(c *cli.Call) error {
	for _, name := range []string{"header", "key-format", "value-format"} {
		if !f.csv && c.Cmd.Flags().Changed(name) {
			return cli.Usagef("--%s is for --csv", name)
		}
	}
	switch {
	case f.csv && len(c.Args) < 2:
		return cli.Usagef("--csv is for one bucket: name it after the file")
	case f.Force && f.Path == "":
		return cli.Usagef("--force is for --output")
	}
	if err := cli.CheckFormat("key-format", f.keyFormat, cli.OutputFormats); err != nil {
		return err
	}
	return cli.CheckFormat("value-format", f.valueFormat, cli.OutputFormats)
}

func runExport(c *cli.Call, f exportFlags) error {
	if err := f.check(c); err != nil {
		return err
	}
	file := c.Args[0]
	path, err := f.Buckets(c.Args[1:])
	if err != nil {
		return err
	}
	r := exportReport{File: file, Output: f.Path}
	err = c.View(file, false, func(d *cli.Database, tx *holdfast.Tx) error {
		in, err := f.Find(c.App, file, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = cli.PathNames(path)
		if f.Path != "" {
			return exportTo(c, d, in, path, f, &r)
		}
		return f.write(c.Ctx, c.Out, in, path, &r)
	})
	if err != nil {
		return err
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: %s in %s left out: CSV has keys and values only\n",
			c.Name(), cli.Plural(r.LeftOut, "bucket"), cli.PathText(path))
	}
	if r.noText {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s: note: what is not text was written as hexadecimal, which import cannot tell from text; to import it again, export with --key-format hex --value-format hex, and give the same to import\n", c.Name())
	}
	switch {
	case f.Path == "":
	case c.JSON:
		return c.PrintJSON(r)
	default:
		fmt.Fprintf(c.Out, "%s -> %s: %s, %s\n", r.File, r.Output, cli.Contents{Buckets: r.Buckets, Keys: r.Keys}.Total(), cli.Size(r.OutputBytes))
	}
	return nil
}

// exportTo writes the export to a file, which is there only if it is whole.
func exportTo(c *cli.Call, d *cli.Database, in cli.Container, path [][]byte, f exportFlags, r *exportReport) error {
	info, err := d.File.Stat()
	if err != nil {
		return err
	}
	dst, err := c.Destination(f.OutputFile, info, nil)
	if err != nil {
		return err
	}
	stop := c.Progress("exporting", 0, nil)
	defer stop()
	err = c.MakeFile(dst, f.OutputFile, func(ctx context.Context, temp string) error {
		file, err := os.OpenFile(temp, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		w := bufio.NewWriterSize(file, 1<<16)
		if err := f.write(ctx, w, in, path, r); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if r.OutputBytes, err = file.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
		return cli.Finish(file, info, true) // as it says the same as the database
	})
	if cli.IsDamage(err) {
		return err // of the database, which view names
	}
	return c.Explain(f.Path, err)
}

// write writes what is in the container at path.
func (f *exportFlags) write(ctx context.Context, w *bufio.Writer, in cli.Container, path [][]byte, r *exportReport) error {
	walk := cli.NewWalk(ctx, in.Tx)
	if f.csv {
		return f.writeCSV(w, walk, in, path, r)
	}
	e := exporter{exportLines{w: w}, walk}
	var names []byte
	for _, name := range path {
		names = bucketPath(names, name)
	}
	err := e.begin()
	if err == nil {
		err = e.bucketAndInside(names, in)
	}
	if err == nil {
		err = e.end()
	}
	r.Buckets, r.Keys = e.buckets, e.keys
	return err
}

// exporter writes buckets with what is in them.
type exporter struct {
	exportLines
	*cli.Walk
}

// bucketAndInside writes the bucket, unless it is the top level, and all that is in it. The paths
// of all levels share their memory: each is that of the level above, and more after it.
func (e *exporter) bucketAndInside(path []byte, in cli.Container) error {
	if in.Bucket != nil {
		if err := e.bucket(path, in.Sequence()); err != nil {
			return err
		}
	}
	return e.Each(in, func(k, v []byte) error {
		if v != nil {
			return e.key(path, k, v)
		}
		child, err := e.Child(in, k)
		if err != nil {
			return err
		}
		return e.bucketAndInside(bucketPath(path, k), child)
	})
}

// writeCSV writes the keys and values of the bucket at path as CSV.
func (f *exportFlags) writeCSV(w *bufio.Writer, walk *cli.Walk, in cli.Container, path [][]byte, r *exportReport) error {
	lines := csv.NewWriter(w)
	begun := false
	write := func(fields []string) error {
		if !begun && strings.HasPrefix(fields[0], byteOrderMark) { // which import takes for none of its field
			if _, err := w.WriteString(byteOrderMark); err != nil {
				return err
			}
		}
		begun = true
		return lines.Write(fields)
	}
	r.Buckets = 1
	row := func(k, v []byte) ([]string, error) {
		r.noText = r.noText || f.keyFormat == "auto" && !cli.Printable(k) || f.valueFormat == "auto" && !cli.Printable(v)
		return []string{cli.FormatBytes(k, f.keyFormat), cli.FormatBytes(v, f.valueFormat)}, nil
	}
	t, err := rows.Read(in.Bucket)
	if err != nil {
		return err
	}
	if t != nil {
		s, err := t.Open(f.app, r.File, in.Tx)
		if err != nil {
			return err
		}
		row = func(k, v []byte) ([]string, error) { return tableRow(t, s, k, v, f, r) }
		if len(t.Names) > 0 {
			if err := write(t.Names); err != nil {
				return err
			}
		} else if f.header {
			return cli.Usagef("--header: the columns of these rows have no names")
		}
	} else if f.header {
		if err := write([]string{"key", "value"}); err != nil {
			return err
		}
	}
	err = walk.Each(in, func(k, v []byte) error {
		if v == nil {
			if t == nil || !t.Has(path, k) {
				r.LeftOut++
			}
			return nil
		}
		r.Keys++
		fields, err := row(k, v)
		if err != nil {
			return err
		}
		return write(fields)
	})
	if err != nil {
		return err
	}
	lines.Flush()
	return lines.Error()
}
