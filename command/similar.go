package command

import "holdfast/command/cli"

// similar picks the names that may have been meant where wrong was written, the nearest first.
func similar(wrong string, names []string) []string { return cli.Similar(wrong, names) }
