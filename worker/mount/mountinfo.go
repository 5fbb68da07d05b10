package mount

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// mountinfo is what is used of a line of /proc/PID/mountinfo.
type mountinfo struct {
	major, minor uint32
	root         string // what of the file system is mounted
	point        string // where
	kind         string
	source       string
	super        string // options of the file system
}

// readMountinfo calls each for the lines whose bytes hold sub; an empty one is in all.
func readMountinfo(r io.Reader, sub string, each func(*mountinfo)) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && bytes.Contains(line, []byte(sub)) {
			m, err := parseMountinfo(strings.TrimSuffix(string(line), "\n"))
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

// parseMountinfo takes one line apart:
// "46 27 0:39 / /mnt ro,relatime shared:1 - overlay source rw,lowerdir=/a".
func parseMountinfo(line string) (*mountinfo, error) {
	before, after, ok := strings.Cut(line, " - ")
	first, last := strings.Split(before, " "), strings.Split(after, " ")
	if !ok || len(first) < 6 || len(last) < 3 {
		return nil, fmt.Errorf("mount: mountinfo: the line %q", line)
	}
	major, minor, _ := strings.Cut(first[2], ":")
	ma, err := strconv.ParseUint(major, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("mount: mountinfo: the line %q: %w", line, err)
	}
	mi, err := strconv.ParseUint(minor, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("mount: mountinfo: the line %q: %w", line, err)
	}
	return &mountinfo{
		major: uint32(ma), minor: uint32(mi),
		root: unoctal(first[3]), point: unoctal(first[4]),
		kind: last[0], source: unoctal(last[1]), super: last[2],
	}, nil
}

// option returns the value of an option of the file system.
func (m *mountinfo) option(key string) string {
	for _, o := range strings.Split(m.super, ",") {
		if k, v, ok := strings.Cut(o, "="); ok && k == key {
			return unoctal(v)
		}
	}
	return ""
}

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

// under tells whether a path is a directory or lies below it.
func under(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
