package command_test

import (
	"os"
	"strings"
	"testing"

	"holdfast/command"
)

// TestValueWithoutEnd: put read a --value-file to its end, however long it was, so that /dev/zero took all memory there
// is; of standard input the message was "value too large", without how long a value can be.
func TestValueWithoutEnd(t *testing.T) {
	workdir(t)
	command.LongestValue(t, 1000)
	check(t, os.WriteFile("long", make([]byte, 1001), 0o600))
	check(t, os.WriteFile("fits", make([]byte, 1000), 0o600))
	files := []string{"long"}
	if _, err := os.Stat("/dev/zero"); err == nil {
		files = append(files, "/dev/zero")
	}
	for _, file := range files {
		wantIn(t, run(t, "put", "x.db", "b", "k", "--value-file", file, "--create"), 1, "", "holdfast: "+file+": longer than a value can be: 1,000 bytes; nothing was set")
	}
	r := execute(command.NewRootCommand(), strings.Repeat("x", 1001), "put", "x.db", "b", "k", "--value-file", "-", "--create")
	wantIn(t, r, 1, "", "holdfast: standard input: longer than a value can be: 1,000 bytes")
	must(t, "put", "x.db", "b", "k", "--value-file", "fits", "--create")
}
