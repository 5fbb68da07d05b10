package soak

import "slices"

// Minimize leaves elements of list out while fails says that what remains still
// fails, and returns a list of which no element can be left out alone. fails is
// called with lists that it must not keep or change. list itself must fail.
// When fails gives up early, for lack of time, it returns false.
//
// (This is delta debugging: larger parts are tried before smaller ones.)
func Minimize[E any](list []E, fails func([]E) bool) []E {
	list = slices.Clone(list)
	if len(list) > 0 && fails(nil) {
		return nil
	}
	for size := (len(list) + 1) / 2; size > 0; {
		removed := false
		for from := 0; from < len(list); {
			to := min(from+size, len(list))
			without := slices.Concat(list[:from], list[to:])
			if fails(without) {
				list, removed = without, true
			} else {
				from = to
			}
		}
		switch {
		case size > 1:
			size = min((size+1)/2, max(1, len(list)))
		case !removed:
			size = 0
		}
	}
	return list
}
