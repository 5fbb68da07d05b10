// Package shared kills and stops the processes of a database that is read by several: its owner, its readers, and stock bbolt after
// the owner. What a reader says counts must be one state, whole.
package shared
