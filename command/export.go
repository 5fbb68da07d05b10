package command

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
)

const exportHelp = `Write all buckets and keys, or those of a bucket, as lines of JSON, in the order of
the keys, to standard output or to a file. "import" reads them. The database is only read.

The first line names the format, the last one says how much there was, so that what is cut off
is noticed. In between each bucket has a line, with its sequence unless that is 0, and each key:

  {"bucket":["users"],"sequence":7}
  {"bucket":["users"],"key":"anna","value":"admin"}

Names, keys and values that are no text are {"hex":"00ff"} or {"base64":"AP8="}.

--csv writes the keys and values of one bucket as CSV, without the buckets in it. Rows that
"import --blob-columns" has put there get all their columns again, with the content of their blobs.`

type exportFlags struct {
	output
	naming
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

func (a *app) newExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export FILE [BUCKET...]",
		Short: "Write buckets and keys as lines of JSON, or a bucket as CSV",
		Long:  exportHelp,
		Args:  cobra.MinimumNArgs(1),
		RunE:  a.action(func(c *call) error { return c.export(f) }),
	}
	f.addBucketFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.path, "output", "o", "", "file to write in place of standard output")
	flags.BoolVar(&f.force, "force", false, "replace the file that is written if it exists")
	flags.BoolVar(&f.csv, "csv", false, "write the keys and values of BUCKET... as CSV")
	flags.BoolVar(&f.header, "header", false, "with --csv: the first line names the columns")
	formats := strings.Join(outputFormats, "|")
	flags.StringVar(&f.keyFormat, "key-format", "auto", "with --csv: how keys are written: "+formats)
	flags.StringVar(&f.valueFormat, "value-format", "auto", "with --csv: how values are written: "+formats)
	_ = cmd.MarkFlagFilename("output")
	return cmd
}

// check looks at what the flags say together.
func (f *exportFlags) check(c *call) error {
	for _, name := range []string{"header", "key-format", "value-format"} {
		if !f.csv && c.cmd.Flags().Changed(name) {
			return usagef("--%s is for --csv", name)
		}
	}
	switch {
	case f.csv && len(c.args) < 2:
		return usagef("--csv is for one bucket: name it after the file")
	case f.force && f.path == "":
		return usagef("--force is for --output")
	}
	if err := checkFormat("key-format", f.keyFormat, outputFormats); err != nil {
		return err
	}
	return checkFormat("value-format", f.valueFormat, outputFormats)
}

func (c *call) export(f exportFlags) error {
	if err := f.check(c); err != nil {
		return err
	}
	file := c.args[0]
	path, err := f.buckets(c.args[1:])
	if err != nil {
		return err
	}
	r := exportReport{File: file, Output: f.path}
	err = c.view(file, false, func(d *database, tx *holdfast.Tx) error {
		in, err := f.find(c.app, file, tx, &path)
		if err != nil {
			return err
		}
		r.Bucket = pathNames(path)
		if f.path != "" {
			return c.exportTo(d, in, path, f, &r)
		}
		return f.write(c.ctx, c.out, in, path, &r)
	})
	if err != nil {
		return err
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: note: %s in %s left out: CSV has keys and values only\n",
			c.name(), plural(r.LeftOut, "bucket"), pathText(path))
	}
	if r.noText {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: note: what is no text was written as hexadecimal, which import cannot tell from text; to import it again, export with --key-format hex --value-format hex, and give the same to import\n", c.name())
	}
	switch {
	case f.path == "":
	case c.json:
		return c.printJSON(r)
	default:
		fmt.Fprintf(c.out, "%s -> %s: %s, %s\n", r.File, r.Output, contents{r.Buckets, r.Keys}.total(), size(r.OutputBytes))
	}
	return nil
}

// exportTo writes the export to a file, which is there only if it is whole.
func (c *call) exportTo(d *database, in container, path [][]byte, f exportFlags, r *exportReport) error {
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	dst, err := c.destination(f.output, info, nil)
	if err != nil {
		return err
	}
	stop := c.progress("exporting", 0, nil)
	defer stop()
	err = c.makeFile(dst, f.output, func(ctx context.Context, temp string) error {
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
		return finish(file, info, true) // as it says the same as the database
	})
	if isDamage(err) {
		return err // of the database, which view names
	}
	return c.explain(f.path, err)
}

// write writes what is in the container at path.
func (f *exportFlags) write(ctx context.Context, w *bufio.Writer, in container, path [][]byte, r *exportReport) error {
	walk := newWalk(ctx, in.tx)
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
	*walk
}

// bucketAndInside writes the bucket, unless it is the top level, and all that is in it. The paths
// of all levels share their memory: each is that of the level above, and more after it.
func (e *exporter) bucketAndInside(path []byte, in container) error {
	if in.Bucket != nil {
		if err := e.bucket(path, in.Sequence()); err != nil {
			return err
		}
	}
	return e.each(in, func(k, v []byte) error {
		if v != nil {
			return e.key(path, k, v)
		}
		child, err := e.child(in, k)
		if err != nil {
			return err
		}
		return e.bucketAndInside(bucketPath(path, k), child)
	})
}

// writeCSV writes the keys and values of the bucket at path as CSV.
func (f *exportFlags) writeCSV(w *bufio.Writer, walk *walk, in container, path [][]byte, r *exportReport) error {
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
		r.noText = r.noText || f.keyFormat == "auto" && !printable(k) || f.valueFormat == "auto" && !printable(v)
		return []string{formatBytes(k, f.keyFormat), formatBytes(v, f.valueFormat)}, nil
	}
	t, err := readTable(in.Bucket)
	if err != nil {
		return err
	}
	if t != nil {
		s, err := t.open(in.tx)
		if err != nil {
			return err
		}
		row = func(k, v []byte) ([]string, error) { return t.row(s, k, v, f, r) }
		if len(t.Names) > 0 {
			if err := write(t.Names); err != nil {
				return err
			}
		} else if f.header {
			return usagef("--header: the columns of these rows have no names")
		}
	} else if f.header {
		if err := write([]string{"key", "value"}); err != nil {
			return err
		}
	}
	err = walk.each(in, func(k, v []byte) error {
		if v == nil {
			if t == nil || !t.has(path, k) {
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
