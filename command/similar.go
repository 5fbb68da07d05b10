package command

import (
	"cmp"
	"slices"
	"strings"
)

// maxSimilar is the number of names that are suggested at most.
const maxSimilar = 3

// similar picks the names that somebody who wrote wrong may have meant, the
// nearest first.
func similar(wrong string, names []string) []string {
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

// distance is the number of bytes to insert, remove or replace to get b from a.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxDistanceBytes)], b[:min(len(b), maxDistanceBytes)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
