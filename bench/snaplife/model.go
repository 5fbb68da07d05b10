package snaplife

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
)

// Kind is that of a snapshot.
type Kind string

// The kinds, as containerd calls them.
const (
	Active    Kind = "Active"
	View      Kind = "View"
	Committed Kind = "Committed"
)

// Entry is what is known of a snapshot.
type Entry struct {
	Kind   Kind
	Parent string
	Label  string
}

// Model has the snapshots that a snapshotter has to have after operations, by their names.
type Model map[string]Entry

var errModel = errors.New("an operation that no snapshotter can do")

// Apply does an operation.
func (m Model) Apply(op Op) error {
	if op.Do == DoSweep {
		return nil
	}
	_, there := m[op.Name]
	parent, known := m[op.Parent]
	if op.Parent != "" && (!known || parent.Kind != Committed) || there != (op.Do == DoRemove) {
		return fmt.Errorf("%w: %v of %q on %q", errModel, op.Do, op.Name, op.Parent)
	}
	switch op.Do {
	case DoCycle: // it leaves nothing
	case DoStep:
		m[op.Name] = Entry{Committed, op.Parent, labelOf(op.Name)}
	case DoStart:
		m[op.Name] = Entry{Kind: Active, Parent: op.Parent}
	case DoView:
		m[op.Name] = Entry{Kind: View, Parent: op.Parent}
	case DoRemove:
		delete(m, op.Name)
	}
	return nil
}

// Names are those of the snapshots of a kind, sorted.
func (m Model) Names(kind Kind) (names []string) {
	for name, e := range m {
		if e.Kind == kind {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Compare says how what a snapshotter has differs from the model. It names one snapshot.
func (m Model) Compare(got Model) error {
	for name, want := range m {
		e, ok := got[name]
		if !ok {
			return fmt.Errorf("the %v snapshot %q is lost; it has %d snapshots of %d", want.Kind, name, len(got), len(m))
		}
		if e != want {
			return fmt.Errorf("snapshot %q is %+v, and has to be %+v", name, e, want)
		}
	}
	for name, e := range got {
		if _, ok := m[name]; !ok {
			return fmt.Errorf("it has the %v snapshot %q, which was removed or never made", e.Kind, name)
		}
	}
	return nil
}

// What a step writes.
const (
	layerFiles  = 4
	largestFile = 4 << 10
	versionFile = "etc/version"
)

// Files are the contents of files by their paths, with slashes.
type Files map[string]string

// layer are the files that the step of this name writes.
func layer(name string) Files {
	sum := sha256.Sum256([]byte(name))
	files := Files{versionFile: name}
	noise := make([]byte, largestFile)
	_, _ = rand.NewChaCha8(sum).Read(noise) // it never fails
	for i := range layerFiles - 1 {
		files[layerFile(name, i)] = string(noise[:largestFile>>(3*i)])
	}
	return files
}

// layerFile is a file of the step of this name. The next step removes number 0.
func layerFile(name string, i int) string {
	sum := sha256.Sum256([]byte(name))
	return path.Join("files", fmt.Sprintf("%x-%d", sum[:8], i))
}

// labelOf is the label of a committed snapshot.
func labelOf(name string) string { return layerName("label of %s", name) }

// Tree is what is seen in the committed snapshot of this name.
func (m Model) Tree(name string) Files {
	files := Files{}
	for at := name; at != ""; at = m[at].Parent {
		for file, content := range layer(at) {
			if _, ok := files[file]; !ok && (at == name || file != layerFile(at, 0)) {
				files[file] = content
			}
		}
	}
	return files
}

// Compare says how the files that are seen differ. It names one.
func (f Files) Compare(got Files) error {
	for file, want := range f {
		content, ok := got[file]
		if !ok {
			return fmt.Errorf("the file %s is lost", file)
		}
		if content != want {
			return fmt.Errorf("the file %s has other content", file)
		}
	}
	for file := range got {
		if _, ok := f[file]; !ok {
			return fmt.Errorf("the file %s was removed or never written", file)
		}
	}
	return nil
}
