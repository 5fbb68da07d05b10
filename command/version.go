package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
)

// bboltVersion is the version of bbolt whose interface and file this is.
const bboltVersion = "1.5.0"

// version is the version of Holdfast that was built in.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, dep := range info.Deps {
		if dep.Path == modulePath {
			v = dep.Version
		}
	}
	if v == "" || v == "(devel)" {
		return "devel"
	}
	return v
}

// modulePath is the module that this package belongs to.
const modulePath = "holdfast/command"

type versionReport struct {
	Version      string `json:"version"`
	BboltVersion string `json:"bbolt_version"`
	GoVersion    string `json:"go_version"`
	OS           string `json:"os"`
	Arch         string `json:"arch"`
}

func newVersion(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE:  a.Action(runVersion),
	}
}

func runVersion(c *cli.Call) error {
	r := versionReport{version(), bboltVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	switch {
	case c.JSON:
		return c.PrintJSON(r)
	case c.Stock:
		fmt.Fprintf(c.Out, "bbolt Version: %s\nGo Version: %s\nGo OS/Arch: %s/%s\n", r.BboltVersion, r.GoVersion, r.OS, r.Arch)
	default:
		cli.Rows(c.Out,
			[2]string{"Holdfast", r.Version},
			[2]string{"Interface and file of bbolt", r.BboltVersion},
			[2]string{"Go", r.GoVersion},
			[2]string{"System", r.OS + "/" + r.Arch})
	}
	return nil
}
