//go:build next

package suite

import "holdfast"

// nextGroups need what Holdfast is about to get.
var nextGroups = []Group{
	{"relaxed", Relaxed},
	{"seals", Seals},
}

// LeftOut says which groups this program does not have.
const LeftOut = ""

// nextEngines take part in durable commits.
var nextEngines = []Engine{
	holdfastWith("holdfast StrictCompat", holdfast.Options{StrictCompat: true}),
}

// holdfastWith is Holdfast with these options.
func holdfastWith(name string, o holdfast.Options) Engine {
	return Engine{name, func(path string, noSync bool) (Store, error) {
		own := o
		own.NoSync = noSync
		return openHoldfast(path, &own)
	}}
}
