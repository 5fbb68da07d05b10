// Package mountinfo reads the mounts of a mount namespace, as /proc/PID/mountinfo lists them.
//
// The parser of moby/sys/mountinfo, which most use, ends with an error at a line of more than 64 KiB, which an
// overlay of 500 layers can have, and parses all lines: among tens of thousands of mounts that would be most of the
// time of a step.
package mountinfo

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
)

// Own is the file with the mounts of the namespace that the thread is in.
const Own = "/proc/thread-self/mountinfo"

// Mount is what is used of a line. Paths and sources are unescaped.
type Mount struct {
	ID           uint64 // as statx has it
	Major, Minor uint32
	Root         string // what of the file system is mounted
	Point        string // where
	Type         string
	Source       string
	Options      string // of the file system
}

// Each calls each for the mounts in the file at path whose lines contain one of the strings, or for all if there are
// none. A line is taken as it is written: a path or a source in one of the strings must be escaped.
func Each(path string, each func(*Mount), contain ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return Read(f, each, contain...)
}

// Read is Each of an open file.
func Read(r io.Reader, each func(*Mount), contain ...string) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && containsAny(line, contain) {
			m, err := Parse(strings.TrimSuffix(string(line), "\n"))
			if err != nil {
				return err
			}
			each(m)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func containsAny(line []byte, contain []string) bool {
	for _, s := range contain {
		if bytes.Contains(line, []byte(s)) {
			return true
		}
	}
	return len(contain) == 0
}

// Parse takes one line apart:
// "46 27 0:39 / /mnt ro,relatime shared:1 - overlay source rw,lowerdir=/a".
func Parse(line string) (*Mount, error) {
	before, after, ok := strings.Cut(line, " - ")
	first, last := strings.Split(before, " "), strings.Split(after, " ")
	if !ok || len(first) < 6 || len(last) < 3 {
		return nil, fmt.Errorf("mountinfo: the line %q", line)
	}
	major, minor, _ := strings.Cut(first[2], ":")
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("mountinfo: the line %q: %w", line, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("mountinfo: the line %q: %w", line, err)
	}
	id, err := strconv.ParseUint(first[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("mountinfo: the line %q: %w", line, err)
	}
	return &Mount{
		ID:    id,
		Major: uint32(ma), Minor: uint32(mi),
		Root: unoctal(first[3]), Point: unoctal(first[4]),
		Type: last[0], Source: unoctal(last[1]), Options: last[2],
	}, nil
}

// Values iterates over the options that have a value, with it.
func (m *Mount) Values() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for o := range strings.SplitSeq(m.Options, ",") {
			if key, value, ok := strings.Cut(o, "="); ok && !yield(key, unoctal(value)) {
				return
			}
		}
	}
}

// Option returns the value of an option of the file system, "" if it has none.
func (m *Mount) Option(key string) string {
	for k, value := range m.Values() {
		if k == key {
			return value
		}
	}
	return ""
}

// escaped has what the kernel escapes in paths and in sources.
var escaped = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)

// Escape returns a path as it stands in a line, and so does a source without a "#".
func Escape(path string) string { return escaped.Replace(path) }

// unoctal undoes the kernel's escapes: a backslash and three octal digits.
func unoctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
