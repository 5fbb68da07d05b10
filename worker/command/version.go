package command

import "runtime/debug"

// version is the version of this module that was built in.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, dep := range info.Deps {
		if dep.Path == "holdfast/worker" {
			v = dep.Version
		}
	}
	if v == "" || v == "(devel)" {
		return "devel"
	}
	return v
}
