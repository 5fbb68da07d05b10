// Package bbolt is Holdfast under bbolt's name: a program that imports
// go.etcd.io/bbolt runs on Holdfast when its go.mod replaces that module by
// this one.
//
// All types are aliases of those of package holdfast, whose documentation is
// the one to read, and all functions forward to it. The interface is that of
// bbolt v1.5.0.
package bbolt
