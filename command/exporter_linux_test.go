package command_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast"
)

// TestExporter: the command shows the databases of the directory that the environment names, and ends when it is asked to.
func TestExporter(t *testing.T) {
	for _, ending := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		dir := t.TempDir()
		db, err := holdfast.Open(filepath.Join(t.TempDir(), "a.db"), 0o600, &holdfast.Options{Share: dir})
		check(t, err)
		cmd := process(t, "exporter", "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "HOLDFAST_SHARE=off", "HOLDFAST_STATS="+dir)
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		check(t, err)
		if !strings.HasPrefix(line, "the databases shared in "+dir+" are shown at http://127.0.0.1:") {
			t.Fatal(line)
		}
		answer, err := http.Get(strings.TrimSpace(line[strings.Index(line, "http:"):]))
		check(t, err)
		text, err := io.ReadAll(answer.Body)
		check(t, err)
		if !strings.Contains(string(text), `holdfast_up{path="`) {
			t.Errorf("%s", text)
		}
		check(t, cmd.Process.Signal(ending))
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ends by %s with %v", ending, err)
		}
		check(t, db.Close())
	}
}

func TestExporterRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string
	}{
		{[]string{"--listen", taken}, "", 1, taken + ": cannot listen there: bind: address already in use; give a free address of this machine with --listen HOST:PORT"},
		{[]string{"--listen", "203.0.113.1:9460"}, "", 1, "cannot listen there: bind: cannot assign requested address; give a free address"},
		{[]string{"--listen", "9460"}, "", 2, `--listen: "9460" is not HOST:PORT, such as 127.0.0.1:9460`},
		{[]string{"--listen", "127.0.0.1:"}, "", 2, "is not HOST:PORT"},
		{[]string{"a.db"}, "", 2, `unexpected argument "a.db"`},
		{nil, "maybe", 2, `the environment variable HOLDFAST_SHARE is "maybe"`},
	} {
		t.Setenv("HOLDFAST_SHARE", c.env)
		wantIn(t, run(t, append([]string{"exporter"}, c.args...)...), c.code, "", c.want)
	}
}
