package command

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/image"
	"holdfast/worker/layer"
	"holdfast/worker/registry"
	"holdfast/worker/snapshot"
)

func init() { register((*app).newExport) }

const exportHelp = `Write a base, or the result of a step, to PATH, where nothing may be yet, or with - to standard output.

FORMAT is

  oci          a directory, an OCI image layout with one image; each snapshot is a layer
  oci-archive  a tar archive of such a directory, as import and skopeo take it
  tar          a tar archive of all files, as import and docker import take it

The same snapshots give the same bytes. PATH is there when all of it is.`

// Formats of export.
const (
	formatOCI     = "oci"
	formatArchive = "oci-archive"
	formatTar     = "tar"
)

type exportCommandFlags struct {
	exportFlags
	format, output, ref string
}

func (a *app) newExport() *cobra.Command {
	var f exportCommandFlags
	cmd := &cobra.Command{
		Use: "export NAME -o PATH", Short: "Write a snapshot as an image or an archive", Long: exportHelp, Args: cobra.ExactArgs(1),
		Example: "  holdfastd export debian --format oci -o debian-layout\n  holdfastd export step-2ab7ae2a8e9c --format tar -o - | docker import - app",
		RunE:    a.action(func(c *call) error { return c.exportTo(&f) }), ValidArgsFunction: a.completeFirst(),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", formatOCI, "what is written: oci|oci-archive|tar")
	flags.StringVarP(&f.output, "output", "o", "", "where to write; -: standard output (required)")
	flags.StringVar(&f.ref, "ref", "", "name of the image in the layout; default: NAME, if it is that of a base")
	f.add(flags)
	_ = cmd.MarkFlagFilename("output")
	a.complete(cmd, "format", cli.FlagValues([]string{formatOCI, formatArchive, formatTar}))
	a.complete(cmd, "compression", cli.FlagValues([]string{"gzip", "zstd"}))
	return cmd
}

// check finds what is wrong with the command line.
func (f *exportCommandFlags) check(c *call) error {
	stdout := f.output == "-"
	switch {
	case f.format != formatOCI && f.format != formatArchive && f.format != formatTar:
		return cli.Usagef("--format is %q; it can be oci, oci-archive or tar", f.format)
	case f.output == "":
		return cli.Usagef("required flag(s) \"output\" not set: -o says where to write")
	case stdout && f.format == formatOCI:
		return cli.Usagef("a directory cannot be written to standard output; --format oci-archive can")
	case stdout && c.json:
		return cli.Usagef("--json is printed on standard output, to which -o - writes; give a file with -o")
	case stdout && cli.IsTerminal(c.cmd.OutOrStdout()):
		return cli.Usagef("an archive is nothing for a terminal; give a file with -o, or a pipe")
	}
	return nil
}

type exportReport struct {
	Snapshot string `json:"snapshot"`
	Path     string `json:"path"`
	Format   string `json:"format"`
	Digest   string `json:"digest"` // of the image's manifest; "" of a tar archive of files
}

func (c *call) exportTo(f *exportCommandFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if err := f.check(c); err != nil {
		return err
	}
	path := f.output
	if path != "-" {
		if path, err = filepath.Abs(c.path(f.output)); err != nil {
			return err
		}
	}
	return c.withTrees(func(t *snapshot.Namespace, show shower) error {
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		o.Show = show
		if o.Ref = f.ref; f.ref == "" && info.Kind == snapshot.View {
			o.Ref = info.Name
		}
		e := &exporter{call: c, t: t, name: info.Name, path: path, o: o}
		stop := cli.Progress{Writer: c.cmd.ErrOrStderr(), What: "exporting", Total: 1000, Step: cli.ProgressStep, Done: func() int64 {
			return thousandths(o.Progress.Layers())
		}}.Start()
		err = e.write(f.format)
		stop()
		if err != nil || path == "-" {
			return err
		}
		if c.json {
			return cli.PrintJSON(c.out, exportReport{info.Name, f.output, f.format, e.digest})
		}
		cli.Rows(c.out, [][2]string{{"Snapshot", info.Name}, {"Path", printable(f.output)}, {"Image", cmp.Or(e.digest, "none, an archive of files")}}...)
		return nil
	})
}

// exporter writes a snapshot.
type exporter struct {
	*call
	t      *snapshot.Namespace
	name   string
	path   string
	o      image.ExportOptions
	digest string
}

func (e *exporter) write(format string) error {
	switch {
	case format == formatOCI:
		return e.directory()
	case e.path == "-":
		return e.archive(e.out, format)
	}
	return e.file(format)
}

// free is an error if there is something at the path.
func (e *exporter) free() error {
	_, err := os.Lstat(e.path)
	switch {
	case err == nil:
		return &nextError{fmt.Errorf("%s: %w", e.path, fs.ErrExist), "give another path, or remove it"}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// directory writes a layout, and then gives it its name.
func (e *exporter) directory() (err error) {
	if err := e.free(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(e.path), "."+filepath.Base(e.path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }() // nothing, if it has its name
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	d, err := image.Export(e.ctx, e.t, e.name, temp, e.o)
	if err != nil {
		return err
	}
	e.digest = d.Digest.String()
	return e.place(temp)
}

// file writes an archive, and then gives it its name.
func (e *exporter) file(format string) (err error) {
	if err := e.free(); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(e.path), "."+filepath.Base(e.path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp.Name()))
		}
	}()
	out := bufio.NewWriterSize(temp, 256<<10)
	if err = errors.Join(e.archive(out, format), out.Flush(), temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return e.place(temp.Name())
}

// place gives what was written its name, when it is on the disk.
func (e *exporter) place(temp string) error {
	err := filepath.WalkDir(temp, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return flush(path)
	})
	if err != nil {
		return err
	}
	if err := e.free(); err != nil { // which took a while
		return err
	}
	if err := os.Rename(temp, e.path); err != nil {
		return err
	}
	return flush(filepath.Dir(e.path))
}

// flush returns when a file or directory is on the disk.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// archive writes an archive.
func (e *exporter) archive(w io.Writer, format string) (err error) {
	if format == formatTar {
		return e.tree(w)
	}
	client := registry.Client{Downloads: filepath.Join(e.t.Store().Root(), downloadsName)}
	if err := client.Clean(e.ctx); err != nil {
		return err
	}
	dir, done, err := client.Temporary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := image.Export(e.ctx, e.t, e.name, dir, e.o)
	if err != nil {
		return err
	}
	e.digest = d.Digest.String()
	return image.ArchiveLayout(e.ctx, w, dir)
}

// tree writes an archive of all files.
func (e *exporter) tree(w io.Writer) error {
	chain, release, err := image.Chain(e.ctx, e.t, e.name)
	if err != nil {
		return err
	}
	path, hide, err := e.o.Show(e.ctx, chain[len(chain)-1])
	if err != nil {
		return errors.Join(err, release())
	}
	return errors.Join(layer.Write(e.ctx, w, "", path), hide(), release())
}
