package cli

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// holders names the processes that hold a lock on the file, as far as the
// system tells: " (process 12 (etcd))", or "".
func holders(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer locks.Close()
	inode := fmt.Sprintf(":%d", stat.Ino)
	var found []string
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// number: FLOCK ADVISORY WRITE process major:minor:inode start end
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) || f[4] == fmt.Sprint(os.Getpid()) {
			continue
		}
		holder := "process " + f[4] + processName(f[4])
		if !slices.Contains(found, holder) && len(found) < MaxNamed {
			found = append(found, holder)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return ", held by " + strings.Join(found, " and ")
}

// processName is the name of a process, in parentheses, where the system tells.
func processName(pid string) string {
	name := programOf(pid)
	if name == "" {
		return ""
	}
	return " (" + Quoted(name) + ")" // anybody can name a process
}

func programOf(pid string) string {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(comm))
}
