package program

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// replace puts what print writes, and where it was measured, in place of what
// the document has under the name. A document need not have a place for each group.
func (o *options) replace(name string, print func(io.Writer), where string) error {
	if o.document == "" {
		return nil
	}
	data, err := os.ReadFile(o.document)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(data, fmt.Appendf(nil, "<!-- bench %s -->\n", name))
	if !ok {
		fmt.Fprintf(os.Stderr, "%s has no place for the table of %s\n", o.document, name)
		return nil
	}
	_, tail, end := bytes.Cut(rest, []byte("<!-- end -->"))
	if !end {
		return fmt.Errorf("%s: the table of %s has no end", o.document, name)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s<!-- bench %s -->\n", head, name)
	print(&text)
	fmt.Fprintf(&text, "\n%s\n<!-- end -->%s", where, tail)
	return os.WriteFile(o.document, text.Bytes(), 0o644)
}

// Machine describes where it runs, as far as that can be found out.
func Machine(dir string) string {
	parts := []string{fmt.Sprintf("%d cores", runtime.NumCPU()), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if release := output("uname", "-r"); len(release) > 0 {
		number, _, _ := strings.Cut(release[0], "-") // without a builder's suffix
		parts = append(parts, number)
	}
	if df := output("df", "--output=source,fstype", dir); len(df) >= 2 {
		device, system := df[len(df)-2], df[len(df)-1]
		if system == "ext4" && noJournal(device) {
			system += " without a journal"
		}
		parts = append(parts, system)
	}
	return strings.Join(append(parts, peerVersions()...), ", ")
}

// output is what a program prints, in fields; none if it fails.
func output(name string, args ...string) []string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// noJournal tells whether the ext4 on a device has no journal. There Linux before the change
// 1308255bbf84 of February 2026 loses what fsync and fdatasync have just flushed, and only Holdfast
// flushes the inode as well: commits of the others cost less, and are not durable.
func noJournal(device string) bool {
	device, err := filepath.EvalSymlinks(device) // of a mapper, dm-0
	if err != nil {
		return false
	}
	task, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "journal_task"))
	return err == nil && strings.TrimSpace(string(task)) == "<none>"
}

// peerVersions are those of the engines besides Holdfast in this program, other
// than bbolt and its relatives, which the documentation names.
func peerVersions() (versions []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if slices.Contains([]string{"github.com/cockroachdb/pebble/v2", "github.com/mattn/go-sqlite3"}, m.Path) {
			versions = append(versions, m.Path+" "+m.Version)
		}
	}
	return versions
}

// Load is how busy the machine is.
func Load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "load not known"
	}
	return "load " + strings.Join(strings.Fields(string(data))[:3], " ")
}
