package prune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"holdfast/worker/internal/patient"
	"holdfast/worker/snapshot"
)

// LabelKeep is a label: only policies with All remove a snapshot that has it, with any value. It
// is for what is not made again easily, such as an imported base.
const LabelKeep = "holdfast.keep"

// Config is what there is to configure. The names of its fields are BuildKit's, where that has them.
type Config struct {
	// MaxMounts is how many mounts there may be after a run: idle ones are unmounted; 0: any number.
	MaxMounts Count `toml:"maxMounts,omitzero"`

	// Policies are followed one after the other, each with what the one before has left.
	Policies []Policy `toml:"policy"`
}

// Policy says which snapshots go, and when. It *selects* those that one of its filters matches and that were not
// used for KeepDuration; of these the one that was not used for the longest time goes first, until the bounds
// are kept. Without any of the three bounds MaxUsedSpace, MinFreeSpace and MaxSnapshots, all that it selects go.
//
// What is leased, pinned, a client's, or the parent of something that stays is never removed.
type Policy struct {
	Filters       []Filter `toml:"filters,omitempty"`       // none: all snapshots
	All           bool     `toml:"all,omitempty"`           // select those with LabelKeep too
	KeepDuration  Duration `toml:"keepDuration,omitzero"`   // since the last use
	ReservedSpace Size     `toml:"reservedSpace,omitempty"` // while no more than this is used, nothing goes
	MaxUsedSpace  Size     `toml:"maxUsedSpace,omitempty"`  // at most this is used
	MinFreeSpace  Size     `toml:"minFreeSpace,omitempty"`  // at least this is free on the file system, and of its inodes (disk.FS.Share)
	MaxSnapshots  Count    `toml:"maxSnapshots,omitzero"`   // of all kinds and namespaces
}

// String is the policy on one line, in the words of its TOML.
func (p Policy) String() string {
	var list []string
	add := func(name string, value any, given bool) {
		if given {
			list = append(list, fmt.Sprintf("%s = %v", name, value))
		}
	}
	add("filters", p.Filters, len(p.Filters) > 0)
	add("all", p.All, p.All)
	add("keepDuration", p.KeepDuration, p.KeepDuration != 0)
	add("reservedSpace", p.ReservedSpace, p.ReservedSpace != Size{})
	add("maxUsedSpace", p.MaxUsedSpace, p.MaxUsedSpace != Size{})
	add("minFreeSpace", p.MinFreeSpace, p.MinFreeSpace != Size{})
	add("maxSnapshots", p.MaxSnapshots, p.MaxSnapshots != 0)
	return strings.Join(list, ", ")
}

// bounded tells whether it has bounds.
func (p *Policy) bounded() bool {
	return !p.MaxUsedSpace.IsZero() || !p.MinFreeSpace.IsZero() || p.MaxSnapshots > 0
}

// matches tells whether it selects a snapshot when that is old enough.
func (p *Policy) matches(c *snapshot.Candidate) bool {
	if _, keep := c.Labels[LabelKeep]; keep && !p.All {
		return false
	}
	for _, f := range p.Filters {
		if f.Match(c) {
			return true
		}
	}
	return len(p.Filters) == 0
}

// young tells whether a snapshot was used too recently. A last use in the future counts as now.
func (p *Policy) young(c *snapshot.Candidate, now time.Time) bool {
	return max(now.Sub(c.LastUsed), 0) < time.Duration(p.KeepDuration)
}

// ErrConfig: a text is not a configuration. Its text names the field, and the line where that is known.
var ErrConfig = errors.New("bad configuration of pruning")

// Load reads a configuration from a file, until ctx ends: it may be a pipe. Errors: ErrConfig, and those of os.Open.
func Load(ctx context.Context, path string) (Config, error) {
	f, err := patient.Open(ctx, path)
	if err != nil {
		return Config{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(patient.NewReader(ctx, f), maxText+1))
	if err != nil {
		return Config{}, err
	}
	c, err := Parse(string(text))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

const (
	maxText     = 1 << 20 // bytes of a configuration
	maxPolicies = 100
)

// Parse reads a configuration in TOML. Fields that do not exist, and values that make no sense, are ErrConfig.
func Parse(text string) (Config, error) {
	if len(text) > maxText {
		return Config{}, fmt.Errorf("%w: more than %d bytes", ErrConfig, maxText)
	}
	var c Config
	meta, err := toml.Decode(text, &c)
	if err != nil {
		return Config{}, locate(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		names := make([]string, len(unknown))
		for i, k := range unknown {
			names[i] = k.String()
		}
		return Config{}, fmt.Errorf("%w: unknown: %s", ErrConfig, strings.Join(names, ", "))
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// locate puts line and field in front of an error.
func locate(err error) error {
	var p toml.ParseError
	if !errors.As(err, &p) {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	at := fmt.Sprintf("line %d", p.Position.Line)
	if p.LastKey != "" {
		at += ", " + p.LastKey
	}
	text := p.Message
	if cause := errors.Unwrap(err); text == "" && cause != nil {
		text = cause.Error()
	}
	return fmt.Errorf("%w: %s: %s", ErrConfig, at, text)
}

// check looks for what makes no sense, and would do harm.
func (c *Config) check() error {
	if len(c.Policies) > maxPolicies {
		return fmt.Errorf("%d policies; %d are possible", len(c.Policies), maxPolicies)
	}
	for i := range c.Policies {
		if err := c.Policies[i].check(); err != nil {
			return fmt.Errorf("policy %d: %w", i+1, err)
		}
	}
	return nil
}

func (p *Policy) check() error {
	if p.KeepDuration < 0 || p.MaxSnapshots < 0 {
		return errors.New("keepDuration or maxSnapshots is negative")
	}
	for _, s := range []struct {
		name string
		size Size
	}{{"reservedSpace", p.ReservedSpace}, {"maxUsedSpace", p.MaxUsedSpace}, {"minFreeSpace", p.MinFreeSpace}} {
		if s.size.Bytes < 0 || s.size.Percent < 0 || s.size.Percent > 100 {
			return fmt.Errorf("%s is %d bytes, %d%%", s.name, s.size.Bytes, s.size.Percent)
		}
	}
	r, m, f := p.ReservedSpace, p.MaxUsedSpace, p.MinFreeSpace
	switch {
	case !m.IsZero() && r.Percent > 0 == (m.Percent > 0) && (r.Percent > m.Percent || r.Bytes > m.Bytes):
		return fmt.Errorf("reservedSpace, %v, is more than maxUsedSpace, %v", r, m)
	case r.Percent+f.Percent > 100:
		return fmt.Errorf("reservedSpace, %v, and minFreeSpace, %v, are more than there is", r, f)
	case r.Percent == 100:
		return errors.New("reservedSpace of 100% never lets anything go")
	case f.Percent == 100:
		return errors.New("minFreeSpace of 100% is never reached: everything would go")
	case !p.bounded() && p.KeepDuration == 0 && r.IsZero() && len(p.Filters) == 0 && !p.All:
		return errors.New("it has no bound and would remove everything; say all = true if it is to")
	}
	return nil
}
