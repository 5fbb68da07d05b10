package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Variable is the environment variable that names the mutant.
const Variable = "HOLDFAST_MUTANT"

// switchFile is added to each package with a mutant.
const switchFile = "mutant_on.go"

const switchSource = `package %s

import "os"

var mutantName = os.Getenv(%q)

func mutantOn(name string) bool { return mutantName == name }
`

// A Patch is one mutant: a sentence, and a unified diff of files below the top of the repository.
type Patch struct {
	Name  string   // of the mutant
	Path  string   // of the patch
	Does  string   // what the engine does with it: the text before the diff
	Files []string // that it changes
}

var changed = regexp.MustCompile(`(?m)^--- a/(\S+)$`)

// Patches reads the patches in dir, sorted by name.
func Patches(dir string) ([]Patch, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var all []Patch
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p := Patch{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Path: path}
		for _, m := range changed.FindAllSubmatch(text, -1) {
			p.Files = append(p.Files, string(m[1]))
		}
		if len(p.Files) == 0 {
			return nil, fmt.Errorf("mutant %s: %s changes no file", p.Name, path)
		}
		p.Does = string(text[:bytes.Index(text, []byte("--- a/"))])
		all = append(all, p)
	}
	return all, nil
}

// Overlay applies all patches to copies of the sources below top, in the new
// directory into, and returns the path of the file for go build -overlay.
func Overlay(top, into string) (string, error) {
	top, err := filepath.Abs(top)
	if err != nil {
		return "", err
	}
	patches, err := Patches(filepath.Join(top, "test", "mutants"))
	if err != nil {
		return "", err
	}
	t, err := copySources(top, into, patches)
	if err != nil {
		return "", err
	}
	for _, p := range patches {
		if err := t.apply(p); err != nil {
			return "", fmt.Errorf("mutant %s no longer applies: %w", p.Name, err)
		}
	}
	return t.overlay()
}

// tree has copies of the sources that the patches change.
type tree struct {
	top, dir string
	files    []string
}

func copySources(top, dir string, patches []Patch) (*tree, error) {
	t := &tree{top: top, dir: dir}
	for _, p := range patches {
		t.files = append(t.files, p.Files...)
	}
	slices.Sort(t.files)
	t.files = slices.Compact(t.files)
	for _, name := range t.files {
		source, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			return nil, err
		}
		if err := t.write(name, source); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *tree) write(name string, text []byte) error {
	path := filepath.Join(t.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// apply applies a patch to the copies.
func (t *tree) apply(p Patch, flags ...string) error {
	path, err := filepath.Abs(p.Path)
	if err != nil {
		return err
	}
	cmd := exec.Command("git", append(append([]string{"apply"}, flags...), path)...)
	cmd.Dir = t.dir
	// In a repository, git apply passes over files that are not below its work tree.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// overlay adds the switch to each package and writes the list of replaced files.
func (t *tree) overlay() (string, error) {
	replace := map[string]string{}
	for _, name := range t.files {
		replace[filepath.Join(t.top, name)] = filepath.Join(t.dir, name)
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.dir, name), nil, parser.PackageClauseOnly)
		if err != nil {
			return "", err
		}
		on := filepath.Join(filepath.Dir(name), switchFile)
		if err := t.write(on, fmt.Appendf(nil, switchSource, file.Name.Name, Variable)); err != nil {
			return "", err
		}
		replace[filepath.Join(t.top, on)] = filepath.Join(t.dir, on)
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(t.dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// Refresh writes all patches anew that apply when only the nearest line of
// context is compared. It stops at the first that does not, with its name.
func Refresh(top, into string) error {
	top, err := filepath.Abs(top)
	if err != nil {
		return err
	}
	patches, err := Patches(filepath.Join(top, "test", "mutants"))
	if err != nil {
		return err
	}
	t, err := copySources(top, filepath.Join(into, "b"), patches)
	if err != nil {
		return err
	}
	for _, p := range patches {
		before := &tree{dir: filepath.Join(into, "a")}
		for _, name := range p.Files {
			text, err := os.ReadFile(filepath.Join(t.dir, name))
			if err != nil {
				return err
			}
			if err := before.write(name, text); err != nil {
				return err
			}
		}
		if err := t.apply(p, "-C1"); err != nil {
			return fmt.Errorf("mutant %s: %w", p.Name, err)
		}
		patch := []byte(p.Does)
		for _, name := range p.Files {
			cmd := exec.Command("diff", "-U2", "--label", "a/"+name, "--label", "b/"+name, filepath.Join(before.dir, name), filepath.Join(t.dir, name))
			out, err := cmd.Output()
			if err == nil || cmd.ProcessState.ExitCode() != 1 {
				return fmt.Errorf("mutant %s: diff of %s: %w", p.Name, name, err)
			}
			patch = append(patch, out...)
		}
		if err := os.WriteFile(p.Path, patch, 0o644); err != nil {
			return err
		}
	}
	return nil
}
