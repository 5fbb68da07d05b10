// Package idmap has user namespaces that hold nothing but a map of ids, and the means to write to file
// systems as the root of one.
package idmap

// Map maps the ids from 0 to Count of a user namespace to those from Base on outside of it. The zero Map maps nothing.
type Map struct{ Base, Count uint32 }

// Set tells whether the map has any ids.
func (m Map) Set() bool { return m.Count > 0 }

// Has tells whether an id of the namespace is mapped.
func (m Map) Has(id uint32) bool { return id < m.Count }
