// Package perfile reads settings that differ by file: a value, or several separated by commas of which each may have a
// pattern before it, as in "full,mounts.db=periodic,/var/lib/buildkit/*=none".
package perfile

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Item is one value of a setting, for the files that a pattern matches.
type Item struct {
	Pattern string // as of path.Match; "": all files
	Value   string
}

// Parse reads a setting. It is an error if one of several values is empty, or if a pattern is not one of path.Match, or has a slash and is not of whole paths.
func Parse(text string) ([]Item, error) {
	var items []Item
	for part := range strings.SplitSeq(text, ",") {
		if part == "" && text != "" { // it would unset what stands before it
			return nil, fmt.Errorf("one of the values of %q is empty", text)
		}
		item := Item{Value: part}
		if pattern, value, ok := strings.Cut(part, "="); ok {
			item = Item{Pattern: filepath.ToSlash(pattern), Value: value}
			if err := item.check(); err != nil {
				return nil, err
			}
		}
		items = append(items, item)
	}
	return items, nil
}

func (i Item) check() error {
	if _, err := path.Match(i.Pattern, ""); err != nil || i.Pattern == "" {
		return fmt.Errorf("%q is not a pattern of file names", i.Pattern)
	}
	if strings.Contains(i.Pattern, "/") && !i.whole() {
		return fmt.Errorf("the pattern %q has a slash, and is not an absolute path", i.Pattern)
	}
	return nil
}

// whole tells whether the pattern is one of absolute paths.
func (i Item) whole() bool {
	return strings.HasPrefix(i.Pattern, "/") || filepath.IsAbs(filepath.FromSlash(i.Pattern))
}

// matches tells whether the item's pattern matches the file at an absolute path: one without a slash is one of names, and one of
// paths may match a directory above the file.
func (i Item) matches(file string) bool {
	file = filepath.ToSlash(file)
	if !strings.Contains(i.Pattern, "/") {
		ok, _ := path.Match(i.Pattern, path.Base(file)) // the pattern was checked
		return ok
	}
	for {
		if ok, _ := path.Match(i.Pattern, file); ok {
			return true
		}
		above := path.Dir(file)
		if above == file {
			return false
		}
		file = above
	}
}

// Of is what the setting is for a file: the value of the last item that matches its absolute path, as it is given or without
// symbolic links. ok is false if none does. The file need not be there.
func Of(items []Item, file string) (value string, ok bool) {
	var paths []string // looked up only for a pattern: that takes a system call for each directory
	for _, i := range items {
		if i.Pattern != "" && paths == nil {
			paths = pathsOf(file)
		}
		if i.Pattern == "" || slices.ContainsFunc(paths, i.matches) {
			value, ok = i.Value, true
		}
	}
	return value, ok
}

// pathsOf are the absolute paths of a file: as it is given, and without symbolic links.
func pathsOf(file string) []string {
	if absolute, err := filepath.Abs(file); err == nil {
		file = absolute
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil { // it is not there yet
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return []string{file}
		}
		real = filepath.Join(dir, filepath.Base(file))
	}
	return []string{file, real}
}
