package step

import "holdfast/worker/internal/seccomp"

// capabilityNames are the names of capabilities.
func capabilityNames() []string {
	names := make([]string, len(capabilities))
	for i, c := range capabilities {
		names[i] = c.name
	}
	return names
}

// stepFilter is the filter of all steps of Native. runc gets the profile, and compiles its own.
func stepFilter() (seccomp.Filter, error) {
	p, err := seccomp.Profile(capabilityNames())
	if err != nil {
		return nil, err
	}
	return seccomp.Compile(p)
}
