// Package version says which version of bbolt this module stands in for.
package version

// Version is the version of bbolt whose interface this is.
var Version = "1.5.0+holdfast"
