package stress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"holdfast/worker/mount"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// operation is what a step does. Each prints the history of its base, and adds its word.
type operation struct {
	word   string
	script string
	fails  bool
}

// There are few, so that many clients want the same step.
var operations = []operation{
	{word: "a", script: "cat /history >/copies/a"},
	{word: "b", script: "cat /history >/copies/b"},
	{word: "c", script: "mv /copies/a /copies/c 2>/dev/null; true"},
	{word: "d", script: "rm -rf /copies; mkdir /copies"},
	{word: "e", script: "(sleep 1000 &); sleep 1000 & cat /history >/copies/e"},
	{word: "f", script: "rm -rf /copies /history; exit 7", fails: true},
}

func (o operation) on(parent string) step.Step {
	return step.Step{Base: parent, Env: []string{"PATH=/bin"},
		Command: []string{"/bin/sh", "-c", "cat /history; echo " + o.word + " >>/history; " + o.script}}
}

// copies are the files of /copies that follow from a history.
func copies(history string) (map[string]string, error) {
	files, so := map[string]string{}, ""
	for line := range strings.Lines(history) {
		so += line
		switch word := strings.TrimSuffix(line, "\n"); word {
		case "a", "b", "e":
			files[word] = so
		case "c":
			if text, ok := files["a"]; ok {
				files["c"] = text
				delete(files, "a")
			}
		case "d":
			clear(files)
		default:
			return nil, fmt.Errorf("a word %q in the history", word)
		}
	}
	return files, nil
}

// viewPrefix begins the names of views that are looked into.
const viewPrefix = "view/"

// history reads what a result is made of, and compares its files with that.
func (r *run) history(name string) (history string, err error) {
	ctx := context.Background()
	key := fmt.Sprintf("%s%d", viewPrefix, r.views.Add(1))
	list, err := r.namespace.View(ctx, key, name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.namespace.Remove(ctx, key)) }()
	spec, err := mount.FromMounts(list)
	if err != nil {
		return "", err
	}
	h, err := r.mounts.Acquire(ctx, spec)
	if err != nil {
		return "", err
	}
	defer func() {
		h.Release()
		err = errors.Join(err, h.Wait(ctx))
	}()
	b, err := os.ReadFile(filepath.Join(h.Path(), "history"))
	if err != nil {
		return "", err
	}
	want, err := copies(string(b))
	if err != nil {
		return string(b), err
	}
	entries, err := os.ReadDir(filepath.Join(h.Path(), "copies"))
	if err != nil {
		return string(b), err
	}
	if len(entries) != len(want) {
		err = fmt.Errorf("copies %v, and not %v", entries, want)
	}
	for file, text := range want {
		if got, e := os.ReadFile(filepath.Join(h.Path(), "copies", file)); e != nil || string(got) != text {
			err = errors.Join(err, fmt.Errorf("the copy %s is %q, and not %q: %w", file, got, text, e))
		}
	}
	r.count(&r.report.Verified)
	return string(b), err
}

// removeViews removes what a killed run was looking into.
func (r *run) removeViews() error {
	ctx := context.Background()
	var left []string
	err := r.namespace.Walk(ctx, func(i snapshot.Info) error {
		if strings.HasPrefix(i.Name, viewPrefix) {
			left = append(left, i.Name)
		}
		return nil
	})
	for _, name := range left {
		err = errors.Join(err, r.namespace.Remove(ctx, name))
	}
	return err
}

// base commits a base with busybox, and pins it, unless it is there.
func (r *run) base() error {
	ctx := context.Background()
	if _, err := r.namespace.Stat(ctx, baseName); !errors.Is(err, snapshot.ErrNotFound) {
		return err
	}
	program, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("steps need Debian's package busybox-static: %w", err)
	}
	key := "base of " + baseName
	if err := r.namespace.Remove(ctx, key); err != nil && !errors.Is(err, snapshot.ErrNotFound) { // of a killed run
		return err
	}
	list, err := r.namespace.Prepare(ctx, key, "")
	if err != nil {
		return err
	}
	spec, err := mount.FromMounts(list)
	if err != nil {
		return err
	}
	h, err := r.mounts.Acquire(ctx, spec)
	if err != nil {
		return err
	}
	err = fill(h.Path(), program)
	h.Release()
	if err := errors.Join(err, h.Wait(ctx)); err != nil {
		return err
	}
	if err := r.namespace.Commit(ctx, baseName, key); err != nil {
		return err
	}
	return r.namespace.Pin(ctx, baseName)
}

func fill(dir, busybox string) error {
	b, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	for _, d := range []string{"bin", "copies"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/busybox"), b, 0o755); err != nil {
		return err
	}
	for _, a := range []string{"sh", "cat", "echo", "mv", "rm", "mkdir", "sleep", "true"} {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", a)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "history"), nil, 0o644)
}
