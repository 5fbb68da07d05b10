// Command apidump prints the exported interface of Go packages, one
// declaration a line and sorted, so that those of two modules can be compared.
// Types are printed without their package, because in one module they are
// declared elsewhere (aliases), and an interface{} is an any.
//
//	apidump [-C DIR] PACKAGE...
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("C", ".", "directory of the module")
	flag.Parse()
	lines, err := dump(*dir, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "apidump:", err)
		os.Exit(1)
	}
	for _, line := range lines {
		fmt.Println(line)
	}
}

func dump(dir string, packages []string) ([]string, error) {
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, stderr.String())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		exports[path] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var lines []string
	for _, path := range packages {
		pkg, err := imp.Import(path)
		if err != nil {
			return nil, fmt.Errorf("import %s: %w", path, err)
		}
		lines = append(lines, describe(pkg)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// describe lists what a package exports, with the fields and methods of types.
func describe(pkg *types.Package) []string {
	var lines []string
	add := func(format string, args ...any) {
		line := pkg.Path() + ": " + fmt.Sprintf(format, args...)
		lines = append(lines, strings.ReplaceAll(line, "interface{}", "any"))
	}
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s = %s", name, text(obj.Type()), obj.Val())
		case *types.Var:
			add("var %s %s", name, text(obj.Type()))
		case *types.Func:
			add("func %s%s", name, signature(obj))
		case *types.TypeName:
			t := types.Unalias(obj.Type())
			switch u := t.Underlying().(type) {
			case *types.Struct:
				add("type %s struct", name)
				for field := range u.Fields() {
					if field.Exported() {
						add("field %s.%s %s", name, field.Name(), text(field.Type()))
					}
				}
			case *types.Interface:
				add("type %s interface", name)
			case *types.Signature:
				add("type %s func", name) // its parameters may be private types
			default:
				add("type %s %s", name, text(u))
			}
			methods := types.NewMethodSet(types.NewPointer(t))
			if types.IsInterface(t) {
				methods = types.NewMethodSet(t)
			}
			for method := range methods.Methods() {
				if fn := method.Obj().(*types.Func); fn.Exported() {
					add("method %s.%s%s", name, fn.Name(), signature(fn))
				}
			}
		}
	}
	return lines
}

// signature is a function's parameters and results, without their names.
func signature(fn *types.Func) string {
	return strings.TrimPrefix(text(anonymous(fn.Signature())), "func")
}

// anonymous is a function type whose parameters, and theirs, have no names.
func anonymous(s *types.Signature) *types.Signature {
	return types.NewSignatureType(nil, nil, nil, unnamed(s.Params()), unnamed(s.Results()), s.Variadic())
}

func unnamed(tuple *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range tuple.Variables() {
		t := v.Type()
		if s, ok := t.(*types.Signature); ok {
			t = anonymous(s)
		}
		vars = append(vars, types.NewParam(token.NoPos, nil, "", t))
	}
	return types.NewTuple(vars...)
}

// text is a type with the names of packages left out where they are those of
// bbolt or of Holdfast.
func text(t types.Type) string {
	return types.TypeString(t, func(pkg *types.Package) string {
		for _, own := range []string{"go.etcd.io/bbolt", "holdfast"} {
			if pkg.Path() == own || strings.HasPrefix(pkg.Path(), own+"/") {
				return ""
			}
		}
		return pkg.Path()
	})
}
