//go:build race

package blob

// underRace: a sync.Pool loses a quarter of what it is given, and so gives new encoders again and again.
const underRace = true
