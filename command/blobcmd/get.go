package blobcmd

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast/blob"
	"holdfast/command/cli"
)

const blobGetHelp = `Write a blob, or a part of it, to a file, which is there only when it is whole. All that is read is verified:
damage is an error, and then there is no file.`

type blobGetFlags struct {
	cli.StoreName
	cli.OutputFile
	blobPart
}

// blobPart is the part of a blob that the command line asks for.
type blobPart struct {
	offset, length int64 // length -1: to the end
}

func (p *blobPart) addPartFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	cli.SizeVar(flags, &p.offset, "offset", 0, "where to begin, in bytes, such as 1000 or 1MiB")
	cli.SizeRangeVar(flags, &p.length, "length", -1, -1, math.MaxInt64, "how many bytes to write at most; -1: all")
}

// open opens the blob where the part begins, which has n bytes.
func (p *blobPart) open(b *blobs, ref blob.Ref) (r *blob.Reader, n int64, err error) {
	if p.offset > ref.Size() {
		return nil, 0, cli.Usagef("--offset %d is past the end: the blob has %s bytes", p.offset, cli.Count(ref.Size()))
	}
	if r, err = b.Reader(ref); err != nil {
		return nil, 0, err
	}
	n = ref.Size() - p.offset
	if p.length >= 0 {
		n = min(n, p.length)
	}
	_, err = r.Seek(p.offset, io.SeekStart)
	return r, n, err
}

type blobGetReport struct {
	File  string   `json:"file"`
	Store []string `json:"store"`
	refReport
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Output string `json:"output"`
}

func newBlobGet(a *cli.App) *cobra.Command {
	var f blobGetFlags
	cmd := &cobra.Command{
		Use:   "get FILE STORE REF -o OUT",
		Short: "Write a blob, or a part of it, to a file",
		Long:  blobGetHelp,
		Args:  cobra.ExactArgs(3),
		RunE:  a.Action(func(c *cli.Call) error { return blobGet(c, f) }),
	}
	cmd.DisableFlagsInUseLine = true
	f.AddFlags(cmd)
	f.addPartFlags(cmd)
	f.AddStoreFlag(cmd)
	return cmd
}

func blobGet(c *cli.Call, f blobGetFlags) error {
	if err := f.Given(); err != nil {
		return err
	}
	if f.OutputFile.Path == "-" {
		return cli.Usagef("-o -: get writes a file; \"blob cat\" writes to standard output (a file of that name: -o ./-)")
	}
	var r blobGetReport
	err := viewStore(c, f.StoreName, func(d *cli.Database, b *blobs) error {
		ref, err := b.resolve(c.Args[2])
		if err != nil {
			return err
		}
		r = blobGetReport{File: b.file, Store: cli.PathNames(b.path), Offset: f.offset, Output: f.OutputFile.Path}
		if r.refReport, err = b.report(ref); err != nil {
			return err
		}
		r.Length, err = blobTo(c, d, b, ref, f)
		return err
	})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return c.PrintJSON(r)
	}
	from := ""
	if r.Length != r.Bytes {
		from = fmt.Sprintf(", from %d on", r.Offset)
	}
	fmt.Fprintf(c.Out, "%s -> %s: %s%s\n", r.name(), r.Output, cli.SizeExactly(r.Length), from)
	return nil
}

// name is what the blob is called.
func (r *refReport) name() string {
	if r.Digest != "" {
		return r.Digest
	}
	return r.Reference
}

// blobTo writes the part of the blob that f asks for to a file, and gives its length.
func blobTo(c *cli.Call, d *cli.Database, b *blobs, ref blob.Ref, f blobGetFlags) (int64, error) {
	o := f.OutputFile
	info, err := d.File.Stat()
	if err != nil {
		return 0, err
	}
	dst, err := c.Destination(o, info, nil)
	if err != nil {
		return 0, err
	}
	r, n, err := f.open(b, ref)
	if err != nil {
		return 0, err
	}
	var done atomic.Int64
	stop := c.Progress("reading", n, done.Load)
	defer stop()
	err = c.MakeFile(dst, o, func(ctx context.Context, temp string) error {
		file, err := os.OpenFile(temp, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := copyPart(&countingWriter{ctx, file, &done}, r, n, ref.Size()); err != nil {
			return err
		}
		return cli.Finish(file, info, true)
	})
	if cli.IsDamage(err) || isBlobDamage(err) {
		return 0, err // of the database, which view names
	}
	return n, c.Explain(o.Path, err)
}

// isBlobDamage tells whether err says that a store is damaged.
func isBlobDamage(err error) bool {
	return errors.Is(err, blob.ErrCorrupt) || errors.Is(err, blob.ErrMissing)
}

// countingWriter counts what is written, until its context ends.
type countingWriter struct {
	ctx  context.Context
	w    io.Writer
	done *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.w.Write(b)
	w.done.Add(int64(n))
	return n, err
}

const blobCatHelp = `Write a blob, or a part of it, to standard output. What is read is verified before it is written:
where a blob is damaged the output ends, with an error.`

type blobCatFlags struct {
	cli.StoreName
	blobPart
}

func newBlobCat(a *cli.App) *cobra.Command {
	var f blobCatFlags
	cmd := &cobra.Command{
		Use:   "cat FILE STORE REF",
		Short: "Write a blob, or a part of it, to standard output",
		Long:  blobCatHelp,
		Args:  cobra.ExactArgs(3),
		RunE:  a.Action(func(c *cli.Call) error { return blobCat(c, f) }),
	}
	f.addPartFlags(cmd)
	f.AddStoreFlag(cmd)
	return cmd
}

func blobCat(c *cli.Call, f blobCatFlags) error {
	return viewStore(c, f.StoreName, func(_ *cli.Database, b *blobs) error {
		ref, err := b.resolve(c.Args[2])
		if err != nil {
			return err
		}
		r, n, err := f.open(b, ref)
		if err != nil {
			return err
		}
		if !c.JSON {
			return copyPart(c.Out, r, n, ref.Size())
		}
		return catJSON(c, b, ref, r, f.offset, n)
	})
}

// copyPart writes n bytes of a blob of so many.
func copyPart(w io.Writer, r *blob.Reader, n, whole int64) error {
	if n == whole {
		_, err := r.WriteTo(w)
		return err
	}
	// Without the ReadFrom of the writer, which would copy in small pieces.
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(r, n), make([]byte, 16*cli.InputChunk))
	return err
}

type blobCatReport struct {
	File  string   `json:"file"`
	Store []string `json:"store"`
	refReport
	Offset   int64  `json:"offset"`
	Length   int64  `json:"length"`
	Encoding string `json:"content_encoding"`
	Content  string `json:"content"`
}

// catJSON prints a part of a blob as JSON, piece by piece, so that one of any size does.
func catJSON(c *cli.Call, b *blobs, ref blob.Ref, r *blob.Reader, offset, n int64) error {
	report := blobCatReport{File: b.file, Store: cli.PathNames(b.path), Offset: offset, Length: n, Encoding: "base64"}
	var err error
	if report.refReport, err = b.report(ref); err != nil {
		return err
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(report); err != nil {
		return err
	}
	head := strings.TrimSuffix(text.String(), "\"\n}\n") // up to the content
	_, _ = c.Out.WriteString(head)
	w := base64.NewEncoder(base64.StdEncoding, c.Out)
	if err := copyPart(w, r, n, ref.Size()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err = c.Out.WriteString("\"\n}\n")
	return err
}
