// Package duration reads durations as people write them, such as 90s, 36h and 7d, or a
// bare number of seconds. Flags of commands and variables of the environment are read with
// it, so they take the same.
package duration

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrSyntax says that a text is not a duration, and how one is written.
var ErrSyntax = errors.New("not a duration: give a number of seconds, or one with a unit such as 500ms, 90s, 5m or 7d")

const day = 24 * time.Hour

// Parse reads a duration: a number of seconds, or numbers with units, as time.ParseDuration does and d for days.
// One that is more than 0 and less than a nanosecond is none: 0 often stands for "for ever".
func Parse(s string) (time.Duration, error) {
	if strings.HasPrefix(s, "+") {
		return 0, ErrSyntax
	}
	given := s
	if n, err := strconv.ParseFloat(s, 64); err == nil && !strings.ContainsAny(s, "eExXpPnN_") {
		s = strconv.FormatFloat(n, 'f', -1, 64) + "s"
	}
	var days time.Duration
	if text, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day) {
			return 0, ErrSyntax
		}
		if days = time.Duration(n) * day; rest == "" {
			return days, nil
		}
		s = rest
	}
	d, err := time.ParseDuration(s)
	if err != nil || strings.HasPrefix(s, "+") || days > 0 && (d < 0 || d > math.MaxInt64-days) {
		return 0, ErrSyntax
	}
	if days+d == 0 && strings.ContainsAny(given, "123456789") {
		return 0, ErrSyntax
	}
	return days + d, nil
}
