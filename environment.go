package holdfast

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Environment variables that Open reads. They are for programs that cannot be
// given options, as those that use Holdfast in the place of bbolt. docs/adopting.md
// lists them.
const (
	envSeals      = "HOLDFAST_SEALS"         // "off": as Options.NoSeals
	envStrict     = "HOLDFAST_STRICT_COMPAT" // "on": as Options.StrictCompat
	envAutoVacuum = "HOLDFAST_AUTO_VACUUM"   // "on": as Options.AutoVacuum
	envDurability = "HOLDFAST_DURABILITY"    // "full", "periodic" or "none": as Options.Durability
)

// withEnvironment is options, or DefaultOptions for nil, with what the environment
// says. A value that is not known is an error: it would be a wish without effect.
func withEnvironment(options *Options) (*Options, error) {
	if options == nil {
		options = DefaultOptions
	}
	changed := *options
	for _, v := range []struct {
		name   string
		values map[string]func()
	}{
		{envSeals, map[string]func(){"on": func() {}, "off": func() { changed.NoSeals = true }}},
		{envStrict, map[string]func(){"off": func() {}, "on": func() { changed.StrictCompat = true }}},
		{envAutoVacuum, map[string]func(){"off": func() {}, "on": func() {
			if changed.AutoVacuum == nil {
				changed.AutoVacuum = &AutoVacuum{}
			}
		}}},
		{envDurability, map[string]func(){
			"full":     func() { changed.Durability = Full },
			"periodic": func() { changed.Durability = Periodic },
			"none":     func() { changed.Durability = None },
		}},
	} {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		set, ok := v.values[value]
		if !ok {
			return nil, fmt.Errorf("the environment variable %s is %q; it can be %s", v.name, value, quoted(v.values))
		}
		set()
	}
	return &changed, nil
}

// quoted lists the keys of values for a message.
func quoted(values map[string]func()) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(values)) {
		words = append(words, strconv.Quote(word))
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
