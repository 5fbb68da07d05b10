package cli

import (
	"cmp"
	"slices"
	"strings"
)

// maxSimilar is the number of names that are suggested at most.
const maxSimilar = 3

// Similar picks the names that may have been meant where wrong was written, the
// nearest first.
func Similar(wrong string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for _, name := range names {
		d := distance(strings.ToLower(wrong), strings.ToLower(name))
		inside := len(wrong) >= 3 && (strings.Contains(name, wrong) || len(name) >= 3 && strings.Contains(wrong, name))
		if d <= max(1, len(wrong)/3) || inside {
			found = append(found, candidate{name, d})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, c := range found[:min(len(found), maxSimilar)] {
		out = append(out, c.name)
	}
	return out
}

// maxDistanceBytes bounds the names that distance compares; longer ones are cut.
const maxDistanceBytes = 64

// distance is the number of bytes to insert, remove, replace, or swap with the next one, to get b
// from a.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxDistanceBytes)], b[:min(len(b), maxDistanceBytes)]
	var rows [3][]int // of i-2, i-1 and i bytes of a
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[2] {
		rows[2][j] = j
	}
	for i := range len(a) {
		rows[0], rows[1], rows[2] = rows[1], rows[2], rows[0]
		rows[2][0] = i + 1
		for j := range len(b) {
			next := min(rows[1][j], rows[1][j+1], rows[2][j]) + 1
			if a[i] == b[j] {
				next = rows[1][j]
			} else if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next = min(next, rows[0][j-1]+1)
			}
			rows[2][j+1] = next
		}
	}
	return rows[2][len(b)]
}
