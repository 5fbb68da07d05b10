package inspect

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/internal/share"
	"holdfast/internal/vfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sharedFile is a share whose owner and readers are this process.
func sharedFile(t *testing.T) (o *share.Owner, v *share.View, open func() *share.Reader) {
	t.Helper()
	path, dir := filepath.Join(t.TempDir(), "db"), t.TempDir()
	must(t, os.WriteFile(path, nil, 0o600))
	file := func() *vfs.OSFile {
		f, err := vfs.OpenOS(path, os.O_RDWR, 0, nil)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f.(*vfs.OSFile)
	}
	id, err := identityOf(path)
	must(t, err)
	o, err = share.Create(dir, id, file(), share.State{Tx: 5}, share.Options{})
	must(t, err)
	v, err = share.Attach(dir, id)
	must(t, err)
	t.Cleanup(func() { _ = v.Close() })
	return o, v, func() *share.Reader {
		r, err := share.Open(dir, id, file())
		must(t, err)
		return r
	}
}

func theReader(t *testing.T, v *share.View) reader {
	t.Helper()
	all, err := readersOf(v)
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	return all[0]
}

// TestEndWithoutOwner: when the owner is gone meanwhile, nothing was ended, and that is said.
func TestEndWithoutOwner(t *testing.T) {
	o, v, open := sharedFile(t)
	r := open()
	defer r.Close()
	pid := theReader(t, v).PID
	must(t, o.Close())
	var out bytes.Buffer
	c := &cli.Call{App: &cli.App{}, Cmd: &cobra.Command{}, Args: []string{"db"}, Out: bufio.NewWriter(&out)}
	for what, do := range map[string]func() error{
		"end":  func() error { return endReaders(c, v, pid) },
		"list": func() error { return listReaders(c, v) },
	} {
		if err := do(); !errors.Is(err, share.ErrOwnerGone) || out.Len() > 0 || c.Out.Buffered() > 0 {
			t.Errorf("%s: %v, %s", what, err, &out)
		}
	}
}
