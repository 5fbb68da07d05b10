//go:build !unix

package engine

import "holdfast"

// A mapped file cannot be shortened there.
var shortenedCases = map[string]func(*errorRow){
	"shortened-read":   func(r *errorRow) { r.Skip("a mapped file cannot be shortened there") },
	"shortened-commit": func(r *errorRow) { r.Skip("a mapped file cannot be shortened there") },
}

func tryNoPermission(r *errorRow) { r.Skip("permissions work differently there") }

func longValue(r *errorRow, more int) []byte { return make([]byte, holdfast.MaxValueSize+more) }
