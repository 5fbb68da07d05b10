package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Paths of buckets in one argument, as they are printed: names with a / between them. In a name \\ stands for a
// backslash, \/ for a slash, and \x00 for a byte that is not text, in two hexadecimal digits.

// PathName writes the name of a bucket as it stands in a path.
func PathName(name []byte) string {
	if Printable(name) && !bytes.ContainsAny(name, `/\`) {
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

// SplitPath reads a path. It is an error of the command line if it is none: a name is empty, or a \ stands before what
// it cannot stand before.
func SplitPath(path []byte) (names [][]byte, err error) {
	name := []byte{}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '/':
			names = append(names, name)
			name = []byte{}
		case c == '\\' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '\\'):
			i++
			name = append(name, path[i])
		case c == '\\':
			if i+3 >= len(path) || path[i+1] != 'x' {
				return nil, notAPath(path, `in a name \\ stands for a backslash, \/ for a slash, and \x00 for a byte`)
			}
			b, err := strconv.ParseUint(string(path[i+2:i+4]), 16, 8)
			if err != nil {
				return nil, notAPath(path, `two hexadecimal digits follow \x`)
			}
			name = append(name, byte(b))
			i += 3
		default:
			name = append(name, c)
		}
	}
	names = append(names, name)
	for _, name := range names {
		if len(name) == 0 {
			return nil, notAPath(path, `a name in it is empty; \/ stands for a slash in a name`)
		}
	}
	return names, nil
}

func notAPath(path []byte, why string) error {
	return Usagef("%s is not a path of buckets: %s", Brief(path), why)
}
