// Package peers lets engines that are not relatives of bbolt take part where
// single keys are committed. Each is used as its documentation recommends for
// that, with its own defaults elsewhere. To compile them takes minutes, once.
package peers

import "holdfast/bench/suite"

// All are the engines of this package.
var All = []suite.CommitPeer{
	{Name: "Pebble", Open: openPebble},
	{Name: "SQLite WAL", Open: openSQLite},
}
