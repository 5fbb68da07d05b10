package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
)

const importHelp = `Put what "export" has written into a database: from INPUT, or from standard input.
Buckets are created where they do not exist; the database itself only with --create.

All is imported or nothing. A key that exists with another value, or a bucket with another
sequence, ends the import before anything is changed, unless --replace is given. So does an input that
is cut off. What exists as it is in the input stays, so the same can be imported again.

A new database is made under another name and gets its own at the very end. Into a database that exists
all goes in one transaction. Some tens of MiB of memory are taken however much is imported: what the
transaction has changed is written to free pages of the file early, which no other transaction sees before it commits.

--csv takes lines of CSV, for one bucket, in which keys are replaced under the same rules. With
--blob-columns a row keeps all its columns, and those that are named are stored as blobs, out of the
row: in the store that --store names, where what is the same is stored once ("blob --help").
"export --csv" gives the rows back; with --value-format bytes --key-format bytes as they were.`

type importFlags struct {
	cli.Naming
	csvFlags
	csv     bool
	input   string
	create  bool
	replace bool
	dryRun  bool
	maxLine int64

	columns string // of blobs, as the command line has them
	storeAt string // the store of the blobs, as the command line has it
	inline  bool   // short blobs stay in the row
}

type importReport struct {
	File           string `json:"file"`
	Input          string `json:"input"`
	DryRun         bool   `json:"dry_run"`
	CreatedFile    bool   `json:"created_file"`
	CreatedBuckets uint64 `json:"created_buckets"`
	Keys           uint64 `json:"keys"` // in the input
	NewKeys        uint64 `json:"new_keys"`
	ReplacedKeys   uint64 `json:"replaced_keys"`
	UnchangedKeys  uint64 `json:"unchanged_keys"`
	SetSequences   uint64 `json:"set_sequences"`
	Blobs          uint64 `json:"blobs,omitempty"` // that were stored, or were there already
	BlobBytes      uint64 `json:"blob_bytes,omitempty"`
	Unordered      bool   `json:"unordered"` // in a dry run: what is in the input twice is not found
}

func newImport(a *cli.App) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE [INPUT] | FILE BUCKET... --csv",
		Short: "Put what export has written, or CSV, into a database",
		Long:  importHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.csv && len(args) == 1 {
				return cli.Usagef("BUCKET is missing: --csv is for one bucket, after FILE")
			} else if f.csv {
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return cobra.RangeArgs(1, 2)(cmd, args)
		},
		Example: fmt.Sprintf("  %[1]s import new.db export.jsonl --create\n  %[1]s import FILE BUCKET... --csv --input rows.csv", a.Name()),
		RunE:    a.Action(func(c *cli.Call) error { return importFile(c, f) }),
	}
	f.AddBucketFlag(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.input, "input", "i", "", "file to read in place of standard input, as INPUT; -: standard input")
	flags.BoolVar(&f.create, "create", false, "create the database if it does not exist, and with --csv the bucket")
	flags.BoolVar(&f.replace, "replace", false, "replace the values of keys, and sequences, that exist")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check the input and say what would be done")
	cli.SizeRangeVar(flags, &f.maxLine, "max-line", 256<<20, minLine, maxLine, "the longest line of the input that is taken, such as 1GiB")
	flags.BoolVar(&f.csv, "csv", false, "the input is CSV, for the bucket BUCKET... after FILE")
	flags.BoolVar(&f.header, "header", false, "with --csv: the first line names the columns")
	flags.StringVar(&f.keyColumn, "key-column", "1", "with --csv: the column of the key, by its number or its name")
	flags.StringVar(&f.valueColumn, "value-column", "2", "with --csv: the column of the value, by its number or its name")
	formats := strings.Join(csvFormats, "|")
	flags.StringVar(&f.formatOfKeys, "key-format", "bytes", "with --csv: how keys are written: "+formats)
	flags.StringVar(&f.formatOfValues, "value-format", "bytes", "with --csv: how values are written: "+formats)
	_ = cmd.MarkFlagFilename("input")
	if !a.Stock {
		flags.StringVar(&f.columns, "blob-columns", "", "with --csv: keep all columns, and these, by numbers or names with commas between, as blobs out of the row")
		flags.StringVar(&f.storeAt, "store", "blobs", "with --blob-columns: the path of the bucket for the blobs, as \"blob\" takes it")
		flags.BoolVar(&f.inline, "inline", false, "with --blob-columns: blobs of up to 1 KiB stay in the row")
		a.AddKeyFlag(cmd)
	}
	return cmd
}

// check looks at what the flags say together.
func (f *importFlags) check(c *cli.Call) error {
	for _, name := range []string{"header", "key-column", "value-column", "key-format", "value-format", "bucket-format"} {
		if !f.csv && c.Cmd.Flags().Changed(name) {
			return cli.Usagef("--%s is for --csv", name)
		}
	}
	if !f.csv && len(c.Args) == 2 {
		if f.input != "" {
			return cli.Usagef("the input is given twice: %s and --input %s", c.Args[1], f.input)
		}
		f.input = c.Args[1]
	}
	if err := cli.CheckFormat("key-format", f.formatOfKeys, csvFormats); err != nil {
		return err
	}
	if err := f.checkBlobs(c); err != nil {
		return err
	}
	return cli.CheckFormat("value-format", f.formatOfValues, csvFormats)
}

// checkBlobs looks at what the flags say of columns of blobs.
func (f *importFlags) checkBlobs(c *cli.Call) (err error) {
	changed := c.Cmd.Flags().Changed
	if !changed("blob-columns") {
		for _, name := range []string{"store", "inline"} {
			if changed(name) {
				return cli.Usagef("--%s is for --blob-columns", name)
			}
		}
		return nil
	}
	if !f.csv {
		return cli.Usagef("--blob-columns is for --csv")
	}
	if changed("value-column") {
		return cli.Usagef("--value-column does not go with --blob-columns, with which a row keeps all its columns")
	}
	if f.blobColumns, err = parseBlobColumns(f.columns); err != nil {
		return err
	}
	f.store, err = (&cli.StoreName{Naming: f.Naming}).Path(f.storeAt)
	return err
}

func importFile(c *cli.Call, f importFlags) error {
	if err := f.check(c); err != nil {
		return err
	}
	limit := min(f.maxLine, math.MaxInt-1<<20)
	var path [][]byte
	var err error
	if f.csv {
		if path, err = f.Buckets(c.Args[1:]); err != nil {
			return err
		}
	}
	ctx, stop := c.Interruptible()
	defer stop()
	file := c.Args[0]
	info, err := c.Look(file)
	missing := err != nil && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, holdfast.ErrInvalid))
	if err != nil && (!missing || !f.create) {
		return c.HintCreate(file, err)
	}
	if info != nil {
		if err := c.IsDatabase(file); err != nil {
			return err
		}
	}
	if path, err = f.NamesInFile(c.App, file, path, !missing); err != nil {
		return err
	}
	in, err := c.OpenInput(ctx, f.input)
	if err != nil {
		return err
	}
	defer in.Close()
	m := &importer{Call: c, ctx: ctx, in: in, create: !f.csv || f.create, replace: f.replace, inline: f.inline, rows: path}
	m.r = importReport{File: file, Input: in.Name, DryRun: f.dryRun, CreatedFile: missing}
	if m.src = newLines(in, limit); f.csv {
		m.src = newCSVRows(in, path, limit, f.csvFlags)
	}
	if err = m.run(info); err != nil {
		return m.Explain(file, m.interruption(err))
	}
	return c.Report(m.r, func() { m.print() })
}

// run imports into the file, of which info is nil if it has to be made.
func (m *importer) run(info fs.FileInfo) error {
	var done func() int64
	if m.in.Size > 0 {
		done = m.in.Done.Load
	}
	if m.in.File != nil || !cli.IsTerminal(os.Stdin) { // there, the progress would be in the way
		stop := m.Progress("importing", m.in.Size, done)
		defer stop()
	}
	switch {
	case m.r.DryRun && info == nil:
		return m.all(nil)
	case m.r.DryRun:
		return m.View(m.r.File, false, func(_ *cli.Database, tx *holdfast.Tx) error { return m.all(tx) })
	case info == nil:
		return m.makeDatabase()
	}
	d, err := m.Open(m.r.File, info, &holdfast.Options{})
	if err != nil {
		return err
	}
	if err = errors.Join(d.Update(m.all), d.Close()); err == nil {
		m.Made = m.r.File
	}
	return err
}

// makeDatabase imports into a new file, in as many transactions as it takes: none of them is
// seen before the file has its name.
func (m *importer) makeDatabase() error {
	o := cli.OutputFile{Path: m.r.File}
	dst, err := m.Destination(o, nil, func(old fs.FileInfo) bool { return old.Size() == 0 })
	if err != nil {
		return err
	}
	empty, _ := os.Stat(dst)
	return m.MakeFile(dst, o, func(_ context.Context, temp string) error {
		d, err := m.OpenMade(temp, m.r.File, &holdfast.Options{NoSync: true}) // flushed when it is whole
		if err != nil {
			return err
		}
		d.AllocSize = cli.CompactGrowth
		for more := true; more && err == nil; {
			err = d.Update(func(tx *holdfast.Tx) error {
				more, err = m.some(tx, importBatch)
				return err
			})
		}
		pageSize := d.Info().PageSize
		if err = errors.Join(err, cli.CloseMade(d, err == nil)); err != nil {
			return err
		}
		size, err := cli.DatabaseBytes(temp, pageSize)
		if err != nil {
			return err
		}
		return cli.FinishFile(temp, size, empty, true)
	})
}

// interruption is err, which says so if it is that the command is to end.
func (m *importer) interruption(err error) error {
	var known *cli.FileError
	if m.ctx.Err() == nil || !errors.Is(err, m.ctx.Err()) || errors.As(err, &known) {
		return err
	}
	return &cli.FileError{File: m.r.File, What: "interrupted, nothing was imported", Err: m.ctx.Err()}
}

func (m *importer) print() {
	r := &m.r
	did := "imported into"
	if r.DryRun {
		did = "would be imported into"
	} else if r.CreatedFile {
		fmt.Fprintf(m.Out, "created the database %s\n", r.File)
	}
	fmt.Fprintf(m.Out, "%s %s %s: %s new, %s replaced, %s unchanged; %s created", cli.Plural(r.Keys, "key"), did, r.File,
		cli.Count(r.NewKeys), cli.Count(r.ReplacedKeys), cli.Count(r.UnchangedKeys), cli.Plural(r.CreatedBuckets, "bucket"))
	if r.SetSequences > 0 {
		fmt.Fprintf(m.Out, ", %s set", cli.Plural(r.SetSequences, "sequence"))
	}
	fmt.Fprintln(m.Out)
	if r.Blobs > 0 {
		fmt.Fprintf(m.Out, "%s of %s\n", cli.Plural(r.Blobs, "blob"), cli.Size(int64(r.BlobBytes)))
	}
	if m.table != nil && r.ReplacedKeys > 0 && !r.DryRun {
		if path, err := m.table.StorePath(); err == nil {
			fmt.Fprintf(m.Out, "What the rows that were replaced had in the store takes room until: %s\n", m.StoreLine("gc", r.File, path))
		}
	}
	if r.DryRun {
		fmt.Fprintln(m.Out, "The input was checked and nothing was written.")
	}
	if r.Unordered {
		fmt.Fprintln(m.Out, "The input is not in the order of the keys: what is in it twice is counted twice, and only the import itself finds out whether that is the same.")
	}
}

// badInput is an error of the input.
func (m *importer) badInput(err error) error {
	var usage *cli.UsageError
	if errors.As(err, &usage) {
		return err
	}
	if m.ctx.Err() != nil {
		return m.interruption(m.ctx.Err())
	}
	next := "nothing was imported"
	if last := m.rows; len(last) > 0 && m.in.File == nil && errors.Is(err, errEmptyInput) && isFile(string(last[len(last)-1])) {
		name := string(last[len(last)-1])
		next += fmt.Sprintf("; %s was taken as a bucket: give the file as --input %s", cli.Shorten(name), cli.ShellWord(name))
	}
	if lines, ok := m.src.(*lines); ok && lines.n == 1 && strings.EqualFold(filepath.Ext(m.in.Name), ".csv") {
		next += fmt.Sprintf("; CSV takes --csv and the bucket: %s import %s BUCKET --csv --input %s", m.Name(), cli.ShellWord(m.r.File), cli.ShellWord(m.in.Name))
	}
	return &cli.FileError{File: m.in.Name, What: err.Error(), Next: next, Err: err}
}

// conflict is the error of a line that does not fit what the database holds.
func (m *importer) conflict(line int64, next, format string, args ...any) error {
	return &cli.FileError{File: m.in.Name, What: fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)), Next: "nothing was imported" + next, Err: cli.ErrConflict}
}
