package vm

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// initScript is the first program of a machine.
//
//go:embed init.sh
var initScript []byte

// archive writes an initramfs: a cpio archive in the form "newc".
type archive struct {
	w     *bufio.Writer
	size  int64
	inode int
	there map[string]bool
	err   error
}

// Types of files, as in st_mode.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriter(w), there: map[string]bool{}}
}

func (a *archive) write(p []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(p)
		a.size += int64(len(p))
	}
}

func (a *archive) pad() { a.write(make([]byte, -a.size&3)) }

// header writes what comes before the content of a file. Names have no slash in
// front; major and minor are those of a device.
func (a *archive) header(name string, mode, size, major, minor int) {
	a.inode++
	links := 1
	fields := []int{a.inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, len(name) + 1, 0}
	text := "070701"
	for _, f := range fields {
		text += fmt.Sprintf("%08x", f)
	}
	a.write([]byte(text + name + "\x00"))
	a.pad()
}

// parents writes the directories above a name that are not there yet.
func (a *archive) parents(name string) {
	if dir := path.Dir(name); dir != "." {
		a.dir(dir)
	}
}

func (a *archive) dir(name string) {
	if a.there[name] {
		return
	}
	a.parents(name)
	a.there[name] = true
	a.header(name, typeDir|0o755, 0, 0, 0)
}

func (a *archive) bytes(name string, mode int, content []byte) {
	if a.there[name] {
		return
	}
	a.parents(name)
	a.there[name] = true
	a.header(name, typeFile|mode, len(content), 0, 0)
	a.write(content)
	a.pad()
}

func (a *archive) file(name, from string) {
	content, err := os.ReadFile(from)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.bytes(name, 0o755, content)
}

func (a *archive) device(name string, major, minor int) {
	a.parents(name)
	a.header(name, typeChar|0o600, 0, major, minor)
}

func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0, 0, 0)
	return errors.Join(a.err, a.w.Flush())
}

// program writes a program of the host under its own name, and the libraries that
// it is linked with under theirs.
func (a *archive) program(name string) error {
	file, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrMissing)
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return err
	}
	libraries, err := librariesOf(file)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		a.file(strings.TrimPrefix(library, "/"), library)
	}
	a.file("programs/"+filepath.Base(name), file)
	return nil
}

// librariesOf are the shared libraries of a program, by the names that it opens.
func librariesOf(file string) (list []string, err error) {
	out, err := exec.Command("ldd", file).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") || strings.Contains(string(out), "statically linked") {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", file, err, out)
	}
	for line := range strings.Lines(string(out)) {
		for _, field := range strings.Fields(line) {
			if strings.HasPrefix(field, "/") {
				list = append(list, field)
			}
		}
	}
	return list, nil
}

// writeInitramfs writes the initramfs of a machine to a file.
func (c *Config) writeInitramfs(to string) (err error) {
	modules, err := c.Kernel.ordered(append([]string{"virtio_pci", "virtio_blk"}, c.Modules...))
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := newArchive(f)
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "mnt", "root", "etc"} {
		a.dir(dir)
	}
	a.device("dev/console", 5, 1)
	a.file("bin/busybox", busybox)
	a.bytes("init", 0o755, initScript)
	list := ""
	for _, file := range modules {
		name := "lib/modules/" + filepath.Base(file)
		a.file(name, file)
		list += "/" + name + "\n"
	}
	a.bytes("modules", 0o644, []byte(list))
	for _, name := range c.Programs {
		if err := a.program(name); err != nil {
			return err
		}
	}
	for name, from := range c.Files {
		a.file(strings.TrimPrefix(name, "/"), from)
	}
	a.bytes("command", 0o755, []byte(c.Command))
	return a.close()
}
