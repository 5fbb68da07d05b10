package command

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paths of buckets in one argument, as they are printed: names with a / between them. In a name \\ stands for a
// backslash, \/ for a slash, and \x00 for a byte that is no text, in two hexadecimal digits.

// pathName writes the name of a bucket as it stands in a path.
func pathName(name []byte) string {
	if printable(name) && !bytes.ContainsAny(name, `/\`) {
		return string(name)
	}
	var s strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		switch {
		case r == '/' || r == '\\':
			s.WriteString(`\` + string(r))
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			for _, b := range name[:n] {
				fmt.Fprintf(&s, `\x%02x`, b)
			}
		default:
			s.Write(name[:n])
		}
		name = name[n:]
	}
	return s.String()
}

// splitPath reads a path; false if it is one name, without anything that stands for something else, or none.
func splitPath(path []byte) (names [][]byte, ok bool) {
	if !bytes.ContainsAny(path, `/\`) {
		return nil, false
	}
	name := []byte{}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '/':
			names = append(names, name)
			name = []byte{}
		case c == '\\' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '\\'):
			i++
			name = append(name, path[i])
		case c == '\\' && i+3 < len(path) && path[i+1] == 'x':
			b, err := strconv.ParseUint(string(path[i+2:i+4]), 16, 8)
			if err != nil {
				return nil, false
			}
			name = append(name, byte(b))
			i += 3
		case c == '\\':
			return nil, false
		default:
			name = append(name, c)
		}
	}
	names = append(names, name)
	for _, name := range names {
		if len(name) == 0 {
			return nil, false
		}
	}
	return names, true
}
