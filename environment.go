package holdfast

import (
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/internal/duration"
	"holdfast/internal/perfile"
	"holdfast/internal/share"
)

// Variable is an environment variable that Open reads. Variables are for programs that
// cannot be given options, as those that use Holdfast in the place of bbolt.
type Variable struct {
	Name    string
	Values  []string // that it can have, see also Canonical and For; a word in capitals stands for others: DURATION, DIRECTORY, PATH (absolute)
	Meaning string   // what it does, with the field of Options that does the same

	set func(o *Options, value string) error // value is one of Values, or stands for one
}

// Check is an error if the variable cannot have that value. The empty one is as good as
// none.
func (v *Variable) Check(value string) error {
	_, err := v.items(value)
	return err
}

// For is what a value of the variable says of the database at path, as one of Values, or in its place: "" if that is
// nothing. A value is one for all databases, or items separated by commas, each with a pattern of path.Match and = before
// it or none, such as "full,mounts.db=periodic,/var/lib/buildkit/*=none". A pattern with a slash is one of absolute paths,
// with or without symbolic links, and is for all below a directory that it matches; others are for names of files. The
// last item that matches counts.
func (v *Variable) For(value, path string) (string, error) {
	items, err := v.items(value)
	if err != nil {
		return "", err
	}
	value, _ = perfile.Of(items, path)
	return value, nil
}

// items are those of a value, each as one of Values.
func (v *Variable) items(text string) ([]perfile.Item, error) {
	items, err := perfile.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the environment variable %s: %w", v.Name, err)
	}
	for i := range items {
		value := v.Canonical(items[i].Value)
		free := slices.ContainsFunc(v.Values, isPlaceholder)
		if value != "" && (!free && !slices.Contains(v.Values, value) || v.set(&Options{}, value) != nil) {
			return nil, v.wrong(items[i])
		}
		items[i].Value = value
	}
	return items, nil
}

// Canonical is the one of Values that value is another word for: where a variable can be on or off,
// so are 1, true and yes, and 0, false and no, in letters of any case. Others it returns as they are.
func (v *Variable) Canonical(value string) string {
	if !slices.Contains(v.Values, "on") || !slices.Contains(v.Values, "off") {
		return value
	}
	switch word := strings.ToLower(value); word {
	case "1", "true", "yes", "on":
		return "on"
	case "0", "false", "no", "off":
		return "off"
	}
	return value
}

// wrong says that the variable cannot have the value of an item.
func (v *Variable) wrong(item perfile.Item) error {
	var words []string
	for _, word := range v.Values {
		if isPlaceholder(word) {
			words = append(words, placeholders[word])
		} else {
			words = append(words, strconv.Quote(word))
		}
	}
	last := len(words) - 1
	list := words[last]
	if last > 0 {
		list = strings.Join(words[:last], ", ") + " or " + list
	}
	if v.Canonical("1") == "on" {
		list += " (1 and 0, true and false, yes and no are the same)"
	}
	of := ""
	if item.Pattern != "" {
		of = fmt.Sprintf(" for %s", strconv.Quote(item.Pattern))
	}
	return fmt.Errorf("the environment variable %s is %q%s; it can be %s", v.Name, item.Value, of, list)
}

// placeholders are the words in Values that stand for others.
var placeholders = map[string]string{
	"DURATION":  `a duration above zero: a number of seconds, or one with a unit such as "100ms", "90s" or "5m"`,
	"DIRECTORY": "a directory",
	"PATH":      "the absolute path of a directory",
}

func isPlaceholder(word string) bool { return placeholders[word] != "" }

// Environment lists the variables that Open reads, in the order of their names.
func Environment() []Variable { return slices.Clone(variables) }

var variables = []Variable{
	{"HOLDFAST_AUTO_VACUUM", []string{"off", "on"},
		"the file becomes shorter by itself when much of it is free (Options.AutoVacuum)",
		func(o *Options, value string) error {
			if value == "on" && o.AutoVacuum == nil {
				o.AutoVacuum = &AutoVacuum{}
			}
			return nil
		}},
	{"HOLDFAST_DAMAGE", []string{"error", "panic"},
		"error: damage that Get or a Cursor meets is kept in Tx.Err, and is not a panic (Options.OnDamage)",
		func(o *Options, value string) error {
			if value == "error" {
				o.OnDamage = DamageIsError
			}
			return nil
		}},
	{"HOLDFAST_DURABILITY", []string{"full", "none", "periodic"},
		"when a commit returns, and what is left after a power failure (Options.Durability)",
		func(o *Options, value string) error {
			o.Durability = map[string]Durability{"full": Full, "periodic": Periodic, "none": None}[value]
			return nil
		}},
	{"HOLDFAST_DURABLE_BASE", []string{"off", "on"},
		"on: a writing transaction begins when all commits before it are on the disk (Options.DurableBase)",
		func(o *Options, value string) error {
			o.DurableBase = o.DurableBase || value == "on"
			return nil
		}},
	{"HOLDFAST_LOG", []string{"stderr"},
		"where messages go, if the program does not take them itself (Options.Logger)",
		func(o *Options, _ string) error {
			if o.Logger == nil {
				o.Logger = &DefaultLogger{Logger: log.New(os.Stderr, "holdfast: ", log.LstdFlags)}
			}
			return nil
		}},
	{"HOLDFAST_PERIODIC_DELAY", []string{"DURATION"},
		"how long a commit may wait for its flush with HOLDFAST_DURABILITY=periodic (Options.PeriodicDelay)",
		func(o *Options, value string) (err error) {
			o.PeriodicDelay, err = positive(value)
			return err
		}},
	{"HOLDFAST_SEALS", []string{"off", "on"},
		"off: checksums of pages are neither written nor verified (Options.NoSeals)",
		func(o *Options, value string) error {
			o.NoSeals = o.NoSeals || value == "off"
			return nil
		}},
	{"HOLDFAST_SETTLE_DELAY", []string{"off", "DURATION"},
		"how long after the last commit bbolt finds it; off: after Sync and Close only (Options.SettleDelay)",
		func(o *Options, value string) (err error) {
			if value == "off" {
				o.SettleDelay = -1
				return nil
			}
			o.SettleDelay, err = positive(value)
			return err
		}},
	{"HOLDFAST_SHARE", []string{"off", "on", "PATH"},
		"other processes can read the open database, through a file in a directory; on: " + share.DefaultDirMeaning + " (Options.Share)",
		func(o *Options, value string) error {
			if o.Share != "" {
				return nil
			}
			o.Share = value
			_, err := o.shareDir()
			return err
		}},
	{"HOLDFAST_STATS", []string{"DIRECTORY"},
		"as HOLDFAST_SHARE with a directory, which goes before it (Options.StatsDir)",
		func(o *Options, value string) error {
			if o.StatsDir == "" {
				o.StatsDir = value
			}
			return nil
		}},
	{"HOLDFAST_STRICT_COMPAT", []string{"off", "on"},
		"on: two flushes for each commit, and bbolt finds it also after a crash (Options.StrictCompat)",
		func(o *Options, value string) error {
			o.StrictCompat = o.StrictCompat || value == "on"
			return nil
		}},
}

// positive reads a duration above zero, which stands for a default.
func positive(value string) (time.Duration, error) {
	d, err := duration.Parse(value)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%s is not above zero", value)
	}
	return d, err
}

// withEnvironment is options, or DefaultOptions for nil, with what the environment
// says of the database at path. A value that is not known is an error: it would be a wish without effect.
func withEnvironment(options *Options, path string) (*Options, error) {
	if options == nil {
		options = DefaultOptions
	}
	changed := *options
	for _, v := range Environment() {
		value, err := v.For(os.Getenv(v.Name), path)
		if err == nil && value != "" {
			err = v.set(&changed, value)
		}
		if err != nil {
			return nil, err
		}
	}
	return &changed, nil
}
