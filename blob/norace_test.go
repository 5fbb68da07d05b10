//go:build !race

package blob

const underRace = false
