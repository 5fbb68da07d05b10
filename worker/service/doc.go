// Package service implements the service of package api on an open store: steps, snapshots, images, and the store as a
// whole. Handler serves it, with figures for Prometheus, profiles, and the page of holdfast/worker/page.
//
// All methods are safe for concurrent use. What belongs to a call ends with it; output for a client that does not read is
// bounded.
package service
