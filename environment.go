package holdfast

import (
	"fmt"
	"os"
)

// Environment variables that Open reads. They are for programs that cannot be
// given options, as those that use Holdfast in the place of bbolt. docs/adopting.md
// lists them.
const envSeals = "HOLDFAST_SEALS" // "off": as Options.NoSeals

// withEnvironment is options, or DefaultOptions for nil, with what the environment
// says. A value that is not known is an error: it would be a wish without effect.
func withEnvironment(options *Options) (*Options, error) {
	if options == nil {
		options = DefaultOptions
	}
	switch v := os.Getenv(envSeals); v {
	case "", "on":
	case "off":
		changed := *options
		changed.NoSeals = true
		options = &changed
	default:
		return nil, fmt.Errorf("the environment variable %s is %q; it can be \"on\" or \"off\"", envSeals, v)
	}
	return options, nil
}
