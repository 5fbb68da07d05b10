package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is an unpacked package of a Linux kernel.
type Kernel struct {
	image   string            // the file to boot
	modules map[string]string // files by name
}

// qemu is the program that emulates machines.
const qemu = "qemu-system-x86_64"

// busybox is where Debian's busybox-static puts its program.
const busybox = "/bin/busybox"

// ErrMissing says that something is not there that a machine is made of.
var ErrMissing = errors.New("missing for a virtual machine (scripts/vm-kernel gets it, as root on Debian)")

// Find finds a kernel and the programs that a machine needs. repository is the
// directory at the top, where bin/vm/kernel is.
func Find(repository string) (*Kernel, error) {
	if _, err := exec.LookPath(qemu); err != nil {
		return nil, fmt.Errorf("%s: %w", qemu, ErrMissing)
	}
	if _, err := os.Stat(busybox); err != nil {
		return nil, fmt.Errorf("%s: %w", busybox, ErrMissing)
	}
	dir := os.Getenv("HOLDFAST_VM")
	if dir == "" {
		dir = filepath.Join(repository, "bin", "vm", "kernel")
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return nil, fmt.Errorf("%s/boot/vmlinuz-*: %d files: %w", dir, len(images), ErrMissing)
	}
	k := &Kernel{image: images[0], modules: map[string]string{}}
	err = filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok && err == nil {
			k.modules[moduleName(name)] = path
		}
		return err
	})
	return k, err
}

// Version is that of the kernel.
func (k *Kernel) Version() string {
	return strings.TrimPrefix(filepath.Base(k.image), "vmlinuz-")
}

// moduleName is the name under which the kernel knows a module.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// ordered are the files of modules and of those that they need, which come first.
// What the kernel has built in is not a module and has no file.
func (k *Kernel) ordered(names []string) (files []string, err error) {
	var add func(name string) error
	add = func(name string) error {
		file, ok := k.modules[moduleName(name)]
		if !ok {
			return fmt.Errorf("kernel %s has no module %s", k.Version(), name)
		}
		if slices.Contains(files, file) {
			return nil
		}
		needed, err := moduleNeeds(file)
		if err != nil {
			return err
		}
		for _, other := range needed {
			if err := add(other); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// moduleNeeds are the modules that one says it depends on.
func moduleNeeds(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", file)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for field := range bytes.SplitSeq(data, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
