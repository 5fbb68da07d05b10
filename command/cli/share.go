package cli

import (
	"os"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/internal/share"
)

// AddShareDir adds the flag that says where databases are shared.
func AddShareDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory in which programs share databases; by default as HOLDFAST_SHARE or HOLDFAST_STATS say here, or "+share.DefaultDirMeaning)
	_ = cmd.MarkFlagDirname("dir")
}

// ShareDir is where to look for the share of file, or with "" for all: given, or as the environment says.
func ShareDir(given, file string) (string, error) {
	if given != "" {
		return given, nil
	}
	for _, v := range holdfast.Environment() { // HOLDFAST_SHARE comes before HOLDFAST_STATS
		if v.Name != "HOLDFAST_SHARE" && v.Name != "HOLDFAST_STATS" {
			continue
		}
		switch value, err := v.For(os.Getenv(v.Name), file); {
		case err != nil:
			return "", Usagef("%w; or give --dir", err)
		case value == "on":
			return holdfast.DefaultShareDir(), nil
		case value != "" && value != "off":
			return value, nil
		}
	}
	return holdfast.DefaultShareDir(), nil
}
