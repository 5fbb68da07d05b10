package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// attributes are those of an entry.
type attributes struct {
	mode     uint32 // the twelve bits of chmod
	uid, gid int
	mtime    time.Time
	xattrs   map[string]string
	whole    bool // these are all that it is to have
}

// budget is what an import may still take of its Limits.
type budget struct {
	limits                Limits
	entries, names, bytes int64
}

// entry takes an entry out of it.
func (b *budget) entry(name string) error {
	b.entries++
	if most := b.limits.Entries; b.entries > most {
		return fmt.Errorf("%w: more than %d entries", ErrLimit, most)
	}
	b.names += int64(len(name))
	if most := b.limits.Names; b.names > most {
		return fmt.Errorf("%w: names of more than %d bytes", ErrLimit, most)
	}
	return nil
}

// content takes the bytes of a file out of it.
func (b *budget) content(size int64) error {
	// Subtracted, not added: sizes can be as large as a number.
	if left := b.limits.Bytes - b.bytes; size < 0 || size > left {
		return fmt.Errorf("%w: %d bytes, when %d of %d are left", ErrLimit, size, left, b.limits.Bytes)
	}
	b.bytes += size
	return nil
}

// extraction extracts one archive into a tree.
type extraction struct {
	ctx     context.Context
	tree    *tree
	devices Devices
	budget  *budget
	left    LeftOut
	made    int64 // device nodes
	noImage bool  // an archive that is an image layout is refused
	noEmpty bool  // and so is one that has no entry: it may be anything that begins with zeros
}

// maxAfterEnd is how much may follow the end of an archive: programs that write one fill its last record
// with zeros. Zeros alone, as of /dev/zero, are an archive of nothing that has no last byte.
const maxAfterEnd = 16 << 20

// run extracts what r has, to its end. Names, link targets, types and sizes of entries are
// checked here; that nothing leads out of the tree is seen to by the tree, too.
func (x *extraction) run(r io.Reader) error {
	end := &endReader{r: r}
	archive := tar.NewReader(end)
	for n := 0; ; n++ {
		end.reset()
		h, err := archive.Next()
		if err == io.EOF {
			if !end.ended() {
				return fmt.Errorf("%w: cut off: the archive has no end", ErrFormat)
			}
			if n == 0 && x.noEmpty {
				return fmt.Errorf("%w: it begins with zeros: there is no file in it, or it is not a tar archive, but such as an image of a file system", ErrFormat)
			}
			break
		}
		if err != nil {
			return malformed(err)
		}
		if err := x.entry(h, archive); err != nil {
			return fmt.Errorf("entry %q: %w", shorten(h.Name), err)
		}
	}
	after, err := io.Copy(io.Discard, io.LimitReader(r, maxAfterEnd+1)) // digests are of what follows the end, too
	if err != nil {
		return malformed(err)
	}
	if after > maxAfterEnd {
		return fmt.Errorf("%w: more than %d MiB after the end of the archive", ErrFormat, maxAfterEnd>>20)
	}
	return x.tree.finish()
}

func shorten(name string) string {
	if len(name) > 200 {
		return name[:200] + "..."
	}
	return name
}

// entry extracts one entry, whose content is read from r.
func (x *extraction) entry(h *tar.Header, r io.Reader) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if err := x.budget.entry(h.Name); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanName(h.Name, x.budget.limits.Path)
	if err != nil {
		return err
	}
	if x.noImage && name == "oci-layout" {
		return fmt.Errorf("%w: this is an image layout: decompress the archive first, or say that it is to be taken as files (tar)", ErrFormat)
	}
	dir, base := splitName(name)
	if strings.HasPrefix(base, whiteout) {
		return x.whiteout(h, dir, base)
	}
	a, err := x.attributes(h)
	if err != nil {
		return err
	}
	if name == "." && h.Typeflag != tar.TypeDir {
		return fmt.Errorf("%w: the root is not a directory", ErrUnsafe)
	}
	return x.make(h, name, a, r)
}

func (x *extraction) make(h *tar.Header, name string, a attributes, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return x.tree.directory(name, a)
	case tar.TypeReg, tar.TypeGNUSparse:
		if err := x.budget.content(h.Size); err != nil {
			return err
		}
		return x.tree.file(name, a, h.Size, &source{ctx: x.ctx, r: r}) // what reads zeros of a hole reads nothing else
	case tar.TypeSymlink:
		if err := x.target(h.Linkname); err != nil {
			return err
		}
		return x.tree.symlink(name, h.Linkname, a)
	case tar.TypeLink:
		target, err := cleanName(h.Linkname, x.budget.limits.Path)
		if err == nil && strings.HasPrefix(target[strings.LastIndexByte(target, '/')+1:], whiteout) {
			err = fmt.Errorf("%w: a whiteout", ErrUnsafe)
		}
		if err != nil {
			return fmt.Errorf("hard link to %q: %w", shorten(h.Linkname), err)
		}
		if target == name {
			return fmt.Errorf("%w: a hard link to itself", ErrUnsafe)
		}
		return x.tree.link(x.ctx, name, target, a.mtime)
	case tar.TypeFifo:
		return x.tree.node(name, a, tar.TypeFifo, 0, 0)
	case tar.TypeChar, tar.TypeBlock:
		return x.device(h, name, a)
	}
	return fmt.Errorf("%w: an entry of the unknown type %q", ErrUnsafe, h.Typeflag)
}

var errNoDevices = fmt.Errorf("%w: a device, and devices are not to be made", ErrUnsafe)

func (x *extraction) device(h *tar.Header, name string, a attributes) error {
	switch {
	case h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0:
		return fmt.Errorf("%w: the device 0/0, which means a whiteout to overlayfs", ErrUnsafe)
	case x.devices == DevicesSkip:
		x.left.Devices++
		return nil
	case x.devices != DevicesMake:
		return errNoDevices
	case h.Devmajor < 0 || h.Devminor < 0 || h.Devmajor >= 1<<12 || h.Devminor >= 1<<20:
		return fmt.Errorf("%w: device numbers %d/%d", ErrUnsafe, h.Devmajor, h.Devminor)
	}
	x.made++
	return x.tree.node(name, a, h.Typeflag, uint32(h.Devmajor), uint32(h.Devminor))
}

// target checks the target of a symbolic link. It may be anything: nothing here follows it.
func (x *extraction) target(name string) error {
	switch {
	case name == "" || strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: the target %q of a symbolic link", ErrUnsafe, name)
	case len(name) > x.budget.limits.Path:
		return fmt.Errorf("%w: a target of %d bytes, %d are allowed", ErrLimit, len(name), x.budget.limits.Path)
	}
	return nil
}

func (x *extraction) whiteout(h *tar.Header, dir, base string) error {
	name, opaque, ignored, err := hidden(base)
	switch {
	case err != nil || ignored && h.Size == 0:
		return err
	case h.Typeflag != tar.TypeReg || h.Size != 0:
		return fmt.Errorf("%w: a whiteout that is not an empty file", ErrUnsafe)
	case opaque:
		return x.tree.opaque(x.ctx, dir)
	}
	return x.tree.hide(x.ctx, joinName(dir, name))
}

// Extended attributes in headers.
const xattrRecord = "SCHILY.xattr."

// attributes takes those of a header that can be given to a file.
func (x *extraction) attributes(h *tar.Header) (attributes, error) {
	a := attributes{mode: uint32(h.Mode) & 0o7777, uid: h.Uid, gid: h.Gid, mtime: h.ModTime, whole: true}
	for _, id := range []int{h.Uid, h.Gid} {
		if id < 0 || int64(id) >= 1<<32-1 { // the last number means: as it is
			return a, fmt.Errorf("%w: owner %d:%d", ErrUnsafe, h.Uid, h.Gid)
		}
	}
	for _, record := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		name, ok := strings.CutPrefix(record, xattrRecord)
		if !ok {
			continue
		}
		switch {
		case strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay."):
			return a, fmt.Errorf("%w: the attribute %s, which directs overlayfs", ErrUnsafe, shorten(name))
		case name == "security.capability" || strings.HasPrefix(name, "user.") && len(name) <= maxComponent && strings.IndexByte(name, 0) < 0:
			if a.xattrs == nil {
				a.xattrs = map[string]string{}
			}
			a.xattrs[name] = h.PAXRecords[record]
		default:
			x.left.Xattrs++
		}
	}
	return a, nil
}
