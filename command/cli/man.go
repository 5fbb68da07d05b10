package cli

import (
	"bytes"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// This file makes manual pages of commands, for the command man of each program.

// ManPage writes the page of cmd, as man(1) reads it. version is that of the program.
func ManPage(cmd *cobra.Command, w io.Writer, version string) error {
	page := *cmd
	page.DisableAutoGenTag = true
	page.Long = strings.ReplaceAll(cmd.Long, "\n  ", "\n      ") // what is indented stays as it is
	var text bytes.Buffer
	if err := doc.GenMan(&page, manHeader(version), &text); err != nil {
		return err
	}
	_, err := w.Write(bytes.ReplaceAll(text.Bytes(), []byte("[=false]"), nil)) // how a flag without a value is written
	return err
}

// ManName is the name of the file with the page of cmd.
func ManName(cmd *cobra.Command) string {
	name := cmd.Name()
	for p := cmd.Parent(); p != nil; p = p.Parent() {
		name = p.Name() + "-" + name
	}
	return name + ".1"
}

// manHeader is that of all pages: it has the date of what was built, so that the same
// source gives the same pages.
func manHeader(version string) *doc.GenManHeader {
	date := time.Now()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				date = t
			}
		}
	}
	return &doc.GenManHeader{Section: "1", Source: "Holdfast " + version, Manual: "Holdfast", Date: &date}
}

// CompleteCommands offers the names of the commands below those that are given.
func CompleteCommands(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	at, left, err := cmd.Root().Find(args)
	if err == nil && len(left) == 0 {
		for _, child := range at.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name()+"\t"+child.Short)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
