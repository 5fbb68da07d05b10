package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"holdfast/command/cli"
	"holdfast/worker/step"
)

// What the flags --mount, --copy and --output say of files of this machine.

// output is what is copied out of a result.
type output struct{ source, dest string }

// files adds to a step what the flags say.
func (f *stepFlags) files(s *step.Step) error {
	for _, text := range f.mounts {
		m, err := f.parseMount(text)
		if err != nil {
			return err
		}
		s.Mounts = append(s.Mounts, m)
	}
	for _, text := range f.copies {
		source, target, ok := strings.Cut(text, ":")
		if !ok || source == "" || !strings.HasPrefix(target, "/") {
			return cli.Usagef("--copy is %q; it must be SOURCE:/TARGET", text)
		}
		source, err := f.hostPath("--copy "+text, source)
		if err != nil {
			return err
		}
		s.Copies = append(s.Copies, step.Copy{Source: source, Target: target})
	}
	for _, text := range f.outputs {
		source, dest, ok := strings.Cut(text, ":")
		if !ok || !strings.HasPrefix(source, "/") || dest == "" {
			return cli.Usagef("--output is %q; it must be /SOURCE:DEST, a path of the result and one of this machine", text)
		}
		f.results = append(f.results, output{source, f.app.path(dest)})
	}
	return nil
}

// hostPath is the whole path of something that is there.
func (f *stepFlags) hostPath(flag, path string) (string, error) {
	abs, err := filepath.Abs(f.app.path(path))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(abs); err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return abs, nil
}

// tmpfs is the source of an empty mount.
const tmpfs = "tmpfs"

// parseMount reads SOURCE:TARGET[:ro|:rw] and type=cache,id=NAME,target=TARGET.
func (f *stepFlags) parseMount(text string) (m step.Mount, err error) {
	if strings.HasPrefix(text, "type=") {
		return parseCache(text)
	}
	parts := strings.Split(text, ":")
	if len(parts) == 3 && (parts[2] == "ro" || parts[2] == "rw") {
		m.ReadOnly = parts[2] == "ro"
		parts = parts[:2]
	}
	if len(parts) != 2 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return m, cli.Usagef("--mount is %q; it must be SOURCE:/TARGET:ro, SOURCE:/TARGET, which can be written, tmpfs:/TARGET, or type=cache,id=NAME,target=/TARGET", text)
	}
	m.Target = parts[1]
	if parts[0] == tmpfs {
		return m, nil
	}
	m.Source, err = f.hostPath("--mount "+text, parts[0])
	return m, err
}

// sharings are the values of sharing= of a cache.
var sharings = map[string]step.Sharing{"": step.SharingShared, "shared": step.SharingShared, "private": step.SharingPrivate, "locked": step.SharingLocked}

// parseCache reads type=cache,id=NAME,target=TARGET[,sharing=shared|private|locked][,ro], in any order.
func parseCache(text string) (m step.Mount, err error) {
	var values []string
	for part := range strings.SplitSeq(text, ",") {
		if part == "ro" && !m.ReadOnly {
			m.ReadOnly = true
			continue
		}
		values = append(values, part)
	}
	fields, ok := fieldsOf(strings.Join(values, ","), "type", "id", "target", "sharing")
	sharing, known := sharings[fields["sharing"]]
	if !ok || !known || fields["type"] != "cache" || fields["id"] == "" || !strings.HasPrefix(fields["target"], "/") {
		return m, cli.Usagef("--mount is %q; it must be type=cache,id=NAME,target=/TARGET, and can have sharing=shared, private or locked, and ro; "+
			"a directory of this machine is SOURCE:/TARGET:ro, or SOURCE:/TARGET, which can be written; an empty one in memory is tmpfs:/TARGET", text)
	}
	m.Cache, m.Target, m.Sharing = fields["id"], fields["target"], sharing
	return m, nil
}

// checkOutputs is an error, before anything runs, if an output cannot go where it is to.
func checkOutputs(r *step.Runner, outputs []output) error {
	for _, o := range outputs {
		if err := r.CheckOutput(o.source, o.dest); err != nil {
			return err
		}
	}
	return nil
}

// export copies outputs of a result.
func (c *call) export(r *step.Runner, result string, outputs []output) error {
	for _, o := range outputs {
		if err := r.Export(c.ctx, result, o.source, o.dest); err != nil {
			return err
		}
	}
	return nil
}
