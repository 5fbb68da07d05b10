package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/disk"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/zfs"
)

func init() { register((*app).newDoctor) }

const doctorHelp = `Look at what this system has of what holdfastd needs: privileges, calls of the kernel
and what is done without those that are missing, helper programs, cgroups, and the file
system of the store. Nothing is changed.

The exit code is 1 if something is missing that is needed with the driver of the store,
or the one that --driver names.`

// finding is what doctor has found of one thing.
type finding struct {
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Next   string `json:"next"` // what to do; "" if nothing is to be done
}

// States of findings.
const (
	stateOK      = "ok"
	stateLacking = "lacking" // something works less well, or not at all, that is not needed
	stateMissing = "missing" // something is needed
)

// checkup is one run of doctor.
type checkup struct {
	*call
	driver string
	list   []finding
}

func (a *app) newDoctor() *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "Look at what this system has of what is needed", Long: doctorHelp, Args: cobra.NoArgs, RunE: a.action((*call).doctor)}
}

func (d *checkup) add(topic, name, state, detail, next string) {
	d.list = append(d.list, finding{topic, name, state, detail, next})
}

// need is stateOK, or what is the case without.
func need(ok, needed bool) string {
	switch {
	case ok:
		return stateOK
	case needed:
		return stateMissing
	}
	return stateLacking
}

func (c *call) doctor() error {
	d := &checkup{call: c, driver: c.driver}
	if known := c.storeDriver(); d.driver == "" || d.driver == "zfs" && strings.HasPrefix(known, zfsPrefix) {
		d.driver = known
	}
	if _, err := c.newDriver(d.driver); err != nil {
		return err
	}
	d.system()
	d.helpers()
	d.place()
	missing := 0
	for _, f := range d.list {
		if f.State == stateMissing {
			missing++
		}
	}
	if c.json {
		if err := cli.PrintJSON(c.out, map[string]any{"driver": d.driver, "ok": missing == 0, "findings": d.list}); err != nil {
			return err
		}
	} else {
		d.print(missing)
	}
	if missing > 0 {
		return errSaid
	}
	return nil
}

// storeDriver is the driver of the store, or of one that would be made.
func (c *call) storeDriver() string {
	root, err := c.absRoot()
	if err != nil {
		return defaultDriver()
	}
	if dataset, err := zfs.DatasetOf(root); err == nil && dataset != "" {
		return zfsPrefix + dataset
	}
	if there, err := c.isStore(); err != nil || !there {
		return defaultDriver()
	}
	s, done, err := c.look()
	if err != nil {
		return defaultDriver() // why is told below
	}
	defer done()
	return s.Driver().Name()
}

// kind is the driver without its dataset.
func (d *checkup) kind() string {
	kind, _, _ := strings.Cut(d.driver, ":")
	return kind
}

// helpers looks for programs.
func (d *checkup) helpers() {
	for _, h := range []struct{ name, pack, use, driver string }{
		{"runc", "runc", "steps with the runtime runc", ""},
		{"mkfs.erofs", "erofs-utils", "the driver erofs", "erofs"},
		{"btrfs", "btrfs-progs", "the driver btrfs", "btrfs"},
		{"mkfs.btrfs", "btrfs-progs", "making a disk for the driver btrfs", ""},
		{"zfs", "zfsutils-linux", "the driver zfs", "zfs"},
	} {
		path, err := exec.LookPath(h.name)
		if h.name == "zfs" {
			path, err = zfs.LookPath()
		}
		if err != nil {
			d.add("Programs", h.name, need(false, d.kind() == h.driver), "not found; it is for "+h.use, "apt install "+h.pack)
			continue
		}
		d.add("Programs", h.name, stateOK, path, "")
	}
}

// place looks at the directory of the store and its disk.
func (d *checkup) place() {
	root, err := d.absRoot()
	if err != nil {
		d.add("Store", d.root, stateMissing, err.Error(), "give a directory with --root")
		return
	}
	at := root
	for {
		_, err := os.Stat(at)
		if err == nil || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	fs, err := disk.Measure(at)
	switch {
	case err != nil:
		d.add("Store", "disk", stateMissing, err.Error(), "make the directory, or give another one with --root")
	case fs.Free < 1<<30 || fs.Size > 0 && fs.Free < fs.Size/20:
		d.add("Store", "disk", stateLacking, fmt.Sprintf("%s, only %s free of %s", fs.Kind, cli.Size(fs.Free), cli.Size(fs.Size)), "free some space")
	case fs.Inodes > 0 && fs.FreeInodes < fs.Inodes/20:
		d.add("Store", "disk", stateLacking, fmt.Sprintf("%s, only %s inodes free of %s", fs.Kind, cli.Count(fs.FreeInodes), cli.Count(fs.Inodes)), "remove some files, or prune snapshots")
	default:
		d.add("Store", "disk", stateOK, fmt.Sprintf("%s, %s free of %s", fs.Kind, cli.Size(fs.Free), cli.Size(fs.Size)), "")
	}
	if at != root {
		d.add("Store", "directory", stateOK, root+" is not there yet: holdfastd import makes it", "")
		return
	}
	there, err := d.isStore()
	if err == nil && !there {
		d.probe(root)
		return
	}
	if err == nil {
		var s *snapshot.Store
		var done func()
		if s, done, err = d.look(); err == nil {
			defer done()
			d.add("Store", "directory", stateOK, fmt.Sprintf("%s, driver %s", root, d.driver), "")
			d.emergency(root)
			d.quarantine(s)
			d.held(s)
			d.missing(s)
			d.quotas(root)
			return
		}
	}
	if errors.Is(err, snapshot.ErrLocked) {
		d.add("Store", "directory", stateOK, err.Error(), "")
		return
	}
	d.add("Store", "directory", stateMissing, err.Error(), d.next(err))
}

// emergency looks for the file that is given up when the disk is full.
func (d *checkup) emergency(root string) {
	info, err := os.Stat(filepath.Join(root, disk.EmergencyName))
	if err != nil {
		d.add("Store", "emergency file", stateLacking, "there is none yet; on a full disk metadata could not be written", "run any command that opens the store, as holdfastd df does: it is made if there is room")
		return
	}
	d.add("Store", "emergency file", stateOK, cli.Size(info.Size())+", given up when the disk is full", "")
}

// probe asks the driver whether it works in a directory without a store.
func (d *checkup) probe(root string) {
	driver, err := d.newDriver(d.driver)
	if err == nil {
		err = snapshot.CheckPlace(root, driver)
	}
	if p, ok := driver.(snapshot.Prober); ok && err == nil {
		err = p.Probe(root)
	}
	if err != nil {
		next := "give another directory with --root, or another driver with --driver"
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, snapshot.ErrNotStore) {
			next = d.next(err)
		}
		d.add("Store", "directory", stateMissing, err.Error(), next)
		return
	}
	d.add("Store", "directory", stateOK, root+" has no store yet: holdfastd import makes it, with the driver "+d.driver, "")
}

func (d *checkup) print(missing int) {
	fmt.Fprintf(d.out, "Driver %s on %s/%s\n", d.driver, runtime.GOOS, runtime.GOARCH)
	topic := ""
	var lines [][]string
	flush := func() {
		if len(lines) > 0 {
			fmt.Fprintf(d.out, "\n%s\n", topic)
			cli.Columns(d.out, lines...)
		}
		lines = nil
	}
	for _, f := range d.list {
		if f.Topic != topic {
			flush()
			topic = f.Topic
		}
		detail := printable(f.Detail)
		if f.Next != "" {
			detail += "; " + f.Next
		}
		lines = append(lines, []string{"  " + f.State, f.Name, detail})
	}
	flush()
	if missing == 0 {
		fmt.Fprintln(d.out, "\nEverything that is needed is there.")
	} else {
		fmt.Fprintf(d.out, "\n%s: see what is missing above.\n", cli.Plural(missing, "thing")+" that the driver "+d.driver+" needs")
	}
}
