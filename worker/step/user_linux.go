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

// lookupHome is the home directory of a user, in the file that a root directory has. A file that cannot be read says
// none.
func lookupHome(root int, uid uint32) string {
	passwd, err := readInRoot(root, "passwd")
	if err != nil {
		return "/"
	}
	return homeIn(passwd, uid)
}

// readInRoot reads a file in the directory etc of a root directory, nothing if it is not there. Symbolic links lead
// nowhere else; what is not a regular file is not opened.
func readInRoot(root int, name string) ([]byte, error) {
	fd, err := openIn(root, "etc/"+name, unix.O_PATH)
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

// openIn opens a path below a root directory. Symbolic links lead nowhere else.
func openIn(root int, name string, flags int) (int, error) {
	return unix.Openat2(root, name, &unix.OpenHow{
		Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}
