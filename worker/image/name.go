package image

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/worker/snapshot"
)

// Names with which an archive removes what lower layers have.
const (
	whiteout       = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

const maxComponent = 255

// reserved begin names that snapshots have for another reason: layers, results of steps, imports under way, and
// what is removed when the process that made it is gone.
var reserved = []string{"sha256:", "sha512:", "step-", importing, "!"}

// CheckName is snapshot.ErrInvalid if a base cannot be called name: it is one word of characters that can
// be seen, in parts between slashes, as names of images are, and none that snapshots have for another
// reason.
func CheckName(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("%w: a base cannot be called %q: %s", snapshot.ErrInvalid, shorten(name), why)
	}
	for _, begin := range reserved {
		if strings.HasPrefix(name, begin) {
			return bad(fmt.Sprintf("names that begin with %q are those of other snapshots", begin))
		}
	}
	switch {
	case name == "":
		return bad("the name is empty")
	case len(name) > snapshot.MaxNameSize:
		return bad(fmt.Sprintf("it has %d bytes, %d are possible", len(name), snapshot.MaxNameSize))
	case name[0] == '-':
		return bad("it looks like a flag")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return bad("it has spaces, or characters that cannot be seen")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return bad("a part between slashes is empty, . or ..")
		}
	}
	return nil
}

// cleanName is the name of an entry relative to the root of the tree, "." for that itself.
func cleanName(name string, most int) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%w: an empty name", ErrUnsafe)
	case len(name) > most:
		return "", fmt.Errorf("%w: a name of %d bytes, %d are allowed", ErrLimit, len(name), most)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("%w: a name with a NUL", ErrUnsafe)
	case name[0] == '/':
		return "", fmt.Errorf("%w: an absolute name", ErrUnsafe)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", fmt.Errorf("%w: a name with .. in it", ErrUnsafe)
		case len(part) > maxComponent: // as the kernel says, too
			return "", fmt.Errorf("%w: a component of %d bytes in a name, %d are possible", ErrLimit, len(part), maxComponent)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ".", nil
	}
	for _, part := range parts[:len(parts)-1] {
		if strings.HasPrefix(part, whiteout) {
			return "", fmt.Errorf("%w: a name below a whiteout", ErrUnsafe)
		}
	}
	return strings.Join(parts, "/"), nil
}

// splitName is the directory of a clean name, "." for the root, and its last component.
func splitName(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return ".", name
}

// joinName is the name of what is called base in a directory.
func joinName(dir, base string) string {
	if dir == "." {
		return base
	}
	return dir + "/" + base
}

// hidden is what a whiteout is of: a name, or with opaque everything else in the directory. Names of
// whiteouts that mean nothing here are ignored.
func hidden(base string) (name string, opaque, ignored bool, err error) {
	switch {
	case base == whiteoutOpaque:
		return "", true, false, nil
	case strings.HasPrefix(base, whiteoutMeta):
		return "", false, true, nil
	}
	name = strings.TrimPrefix(base, whiteout)
	if name == "" || name == "." || name == ".." {
		return "", false, false, fmt.Errorf("%w: a whiteout of %q", ErrUnsafe, name)
	}
	return name, false, false, nil
}
