package program

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	for _, args := range [][]string{{"uname", "-r"}, {"df", "--output=fstype", dir}} {
		if out, err := exec.Command(args[0], args[1:]...).Output(); err == nil {
			if fields := strings.Fields(string(out)); len(fields) > 0 {
				last, _, _ := strings.Cut(fields[len(fields)-1], "-") // without a builder's suffix
				parts = append(parts, last)
			}
		}
	}
	return strings.Join(append(parts, peerVersions()...), ", ")
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
