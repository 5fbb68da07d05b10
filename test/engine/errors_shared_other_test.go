//go:build !linux

package engine

// Databases are not shared there.
var sharedCases = map[string]func(*errorRow){
	"shared-not": notShared, "shared-gone": notShared, "shared-ended": notShared, "shared-crowded": notShared,
}

func notShared(r *errorRow) { r.Skip("sharing needs Linux") }
