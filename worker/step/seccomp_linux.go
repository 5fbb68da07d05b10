package step

import (
	"fmt"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// This file says which system calls a command may make. filter_linux.go makes a program for the kernel of it; the
// runtime runc gets it as it is.

// capabilityNames are the names of capabilities.
func capabilityNames() []string {
	names := make([]string, len(capabilities))
	for i, c := range capabilities {
		names[i] = c.name
	}
	return names
}

// profile returns what a command with a bounding set of capabilities may call: the default profile of Docker for them,
// for the machine's own architecture alone. The others that the kernel could execute (i386 and x32 on amd64) reach
// the same kernel by other numbers; programs built for them are not run.
func profile(caps []string) (*specs.LinuxSeccomp, error) {
	spec := specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps}}}
	p, err := seccomp.GetDefaultProfile(&spec)
	if err != nil {
		return nil, fmt.Errorf("the profile of system calls: %w", err)
	}
	if len(p.Architectures) > 1 {
		p.Architectures = p.Architectures[:1] // its own comes first
	}
	return p, nil
}
