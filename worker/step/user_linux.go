package step

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxUserFile is how long /etc/passwd and /etc/group of a base may be.
const maxUserFile = 4 << 20

// lookupUser gives a user by name its numbers, which the files below a root directory have.
func lookupUser(root int, u User) (User, error) {
	if u.Name == "" {
		return u, nil
	}
	passwd, err := readInRoot(root, "passwd")
	if err != nil {
		return u, fmt.Errorf("user %q: /etc/passwd of the base: %w", u.Name, err)
	}
	group, err := readInRoot(root, "group")
	if err != nil {
		return u, fmt.Errorf("user %q: /etc/group of the base: %w", u.Name, err)
	}
	return userIn(u.Name, passwd, group)
}

// lookupHome is the home directory of a user, in the file that a root directory has. A file that cannot be read says none.
func lookupHome(root int, uid uint32) string {
	passwd, err := readInRoot(root, "passwd")
	if err != nil {
		return "/"
	}
	return homeIn(passwd, uid)
}

// readInRoot reads a file in the directory etc of a root directory, nothing if it is not there. Symbolic links lead nowhere
// else; what is no regular file is not opened.
func readInRoot(root int, name string) ([]byte, error) {
	fd, err := openInRoot(root, name)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("no regular file")
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxUserFile+1))
	if err == nil && len(b) > maxUserFile {
		err = fmt.Errorf("more than %d bytes", maxUserFile)
	}
	return b, err
}

// openInRoot opens a file in etc without reading it. Before Linux 5.6 a symbolic link there is not followed: that nobody
// but the kernel can do safely.
func openInRoot(root int, name string) (int, error) {
	fd, err := unix.Openat2(root, "etc/"+name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != unix.ENOSYS && err != unix.EPERM {
		return fd, err
	}
	dir, err := unix.Openat(root, "etc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
