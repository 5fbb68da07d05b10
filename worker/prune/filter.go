package prune

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"holdfast/worker/snapshot"
)

// Filter selects snapshots: those for which all of its conditions, divided by commas, hold.
//
//	namespace==build                the namespace is build
//	name!=base                   the name is another
//	name~=^step/                 a regular expression (package regexp) is in the name
//	labels.team==a               the label has that value
//	labels."a.b/c"               the label is there
//
// A value or a label's key that has a comma, a quote or an operator in it is written as a Go string. A label that
// is not there has the value "".
type Filter struct {
	text       string
	conditions []condition
}

type condition struct {
	field string // namespace, name, or labels
	label string // key
	op    string // "" is: it is there
	value string
	match *regexp.Regexp
}

// operators of conditions, the longer one first where one begins with another.
var operators = []string{"==", "!=", "~="}

// ParseFilter reads a filter.
func ParseFilter(text string) (Filter, error) {
	f := Filter{text: text}
	rest := text
	for {
		c, after, err := parseCondition(strings.TrimLeft(rest, " "))
		if err != nil {
			return Filter{}, fmt.Errorf("filter %q: %w", text, err)
		}
		f.conditions = append(f.conditions, c)
		if rest = strings.TrimLeft(after, " "); rest == "" {
			return f, nil
		}
		if rest[0] != ',' {
			return Filter{}, fmt.Errorf("filter %q: a comma is missing before %q", text, rest)
		}
		rest = rest[1:]
	}
}

// parseCondition reads one from the front of a text.
func parseCondition(text string) (c condition, rest string, err error) {
	end := strings.IndexAny(text, ".=!~, ")
	if end < 0 {
		end = len(text)
	}
	c.field, rest = text[:end], text[end:]
	switch c.field {
	case "namespace", "name":
	case "labels":
		var ok bool
		if rest, ok = strings.CutPrefix(rest, "."); !ok {
			return c, "", errors.New("labels is followed by a point and the key of a label")
		}
		if c.label, rest, err = parseWord(rest, "=!~, "); err != nil {
			return c, "", err
		}
		if c.label == "" {
			return c, "", errors.New("the key of a label is missing")
		}
	case "":
		return c, "", errors.New("a condition is missing")
	default:
		return c, "", fmt.Errorf("%q is not known; there are namespace, name and labels.KEY", c.field)
	}
	rest = strings.TrimLeft(rest, " ")
	for _, op := range operators {
		if after, ok := strings.CutPrefix(rest, op); ok {
			c.op = op
			if c.value, rest, err = parseWord(strings.TrimLeft(after, " "), ","); err != nil {
				return c, "", err
			}
			if op == "~=" {
				if c.match, err = regexp.Compile(c.value); err != nil {
					return c, "", fmt.Errorf("%q is not a regular expression: %s", c.value, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
				}
			}
			return c, rest, nil
		}
	}
	if c.label == "" {
		return c, "", fmt.Errorf("%s is followed by ==, != or ~=", c.field)
	}
	return c, rest, nil
}

// parseWord reads a Go string, or what comes before one of the bytes in ends.
func parseWord(text, ends string) (word, rest string, err error) {
	if text != "" && (text[0] == '"' || text[0] == '`') {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", fmt.Errorf("the quoted %s does not end", text)
		}
		word, err := strconv.Unquote(quoted)
		return word, text[len(quoted):], err
	}
	end := strings.IndexAny(text, ends)
	if end < 0 {
		end = len(text)
	}
	return strings.TrimRight(text[:end], " "), text[end:], nil
}

// Match tells whether it selects a snapshot.
func (f Filter) Match(c *snapshot.Candidate) bool {
	for i := range f.conditions {
		if !f.conditions[i].holds(c) {
			return false
		}
	}
	return true
}

func (c *condition) holds(s *snapshot.Candidate) bool {
	value := s.Name
	switch c.field {
	case "namespace":
		value = s.Namespace
	case "labels":
		value = s.Labels[c.label]
	}
	switch c.op {
	case "==":
		return value == c.value
	case "!=":
		return value != c.value
	case "~=":
		return c.match.MatchString(value)
	}
	return value != "" // a label never has an empty value
}

// String is the text that it was read from.
func (f Filter) String() string { return f.text }

// UnmarshalText is ParseFilter.
func (f *Filter) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFilter(string(text))
	return err
}

// MarshalText is String.
func (f Filter) MarshalText() ([]byte, error) { return []byte(f.text), nil }
