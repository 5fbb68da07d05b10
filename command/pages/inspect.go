package pages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/command/cli"
	"holdfast/internal/page"
)

const inspectHelp = `Print the tree of buckets, each with the number of its keys, nested buckets not
counted. With --json also the page in which each bucket has its root, for "page".

It reads the pages of all buckets, but not large values.`

const stockInspectHelp = `Print the tree of buckets as JSON, each with the number of its keys, nested buckets not
counted.`

func newInspect(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print the tree of buckets with the number of keys in each",
		Long:  inspectHelp,
		Args:  cobra.ExactArgs(1),
		RunE:  a.Action(runInspect),
	}
	if a.Stock {
		cmd.Long = stockInspectHelp
	}
	return cmd
}

func runInspect(c *cli.Call) error {
	return c.View(c.Args[0], false, func(d *cli.Database, tx *holdfast.Tx) error {
		pageSize := d.Info().PageSize
		return withPages(c, d.FilePath, pageSize, func(f *pageFile) error {
			highWater := page.ID(tx.Size() / int64(pageSize))
			image := page.NewImage(f.mapping.Data(), pageSize, highWater)
			i := &inspection{Call: c, file: f, left: uint64(highWater), names: cli.NewWalk(c.Ctx, tx)}
			i.image = image.Verifying(page.NewVerified(int(f.pages), nil, &i.seals))
			switch {
			case c.JSON:
				i.out = &structureJSON{w: c.Out, file: d.FilePath}
			case c.Stock:
				i.out = &structureJSON{w: c.Out, stock: true}
			default:
				i.out = structureText{c.Out}
			}
			return i.bucket(tx.Cursor().Bucket(), nil, 0)
		})
	})
}

// inspection goes through all buckets and prints each before those in it, so that there
// can be any number of them.
type inspection struct {
	*cli.Call
	file  *pageFile
	image page.Image
	seals atomic.Int64 // looked at
	left  uint64       // pages that there can be still, if nothing goes in circles
	names *cli.Walk    // of buckets
	out   structure
}

// structure prints buckets.
type structure interface {
	// enter begins a bucket, leave ends it. The root has the depth 0.
	enter(b *holdfast.Bucket, name []byte, keys uint64, depth int) error
	leave(depth int) error
}

// maxBuckets is how deep buckets are believed to be nested.
const maxBuckets = 100_000

// bucket prints a bucket and those in it. If it fails, what it has begun is ended all the
// same, so that JSON stays JSON.
func (i *inspection) bucket(b *holdfast.Bucket, name []byte, depth int) error {
	if depth > maxBuckets {
		return fmt.Errorf("%w: buckets are nested more than %d deep", cli.ErrDamage, maxBuckets)
	}
	var keys uint64
	err := i.file.safely(func() (err error) {
		keys, err = i.keys(b)
		return err
	})
	if entered := i.out.enter(b, name, keys, depth); entered != nil {
		return entered
	}
	if err == nil {
		err = b.ForEachBucket(func(k []byte) error {
			if err := cmp.Or(i.Ctx.Err(), i.names.Met(k, nil)); err != nil {
				return err
			}
			child := b.Bucket(k)
			if child == nil {
				return fmt.Errorf("%w: bucket %s cannot be opened", cli.ErrDamage, cli.Show(k))
			}
			return i.bucket(child, k, depth+1)
		})
	}
	if damage := b.Tx().Err(); damage != nil {
		err = damage
	}
	if left := i.out.leave(depth); left != nil {
		return left
	}
	return err
}

// keys counts the keys of a bucket that are not buckets.
func (i *inspection) keys(b *holdfast.Bucket) (n uint64, err error) {
	if root := b.RootPage(); root != 0 {
		err = i.count(root, &n, 0)
		return n, err
	}
	err = b.ForEach(func(_, v []byte) error {
		if v != nil {
			n++
		}
		return nil
	})
	return n, err
}

// count adds the keys below page id. It looks at no value.
func (i *inspection) count(id page.ID, n *uint64, level int) error {
	p, err := i.image.Page(id)
	if err != nil {
		return err
	}
	if level > cli.MaxPathPages || p.Pages() > i.left {
		return page.Corruptf(id, "buckets contain each other, or have more pages than the file")
	}
	i.left -= p.Pages()
	for e := range p.Count() {
		if !p.IsLeaf() {
			if err := i.count(p.Child(e), n, level+1); err != nil {
				return err
			}
			continue
		}
		_, _, flags, ok := p.LeafAt(e)
		if !ok {
			return page.Corruptf(id, "element %d of %d lies outside its page", e, p.Count())
		}
		if flags&page.BucketFlag == 0 {
			*n++
		}
	}
	return i.Ctx.Err()
}

// structureText prints buckets for people.
type structureText struct{ w io.Writer }

func (s structureText) enter(_ *holdfast.Bucket, name []byte, keys uint64, depth int) error {
	if depth == 0 {
		if _, err := fmt.Fprintf(s.w, "%10s  Bucket\n", "Keys"); err != nil {
			return err
		}
	}
	text := cli.Show(name)
	if depth == 0 {
		text = "(top level)"
	}
	_, err := fmt.Fprintf(s.w, "%10s  %s%s\n", cli.Count(keys), strings.Repeat("  ", depth), text)
	return err
}

func (s structureText) leave(int) error { return nil }

// structureJSON prints buckets as JSON.
type structureJSON struct {
	w     io.Writer
	file  string
	stock bool  // with the names and the indentation of bbolt
	inner []int // for each bucket that is begun, how many in it were
}

// line begins a line.
func (s *structureJSON) line(level int, text string) {
	unit := "  "
	if s.stock {
		unit = "    "
	}
	fmt.Fprintf(s.w, "\n%s%s", strings.Repeat(unit, level), text)
}

// field is a field of an object.
func (s *structureJSON) field(level int, name string, value any, last bool) error {
	text, err := cli.CompactJSON(value)
	if s.stock { // which escapes more
		var escaped []byte
		escaped, err = json.Marshal(value)
		text = string(escaped)
	}
	if err != nil {
		return err
	}
	comma := ","
	if last {
		comma = ""
	}
	s.line(level, fmt.Sprintf("%q: %s%s", name, text, comma))
	return nil
}

func (s *structureJSON) enter(b *holdfast.Bucket, name []byte, keys uint64, depth int) error {
	begin := "{"
	if depth > 0 {
		in := &s.inner[depth-1]
		if *in++; *in == 1 {
			fmt.Fprint(s.w, ",")
			s.line(2*depth-1, `"buckets": [`)
		} else {
			fmt.Fprint(s.w, ",")
		}
		s.line(2*depth, begin)
	} else {
		fmt.Fprint(s.w, begin)
	}
	s.inner = append(s.inner, 0)
	level := 2*depth + 1
	if s.stock {
		if depth == 0 {
			name = []byte("root")
		}
		if err := s.field(level, "name", string(name), false); err != nil {
			return err
		}
		return s.field(level, "keyN", keys, true)
	}
	text, encoding := cli.EncodeBytes(name, "auto")
	first, second := [2]string{"name", text}, [2]string{"encoding", encoding}
	if depth == 0 {
		first, second = [2]string{"file", s.file}, [2]string{}
	}
	for _, f := range [][2]string{first, second} {
		if f[0] == "" {
			continue
		}
		if err := s.field(level, f[0], f[1], false); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name  string
		value uint64
	}{{"keys", keys}, {"root_page", uint64(b.RootPage())}, {"sequence", b.Sequence()}} {
		if err := s.field(level, f.name, f.value, f.name == "sequence"); err != nil {
			return err
		}
	}
	return nil
}

func (s *structureJSON) leave(depth int) error {
	in := s.inner[depth]
	s.inner = s.inner[:depth]
	switch {
	case in > 0:
		s.line(2*depth+1, "]")
	case !s.stock:
		fmt.Fprint(s.w, ",")
		s.line(2*depth+1, `"buckets": []`)
	}
	s.line(2*depth, "}")
	if depth > 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.w)
	return err
}
