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

// ManCommand is the command man of a program; example is another command of it. run does what --dir says, whose value
// is in dir: "" is that the page of the command that the arguments name is to be printed.
func ManCommand(program, example string, dir *string, run func(*cobra.Command, []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: "man [COMMAND...]", Short: "Print a manual page, or write them all", RunE: run, ValidArgsFunction: CompleteCommands,
		Long: "Print the manual page of " + program + " or of one of its commands, as man(1) reads it:\n\n" +
			"  " + program + " man " + example + " | man -l -\n\n" +
			"With --dir the pages of all commands are written into that directory, which is made if\n" +
			"it is not there: " + program + ".1, " + program + "-" + example + ".1 and so on. Pages that are there already\n" +
			"are replaced.\n\nThey say what --help says.",
	}
	cmd.Flags().StringVar(dir, "dir", "", "directory into which the pages of all commands are written")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}

// PrintManPage writes the page of the command that args name, or says what is wrong with them, or with --json.
func PrintManPage(root *cobra.Command, args []string, json bool, w io.Writer, version string) error {
	if json {
		return Usagef("a manual page has no JSON; --json is for --dir")
	}
	cmd, left, err := root.Find(args)
	if err != nil || len(left) > 0 {
		return Usagef("no command %s; %s --help lists them", strings.Join(args, " "), root.Name())
	}
	return ManPage(cmd, w, version)
}

// EachManPage calls write for cmd and the commands below it, those first, with the names of their files, until it
// returns an error. args are those of the command man: none.
func EachManPage(cmd *cobra.Command, args []string, write func(cmd *cobra.Command, name string) error) error {
	if len(args) > 0 {
		return Usagef("--dir writes the pages of all commands; leave %v out", args)
	}
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := EachManPage(child, nil, write); err != nil {
			return err
		}
	}
	return write(cmd, ManName(cmd))
}

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
