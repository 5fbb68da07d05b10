package mount

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdfast/worker/internal/idmap"
)

// MaxLowers is how many lower layers an overlay can have; the kernel has the same limit.
const MaxLowers = 500

// Spec says what to mount. Two specs are the same if all their fields are; an option that stands elsewhere makes
// another spec.
//
// The option idmap=BASE:COUNT shows the ids from 0 to COUNT that files have as those from BASE on, of an overlay those
// in all its layers; what those ids make has the ids from 0 on. Where the kernel, or a file system, cannot do it,
// Acquire fails with errors.ErrUnsupported. In such an overlay the root of the machine cannot make files; see
// idmap.Map.Do.
type Spec struct {
	Mount

	// Lowers are, for an overlay, lower layers that are mounted themselves, the topmost
	// first. They lie above the directories of its option lowerdir.
	Lowers []Spec

	// Own has each Acquire make a mount, which no other shares and which is never idle. It is for a source of others:
	// by the next time another file or directory can have its path, or something be mounted below it.
	Own bool
}

// FromMounts makes one spec of a list as snapshots have it: the last element is what is
// wanted, and if it is an overlay those before it are its Lowers.
func FromMounts(list []Mount) (Spec, error) {
	if len(list) == 0 {
		return Spec{}, errors.New("mount: an empty list of mounts")
	}
	last := Spec{Mount: list[len(list)-1]}
	below := list[:len(list)-1]
	if len(below) > 0 && last.Type != "overlay" {
		return Spec{}, fmt.Errorf("mount: %d mounts before one of type %q; only an overlay can have some", len(below), last.Type)
	}
	for _, m := range below {
		last.Lowers = append(last.Lowers, Spec{Mount: m})
	}
	return last, nil
}

// key is the same for the same specs, and for no others.
func (s *Spec) key() string { return string(s.appendKey(nil)) }

func (s *Spec) appendKey(b []byte) []byte {
	b = appendString(b, s.Type)
	b = appendString(b, s.Source)
	b = binary.AppendUvarint(b, uint64(len(s.Options)))
	for _, o := range s.Options {
		b = appendString(b, o)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Lowers)))
	for i := range s.Lowers {
		b = s.Lowers[i].appendKey(b)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// attr are flags of one mount, as against those of a file system.
type attr uint16

const (
	attrReadOnly attr = 1 << iota
	attrNoSuid
	attrNoDev
	attrNoExec
	attrNoAtime
	attrNoDirAtime
	attrStrictAtime
	attrNoSymFollow
)

// attrOptions are the options that set flags, and those that take them off again.
var attrOptions = map[string]struct{ set, clear attr }{
	"defaults":    {},
	"ro":          {set: attrReadOnly},
	"rw":          {clear: attrReadOnly},
	"nosuid":      {set: attrNoSuid},
	"suid":        {clear: attrNoSuid},
	"nodev":       {set: attrNoDev},
	"dev":         {clear: attrNoDev},
	"noexec":      {set: attrNoExec},
	"exec":        {clear: attrNoExec},
	"noatime":     {set: attrNoAtime, clear: attrStrictAtime},
	"atime":       {clear: attrNoAtime},
	"strictatime": {set: attrStrictAtime, clear: attrNoAtime},
	"relatime":    {clear: attrNoAtime | attrStrictAtime},
	"nodiratime":  {set: attrNoDirAtime},
	"diratime":    {clear: attrNoDirAtime},
	"nosymfollow": {set: attrNoSymFollow},
	"symfollow":   {clear: attrNoSymFollow},
}

// param is an option that is the file system's own.
type param struct {
	key, value string
	flag       bool // it has no value
}

// plan is a spec that has been understood.
type plan struct {
	kind      string
	source    string
	recursive bool // bind: with what is mounted below
	loop      bool // the source is a file that needs a loop device
	served    bool // a Mounter mounts it
	attr      attr
	ids       idmap.Map // which ids are shown as others; none: all are shown as they are
	params    []param

	// Of an overlay.
	lowers []string
	data   []string // lower layers that are reached by redirects only
	upper  string
	work   string

	// mounted are the specs of the lower layers that are mounts.
	mounted []Spec
}

// writable tells whether anything can be written through the mount.
func (p *plan) writable() bool {
	if p.kind == "overlay" {
		return p.upper != ""
	}
	return p.kind != "erofs" && p.attr&attrReadOnly == 0
}

// private tells whether each Acquire needs a mount of its own.
func (p *plan) private() bool { return p.kind == "tmpfs" || p.kind == "ramfs" }

// paths are the directories and files that the mount stands on.
func (p *plan) paths() []string {
	all := make([]string, 0, len(p.lowers)+len(p.data)+3)
	all = append(all, p.lowers...)
	all = append(all, p.data...)
	for _, one := range []string{p.upper, p.work} {
		if one != "" {
			all = append(all, one)
		}
	}
	if p.kind != "overlay" && !p.private() && p.source != "" {
		all = append(all, p.source)
	}
	return all
}

// String is a short form for messages.
func (p *plan) String() string {
	switch {
	case p.upper != "":
		return "overlay on " + p.upper
	case len(p.lowers) > 0:
		return "overlay of " + p.lowers[0]
	case p.kind == "overlay":
		return "overlay of mounts"
	case p.private():
		return p.kind
	}
	return p.kind + " of " + p.source
}

// parse understands a spec. What is refused here, the kernel would refuse with less to say.
func parse(s *Spec) (*plan, error) {
	p := &plan{kind: s.Type, source: s.Source, mounted: s.Lowers}
	for _, field := range append([]string{s.Type, s.Source}, s.Options...) {
		if strings.IndexByte(field, 0) >= 0 {
			return nil, fmt.Errorf("mount: a NUL in %q", field)
		}
	}
	if p.kind == "" {
		return nil, errors.New("mount: a spec without a type")
	}
	for _, o := range s.Options {
		if err := p.option(o); err != nil {
			return nil, err
		}
	}
	if p.kind == "rbind" {
		p.kind, p.recursive = "bind", true
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	return p, p.absolute()
}

func (p *plan) option(o string) error {
	if a, ok := attrOptions[o]; ok {
		p.attr = p.attr&^a.clear | a.set
		return nil
	}
	switch o {
	case "":
		return errors.New("mount: an empty option")
	case "bind", "rbind":
		if p.kind != "bind" && p.kind != "" && p.kind != "none" {
			return fmt.Errorf("mount: option %q of a mount of type %q", o, p.kind)
		}
		p.kind, p.recursive = "bind", o == "rbind"
		return nil
	case "loop":
		p.loop = true
		return nil
	}
	key, value, found := strings.Cut(o, "=")
	if key == "idmap" {
		var err error
		p.ids, err = parseIDs(value)
		return err
	}
	if p.kind == "overlay" {
		switch key {
		case "lowerdir":
			var err error
			p.lowers, p.data, err = splitLowers(value)
			return err
		case "upperdir":
			p.upper = unescape(value)
			return nil
		case "workdir":
			p.work = unescape(value)
			return nil
		case "lowerdir+", "datadir+":
			return fmt.Errorf("mount: option %q; lower layers are named by lowerdir", o)
		}
	}
	p.params = append(p.params, param{key: key, value: value, flag: !found})
	return nil
}

func (p *plan) validate() error {
	if p.kind != "overlay" {
		if len(p.mounted) > 0 {
			return fmt.Errorf("mount: lower layers of a mount of type %q", p.kind)
		}
		if p.kind == "bind" && len(p.params) > 0 {
			return fmt.Errorf("mount: option %q of a bind", p.params[0].key)
		}
		if p.source == "" && !p.private() {
			return fmt.Errorf("mount: a mount of type %q without a source", p.kind)
		}
		return nil
	}
	switch n := len(p.lowers) + len(p.data) + len(p.mounted); {
	case n > MaxLowers:
		return fmt.Errorf("mount: an overlay of %d lower layers; %d is the most", n, MaxLowers)
	case len(p.lowers)+len(p.mounted) == 0:
		return errors.New("mount: an overlay without a lower layer")
	case (p.upper == "") != (p.work == ""):
		return errors.New("mount: an overlay needs both upperdir and workdir, or neither")
	}
	for _, path := range p.paths() {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("mount: layer %q is not an absolute path", path)
		}
	}
	return nil
}

// absolute has the source be an absolute path, where it can be nothing but a path: a mount can be made where the
// working directory is another, and be shared when it is another.
func (p *plan) absolute() error {
	if filepath.IsAbs(p.source) || p.kind != "bind" && p.kind != "erofs" && !p.loop {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("mount: %s: %w", p, err)
	}
	p.source = dir + string(filepath.Separator) + p.source // not cleaned: a link can be before ".."
	return nil
}

// parseIDs reads the value of idmap.
func parseIDs(value string) (m idmap.Map, err error) {
	first, count, _ := strings.Cut(value, ":")
	base, err1 := strconv.ParseUint(first, 10, 32)
	n, err2 := strconv.ParseUint(count, 10, 32)
	if err1 != nil || err2 != nil || base == 0 || n == 0 || base+n > 1<<32-1 {
		return m, fmt.Errorf("mount: option idmap=%q; it is BASE:COUNT, with both above 0", value)
	}
	return idmap.Map{Base: uint32(base), Count: uint32(n)}, nil
}

// splitLowers takes the value of lowerdir apart: layers between colons, and those that
// hold only data after two. A backslash takes the meaning from the character after it.
func splitLowers(value string) (lowers, data []string, err error) {
	into := &lowers
	var part strings.Builder
	for i := 0; i <= len(value); i++ {
		switch {
		case i == len(value) || value[i] == ':':
			if part.Len() == 0 {
				return nil, nil, fmt.Errorf("mount: an empty layer in lowerdir=%q", value)
			}
			*into = append(*into, part.String())
			part.Reset()
			if i+1 < len(value) && value[i+1] == ':' {
				into = &data
				i++
			}
		case value[i] == '\\' && i+1 < len(value):
			i++
			part.WriteByte(value[i])
		default:
			part.WriteByte(value[i])
		}
	}
	return lowers, data, nil
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
