package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast/command/cli"
	"holdfast/worker/step"
)

// What may help a step that has failed.

// notThere is the exit code of a command that is not there.
const notThere = 127

// nextOf says what to do about a failure, "" if that is not known.
func nextOf(s *step.Step, f *step.Failure) string {
	output := strings.ToLower(string(f.Output))
	switch {
	case errors.Is(f, step.ErrTime):
		return fmt.Sprintf("--timeout allows %s: allow more, or leave it out", cli.DurationText(s.Limits.Time))
	case errors.Is(f, step.ErrMemory):
		return fmt.Sprintf("--memory allows %s: allow more, or leave it out", cli.Size(s.Limits.Memory))
	case errors.Is(f, step.ErrInodes):
		return fmt.Sprintf("--disk allows %s and the inodes (files and directories) that go with it: allow more, or leave it out", cli.Size(s.Limits.Disk))
	case errors.Is(f, step.ErrDisk):
		return fmt.Sprintf("--disk allows %s: allow more, or leave it out", cli.Size(s.Limits.Disk))
	case errors.Is(f, step.ErrNoUser):
		return "--user takes numbers, too, such as 1000:1000"
	case errors.Is(f, step.ErrStart) && f.Code == notThere:
		return nextOfMissing(s)
	case s.Network == step.NetworkNone && failsToResolve(output):
		return "it seems to have looked up a name, and has no network: --network host gives it that of this machine"
	case strings.Contains(output, "no space left on device"):
		return "the disk seems to be full: holdfastd df says what is free, files included; --reserve SIZE has room made before a step begins"
	}
	return ""
}

// nextOfMissing is for a command that is not there.
func nextOfMissing(s *step.Step) string {
	name := s.Command[0]
	switch {
	case len(s.Command) == 1 && strings.ContainsAny(name, " \t\n"):
		return "arguments are words of their own, and the command line of a shell is one after sh -c"
	case strings.Contains(name, "/"):
		return "the base has no such file, or not the interpreter or dynamic loader that it names"
	}
	i := slices.IndexFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") })
	if i < 0 {
		return ""
	}
	return "the base has it in none of " + strings.TrimPrefix(s.Env[i], "PATH=") + "; give its path, or --env PATH=..."
}

// resolverFailures is what libraries and programs say when a name cannot be looked up, in small letters.
var resolverFailures = []string{
	"temporary failure in name resolution", "name or service not known", "name does not resolve", "nodename nor servname provided", // libraries of C
	"temporary failure resolving", "could not resolve", "unable to resolve host", "bad address '", // apt, curl and git, wget, busybox
	"no servers could be reached",                                                                                    // nslookup and dig
	"getaddrinfo enotfound", "getaddrinfo eai_again", "failed to lookup address information", "unknownhostexception", // node, Rust, Java
}

// failsToResolve tells whether the output of a command, in small letters, looks as if it could not look up a name.
func failsToResolve(output string) bool {
	for line := range strings.Lines(output) {
		// As programs in Go say it.
		if _, rest, ok := strings.Cut(line, "lookup "); ok && (strings.Contains(rest, "no such host") || strings.Contains(rest, "connection refused") || strings.Contains(rest, "network is unreachable")) {
			return true
		}
	}
	return slices.ContainsFunc(resolverFailures, func(text string) bool { return strings.Contains(output, text) })
}
