package step

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"holdfast/worker/internal/idmap"
)

// This file has the user namespaces of the steps of Native. A thread of a process that has others cannot
// enter one. So a command is started outside, stops before its first instruction, and is made to enter the
// namespace there (inject). What it then has of all privileges in there it gives up at once, but for the
// few of root.
//
// The kernel looks at who it is when it executes the program, and that must be as in the namespace: who may
// execute it, and where it begins. So a command of another user than root begins with the ids that the user
// has outside, in a namespace that belongs to those: its owner may enter one. Root may do what the
// machine's root may with the files of its root directory, so it begins as that, with few capabilities, and
// becomes root of the namespace when it is there.
//
// Mounts, processes, network, ipc, host name and cgroups of a step belong to the machine's namespace, so no
// privilege in its own counts for them.
//
// Why CLONE_NEWUSER at the start does not do it: package os writes the maps through the thread's root directory, which is
// the sandbox by then, and a helper process takes milliseconds. What is executed later stays within what is left of the
// capabilities by no_new_privs.
//
// The overlay of such a step is made of clones of its layers with mapped ids, since an overlay itself refuses
// MOUNT_ATTR_IDMAP. Upper and work directory must be in one mount, whose descriptor stays open until the overlay is made, or
// the kernel says EINVAL. The thread that calls fsconfig(CREATE) needs the outside number of root as fsuid and fsgid: as root of
// the machine the overlay fails in the work directory with EOVERFLOW and is mounted read-only, without an error. A change of a
// thread's fsuid makes the process undumpable and forgets the thread's parent-death signal, so both are put back. Mapping
// costs 0.1 ms (by hand, Linux 6.18, two processors). Files of an image with higher ids belong to the user 65534 in the step: to
// look for them would take reading the tree.

// maxUsers is how many namespaces of users other than root are kept.
const maxUsers = 64

// users are the user namespaces with the same ids. Each belongs to one user.
type users struct {
	ids  idmap.Map
	root *os.File  // root's, which is the manager's
	drop []uintptr // capabilities that no process of a step has

	mu     sync.Mutex
	others map[uint32]*os.File
}

// openUsers makes what steps need for a user namespace, or says why they can have none.
func (o *openNative) openUsers() (*users, error) {
	if o.usersOff {
		return nil, errOff
	}
	if o.byInit {
		return nil, fmt.Errorf("a step begins with this program: %w", errors.ErrUnsupported)
	}
	if o.driver == zfs {
		return nil, errZFS
	}
	u := &users{ids: idsOf(o.root), others: map[uint32]*os.File{}}
	err := o.mounts.CanMapIDs(filepath.Join(o.root, "snapshots"), u.ids.Base, u.ids.Count)
	if err == nil {
		u.root, err = o.mounts.UserNamespace(u.ids.Base, u.ids.Count)
	}
	if err != nil {
		return nil, err
	}
	u.drop = dropped()
	return u, nil
}

// errZFS: to find out whether a ZFS can do it takes making a file system and mounting it, for each process
// that has a Runner.
var errZFS = fmt.Errorf("the ids of file systems of ZFS are not mapped: %w", errors.ErrUnsupported)

// dropped are the capabilities that the kernel has and no process of a step.
func dropped() (list []uintptr) {
	keep := allowed()
	for c := uintptr(0); c < 64; c++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil {
			break // the kernel has no more
		}
		if keep&(1<<c) == 0 {
			list = append(list, c)
		}
	}
	return list
}

// allowed are the capabilities of root in a step, one bit each.
func allowed() (set uint64) {
	for _, c := range capabilities {
		set |= 1 << c.number
	}
	return set
}

func (o *openNative) ids() idmap.Map {
	if o.users == nil {
		return idmap.Map{}
	}
	return o.users.ids
}

func (u *users) close() {
	if u == nil {
		return
	}
	for _, f := range u.others {
		_ = f.Close()
	}
}

// of is the namespace of a user of steps. release is called when a process has it.
func (u *users) of(uid uint32) (f *os.File, release func(), err error) {
	release = func() {}
	if uid == 0 {
		return u.root, release, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.others[uid]; f != nil {
		return f, release, nil
	}
	if f, err = u.ids.Namespace(u.ids.Base + uid); err != nil {
		return nil, nil, err
	}
	if len(u.others) < maxUsers {
		u.others[uid] = f
		return f, release, nil
	}
	return f, func() { _ = f.Close() }, nil
}

// entry is what a stopped command needs to enter its namespace.
type entry struct {
	fd   int       // its descriptor of the namespace, which it closes
	keep uint64    // its capabilities there
	user *User     // whom it becomes there; nil: it is the user already
	drop []uintptr // those that it and what it starts can never have

	gains bool // what it starts can get new privileges
}

// asUser has a command begin with the ids of a user outside, and with a descriptor of the namespace. The
// entry is nil if it is to have none.
func (r *nativeRun) asUser(attr *os.ProcAttr) (release func(), err error) {
	user, ids := &r.job.step.User, r.job.ids
	attr.Sys.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	if !ids.Set() {
		return func() {}, nil
	}
	space, release, err := r.users.of(user.UID)
	if err != nil {
		return nil, fmt.Errorf("user %d: %w", user.UID, err)
	}
	r.entry = &entry{fd: len(attr.Files), drop: r.users.drop, gains: r.job.step.NewPrivileges}
	attr.Files = append(attr.Files, space)
	if user.UID == 0 {
		r.entry.user, r.entry.keep = user, allowed()
		attr.Sys.Credential = nil
		return release, nil
	}
	groups := make([]uint32, len(user.Groups))
	for i, g := range user.Groups {
		groups[i] = ids.Base + g
	}
	attr.Sys.Credential = &syscall.Credential{Uid: ids.Base + user.UID, Gid: ids.Base + user.GID, Groups: groups}
	return release, nil
}

// canShow is why a step with these ids outside would see other owners of the files at a path of the
// machine; nil if it sees those.
func (r *Runner) canShow(source string, ids idmap.Map) error {
	if !ids.Set() {
		return nil
	}
	return r.opt.Mounts.CanShowIDs(source, ids.Base, ids.Count)
}

// ownOutput gives the pipes of a command to the user it runs as, who can then open /dev/stdout.
func (r *nativeRun) ownOutput() error {
	u := &r.job.step.User
	if u.UID == 0 && !r.job.ids.Set() || r.userns {
		return nil
	}
	for _, f := range []*os.File{r.job.in, r.job.out} {
		if f == nil {
			continue
		}
		if err := f.Chown(int(r.job.ids.Base+u.UID), int(r.job.ids.Base+u.GID)); err != nil {
			return fmt.Errorf("input and output of the command: %w", err)
		}
	}
	return nil
}

// Settings of a network namespace that belongs to the machine's user namespace: there no capability of a
// step counts, so any process may listen at ports below 1024, and send echo requests.
var openSettings = map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}

// openNetwork changes the settings of the calling thread's network namespace. proc is the machine's /proc.
// Where that cannot be written, root in a step cannot listen at those ports.
func openNetwork(proc int) error {
	for name, value := range openSettings {
		fd, err := unix.Openat(proc, "sys/net/ipv4/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT || err == unix.EROFS {
			continue
		}
		if err == nil {
			_, err = unix.Write(fd, []byte(value))
			_ = unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("the setting %s of the network: %w", name, err)
		}
	}
	return nil
}
