//go:build linux

// Command page looks at the page of holdfastd in Debian's Chromium, on a store with many snapshots: each view shows what is there,
// the keyboard works, names that are markup are text, a wrong token opens nothing, and no view is wider than a phone. It says when
// the first paint was and how many bytes were loaded, and writes pictures.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast"
	"holdfast/worker/snapshot"
	"holdfast/worker/snapshot/driver/overlay"
)

var (
	program  = flag.String("holdfastd", "../bin/holdfastd", "the daemon's program")
	browser  = flag.String("browser", "chromium", "the browser's program")
	many     = flag.Int("snapshots", 50_000, "snapshots in the store")
	pictures = flag.String("pictures", "", "directory for pictures; none if it is empty")
	rounds   = flag.Int("rounds", 5, "times that the page is loaded for the figures")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("/var/tmp", "holdfast-page-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root := filepath.Join(dir, "store")
	d := &daemon{root: root, http: "127.0.0.1:0"}
	if err := d.base(ctx, dir); err != nil {
		return err
	}
	if err := fill(ctx, root, *many); err != nil {
		return fmt.Errorf("filling the store: %w", err)
	}
	if err := d.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	for i := range 3 {
		if err := d.command(ctx, "step", "-q", "--base", "bb", "--env", fmt.Sprintf("N=%d", i), "--", "sh", "-c", "echo step $N has written this; test $N != 2"); err != nil && i != 2 {
			return err
		}
	}
	address, err := d.output(ctx, "page")
	if err != nil {
		return err
	}
	at, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return err
	}
	d.http = at.Host // also when it is started again
	return look(ctx, d, at.String(), dir)
}

// hostile is the name of a snapshot, and a command, that would be markup.
const hostile = `<img src=x onerror="document.title='hacked'">`

// fill makes snapshots as steps do, without their files: some with children.
func fill(ctx context.Context, root string, n int) (err error) {
	s, err := snapshot.Open(root, snapshot.Options{Driver: overlay.New(), Durability: holdfast.None, Sync: snapshot.SyncDeferred})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	t, err := s.Namespace("local")
	if err != nil {
		return err
	}
	parent := ""
	for i := range n {
		name, command := fmt.Sprintf("filled-%05d", i), fmt.Sprintf("make part-%d", i)
		if i == 7 {
			name, command = hostile, hostile
		}
		if i%100 == 0 {
			parent = ""
		}
		labels := snapshot.WithLabels(map[string]string{"holdfast.step.command": command})
		if _, err := t.Prepare(ctx, name+" active", parent); err != nil {
			return err
		}
		if err := t.Commit(ctx, name, name+" active", labels); err != nil {
			return err
		}
		if parent == "" {
			parent = name
		}
	}
	return nil
}

// daemon is holdfastd serve on a store.
type daemon struct {
	root string
	http string // where it serves the page
	cmd  *exec.Cmd
	log  bytes.Buffer
}

// base makes the store with a base.
func (d *daemon) base(ctx context.Context, dir string) error {
	bin := filepath.Join(dir, "base", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"sh", "echo", "test", "sleep"} {
		if out, err := exec.CommandContext(ctx, "cp", "/bin/busybox", filepath.Join(bin, name)).CombinedOutput(); err != nil {
			return fmt.Errorf("busybox-static is needed: %w: %s", err, out)
		}
	}
	if out, err := exec.CommandContext(ctx, "tar", "-C", filepath.Dir(bin), "-cf", filepath.Join(dir, "base.tar"), ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return d.command(ctx, "import", filepath.Join(dir, "base.tar"), "bb")
}

func (d *daemon) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, *program, append([]string{"--root", d.root}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("holdfastd %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func (d *daemon) command(ctx context.Context, args ...string) error {
	_, err := d.output(ctx, args...)
	return err
}

func (d *daemon) start() error {
	d.cmd = exec.Command(*program, "--root", d.root, "serve", "--http", d.http)
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		return err
	}
	for range 1000 {
		if _, err := os.Stat(filepath.Join(d.root, "command.sock")); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("the daemon does not begin: %s", &d.log)
}

// kill ends the daemon as a power failure would.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	_ = os.Remove(filepath.Join(d.root, "command.sock")) // by which start knows that it is ready
}

func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("the daemon ended with %w: %s", err, &d.log)
	}
	if text := d.log.String(); strings.Contains(text, "level=ERROR") {
		return fmt.Errorf("the daemon's log has errors: %s", text)
	}
	return nil
}
