//go:build !unix

package holdfast_test

import "holdfast"

func tryNoPermission(r *errorRow) { r.Skip("permissions work differently there") }

func longValue(r *errorRow, more int) []byte { return make([]byte, holdfast.MaxValueSize+more) }
