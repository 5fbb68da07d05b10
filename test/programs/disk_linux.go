package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A Disk is a file that holds an ext4 file system with a journal, mounted by a loop device of its own. Mounting it needs root.
type Disk struct {
	Dir    string // where it is mounted
	file   string
	device string // loop0
}

// NewDisk makes a disk of so many GiB, which takes as much of the directory as is written to it.
func NewDisk(ctx context.Context, dir string, gib int64) (d *Disk, err error) {
	d = &Disk{Dir: filepath.Join(dir, "disk"), file: filepath.Join(dir, "disk.ext4")}
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(d.file)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(gib<<30), f.Close()); err != nil {
		return nil, err
	}
	if err := run(ctx, "mkfs.ext4", "-q", "-F", d.file); err != nil {
		return nil, err
	}
	// The kernel removes the loop device when the file system is unmounted, also when this process was killed.
	if err := run(ctx, "mount", "-o", "loop", d.file, d.Dir); err != nil {
		return nil, errors.Join(err, os.Remove(d.file))
	}
	out, err := exec.CommandContext(ctx, "findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", d.Dir).Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("findmnt %s: %w", d.Dir, err), d.Close())
	}
	d.device = filepath.Base(strings.TrimSpace(string(out)))
	return d, nil
}

// Close unmounts and removes it.
func (d *Disk) Close() error {
	return errors.Join(run(context.Background(), "umount", d.Dir), os.Remove(d.file))
}

// Written is how many bytes the device was given to write, after all that waits in memory was.
func (d *Disk) Written() (int64, error) {
	if err := run(context.Background(), "sync", "-f", d.Dir); err != nil {
		return 0, err
	}
	b, err := os.ReadFile(filepath.Join("/sys/block", d.device, "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 7 {
		return 0, fmt.Errorf("/sys/block/%s/stat: %q", d.device, b)
	}
	sectors, err := strconv.ParseInt(fields[6], 10, 64) // of 512 bytes whatever the device's are: Documentation/block/stat.rst
	return sectors * 512, err
}

// run runs a command that prints nothing if all is well.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
