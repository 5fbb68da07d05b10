//go:build !unix

package holdfast_test

func tryNoPermission(r *errorRow) { r.Skip("permissions work differently there") }
