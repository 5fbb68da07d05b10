package suite

import "holdfast"

// modeEngines take part in durable commits.
var modeEngines = []Engine{
	holdfastWith("holdfast DurableBase", holdfast.Options{DurableBase: true}),
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
