// Package stores opens embedded stores for package age: bbolt and Holdfast, with
// the buckets that the programs made, and others, which have none, with the path
// of the bucket before the key, and a delete of all that begins with the path
// where a program removes a bucket. Each is used as its documentation recommends,
// with its own defaults elsewhere.
package stores
