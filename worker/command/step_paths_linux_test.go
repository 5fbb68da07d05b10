package command_test

import (
	"os"
	"strings"
	"testing"
)

// TestStepOfOtherPaths: that a path in the step, or of an output, is no directory or cannot be written was taken for
// the store's, and the next step was to give another --root. What would lie over the /sys of the step was accepted.
func TestStepOfOtherPaths(t *testing.T) {
	stand(t, "overlay")
	check(t, os.WriteFile("file", nil, 0o600))
	check(t, os.Mkdir("dir", 0o700))
	for args, says := range map[string]string{
		"--copy file:/etc/other --mount dir:/etc/hosts id": "mount at /etc/hosts: a directory cannot be mounted over a file",
		"--mount file:/bin id":                             "mount at /bin: a file cannot be mounted over a directory",
		"--mount dir:/bin/busybox/x id":                    "not a directory",
		"--workdir /bin/busybox id":                        "not a directory",
		"--workdir /sys/x id":                              "read-only file system",
		"--copy dir:/bin/busybox id":                       "not a directory",
		"--mount dir:/sys id":                              "a mount at /sys: ",
		"--mount tmpfs:/sys/fs id":                         "a mount at /sys/fs: ",
		"--mount dir:/proc/sys:ro id":                      "a mount at /proc/sys: ",
		"--mount dir:/dev id":                              "a mount at /dev: each step has a /proc, /dev and /sys of its own; choose another target",
		"--copy dir:/sys/x id":                             "a copy to /sys/x: each step has",
		"--output /bin:/dev/full id":                       "/dev/full is a device, FIFO or socket: give",
		"--output /bin:file id":                            "/bin is a directory, and file is none: give",
		"--output /bin:/proc/self/x id":                    "/proc/self/x",
	} {
		r := run(t, "", append([]string{"step", "--base", "bb"}, strings.Fields(args)...)...)
		if r.code != 125 || !strings.Contains(r.errOut, says) || strings.Contains(r.errOut, "--root") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	for _, args := range [][]string{{"--root", "file", "step", "--base", "bb", "id"}, {"--root", "file/x", "import", "busybox.tar"}} {
		if r := run(t, "", args...); !strings.Contains(r.errOut, "--root") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := run(t, "", "import", "file/x", "name"); r.code != 1 || strings.Contains(r.errOut, "--root") {
		t.Errorf("%+v", r)
	}
}
