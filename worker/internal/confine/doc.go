// Package confine runs a program that reads a tree that untrusted commands have made, such as mkfs.erofs:
// what the tree does to the program must not reach the machine.
//
// The program sees a root directory of its own with the system's libraries, the tree, all read-only, and
// one file that it writes. It has no network, sees no process but its own, and is an unprivileged user with
// the two capabilities that reading every file and the extended attributes trusted.* takes:
// CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN. The second one is good for much more, so it is denied all system
// calls that need it, by the default profile of containers, and ioctl.
package confine

import (
	"fmt"
	"strings"
	"time"
)

// Where the program finds what it is given.
const (
	Tree = "/tree"
	File = "/file"
)

// Command is a program that is to be run.
type Command struct {
	Program string        // its path
	Args    []string      // what it is given besides
	Tree    string        // the directory that is at Tree
	File    string        // the file that is at File; it is there, and root's again afterwards
	Point   string        // an empty directory, on which the root directory is mounted, where no other process sees it
	Time    time.Duration // how long it may take in processor time; 0: an hour
	Memory  int64         // how much memory it may have; 0: 4 GiB
}

// Explain is an error of Run with what the program wrote.
func Explain(err error, out []byte) error {
	text := strings.Join(strings.Fields(string(out)), " ")
	if err == nil || text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}
