// Package api is the service of holdfastd, generated from worker.proto: messages, clients and the interfaces of handlers. It takes protoc,
// of Debian's package protobuf-compiler, to generate it anew.
package api

//go:generate bash generate
