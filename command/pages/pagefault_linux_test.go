package pages

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// A file that is shortened while a command reads it is an error, and the process lives:
// its pages are mapped, and reading them is a fault of the processor then.
func TestPageShortened(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "testdata", "sample.db"))
	must(t, err)
	for _, asJSON := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "short.db")
		must(t, os.WriteFile(path, data, 0o600))
		var out bytes.Buffer
		c := &cli.Call{App: &cli.App{JSON: asJSON}, Ctx: t.Context(), Cmd: &cobra.Command{}, Args: []string{path}, Out: bufio.NewWriter(&out)}
		c.Cmd.SetOut(&out)
		err = withPages(c, path, 0, func(f *pageFile) error {
			must(t, os.Truncate(path, 1024))
			p := &pagePrinter{Call: c, file: f, format: "auto"}
			return p.print(nil, true)
		})
		must(t, c.Out.Flush())
		if err == nil || !strings.Contains(err.Error(), "short.db: damaged: page ") || !strings.Contains(out.String(), "the page cannot be read: the file was shortened") {
			t.Errorf("%v: got %s", err, &out)
		}
		if asJSON && !json.Valid(out.Bytes()) {
			t.Errorf("not JSON: %s", &out)
		}
		must(t, os.WriteFile(path, data, 0o600))
		err = withPages(c, path, 0, func(f *pageFile) error {
			must(t, os.Truncate(path, 1024))
			c.Stock = true
			p := &pagePrinter{Call: c, file: f, format: "auto"}
			return p.stockAll()
		})
		must(t, c.Out.Flush())
		if err != nil || !strings.Contains(out.String(), "Prining page 11 failed: page 11: the page cannot be read: the file was shortened") {
			t.Errorf("%v: got %s", err, &out)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
