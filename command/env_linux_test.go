package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEnvOfDatabases: env shows what the variables say of a database, here and in a process that has it open.
func TestEnvOfDatabases(t *testing.T) {
	dir := withSample(t)
	t.Setenv("HOLDFAST_DURABILITY", "full,mounts.db=periodic,"+dir+"/build/*=none")
	t.Setenv("HOLDFAST_AUTO_VACUUM", "m*.db=yes")
	r := run(t, "env", "meta.db", "mounts.db", "build/a/mounts.db")
	wantIn(t, r, 0, "meta.db\n    HOLDFAST_AUTO_VACUUM=on\n    HOLDFAST_DURABILITY=full\n\nmounts.db\n    HOLDFAST_AUTO_VACUUM=on\n    HOLDFAST_DURABILITY=periodic\n", "")
	wantIn(t, r, 0, "build/a/mounts.db\n    HOLDFAST_AUTO_VACUUM=on\n    HOLDFAST_DURABILITY=none\n", "")
	wantIn(t, run(t, "env", "meta.db", "--json"), 0, `"file": "meta.db",`+"\n"+`      "settings": {`+"\n"+`        "HOLDFAST_AUTO_VACUUM": "on",`, "")

	check(t, os.Rename("sample.db", "mounts.db"))
	p := process(t, "import", "mounts.db", "-")
	p.Dir = dir
	in, err := p.StdinPipe()
	check(t, err)
	check(t, p.Start())
	file := filepath.Join(dir, "mounts.db")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r = run(t, "env", "--pid", fmt.Sprint(p.Process.Pid))
		if r.out != "The process has no database open.\n" || time.Now().After(deadline) {
			break
		}
	}
	wantIn(t, r, 0, file+"\n    HOLDFAST_AUTO_VACUUM=on\n    HOLDFAST_DURABILITY=periodic\n", "")
	check(t, in.Close())
	_ = p.Wait()
	wantIn(t, run(t, "env", "--pid", fmt.Sprint(p.Process.Pid)), 1, "", fmt.Sprintf("there is no process %d", p.Process.Pid))

	t.Setenv("HOLDFAST_DURABILITY", "full,mounts.db=fast")
	wantIn(t, run(t, "env", "meta.db"), 1, "meta.db\n    HOLDFAST_AUTO_VACUUM=on\n", `HOLDFAST_DURABILITY is "fast" for "mounts.db"; it can be "full", "none" or "periodic"`)
	if _, err := os.Stat("meta.db"); err == nil {
		t.Error("a file was made")
	}
}
