// Package record has bbolt log what programs do to their databases. It changes a copy of bbolt's source with which they are then built; of
// that source nothing is in this repository.
package record

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
)

//go:embed hook/hook.go
var source []byte

// wrappers are methods that do what bbolt's do, which are renamed, and log it.
//
//go:embed wrappers.txt
var wrappers []byte

// unhooked begins the new names of bbolt's methods.
const unhooked = "unhooked"

// hooks are what is changed in bbolt's files: methods that are renamed, by receiver, and types that get a field.
var hooks = []struct {
	file    string
	typ     string
	field   string // ""; or what the type gets
	methods []string
}{
	{"bucket.go", "Bucket", "hook hookBucket", []string{"Bucket", "CreateBucket", "CreateBucketIfNotExists", "DeleteBucket", "MoveBucket", "Put", "Delete"}},
	{"cursor.go", "Cursor", "", []string{"Delete"}},
	{"tx.go", "Tx", "hook hookTx", []string{"Commit"}},
}

// Insert inserts the hooks into bbolt's source in a directory. It fails where the source is not as it expects, and leaves it half changed
// then.
func Insert(dir string) error {
	for _, h := range hooks {
		file := filepath.Join(dir, h.file)
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("insert hooks into bbolt: %w", err)
		}
		changed, err := change(h.file, text, h.typ, h.field, h.methods)
		if err == nil {
			err = os.WriteFile(file, changed, 0o644)
		}
		if err != nil {
			return fmt.Errorf("insert hooks into bbolt: %w", err)
		}
	}
	own := filepath.Join(dir, "internal", "hook")
	return errors.Join(
		os.MkdirAll(own, 0o755),
		os.WriteFile(filepath.Join(own, "hook.go"), source, 0o644),
		os.WriteFile(filepath.Join(dir, "hook.go"), wrappers, 0o644))
}

// insertion is text that is inserted before the byte at an offset.
type insertion struct {
	at   int
	text string
}

// change renames the methods of a type, and adds a field to it.
func change(name string, text []byte, typ, field string, methods []string) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []insertion
	for _, method := range methods {
		i := slices.IndexFunc(parsed.Decls, func(d ast.Decl) bool { return isMethod(d, typ, method) })
		if i < 0 {
			return nil, fmt.Errorf("%s has no method %s of %s", name, method, typ)
		}
		found = append(found, insertion{files.Position(parsed.Decls[i].(*ast.FuncDecl).Name.Pos()).Offset, unhooked})
	}
	if field != "" {
		s := structOf(parsed, typ)
		if s == nil {
			return nil, fmt.Errorf("%s has no struct %s", name, typ)
		}
		found = append(found, insertion{files.Position(s.Fields.Closing).Offset, field + "\n"})
	}
	slices.SortFunc(found, func(a, b insertion) int { return cmp.Compare(b.at, a.at) })
	for _, f := range found { // the last first, so that offsets stay right
		text = slices.Insert(text, f.at, []byte(f.text)...)
	}
	return text, nil
}

// isMethod tells whether it is that method of a pointer to the type.
func isMethod(d ast.Decl, typ, name string) bool {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil || f.Name.Name != name {
		return false
	}
	pointer, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	receiver, ok := pointer.X.(*ast.Ident)
	return ok && receiver.Name == typ
}

// structOf finds the type.
func structOf(file *ast.File, name string) (found *ast.StructType) {
	ast.Inspect(file, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok && t.Name.Name == name {
			found, _ = t.Type.(*ast.StructType)
		}
		return found == nil
	})
	return found
}
