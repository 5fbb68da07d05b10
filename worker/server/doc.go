// Package server gives clients on a socket the services of containerd's proxy plugins: snapshots and content.
//
//	s := server.New(server.Services{Snapshots: names, Content: contents}, logger)
//	err := s.Serve(listener)
//
// In containerd's configuration:
//
//	[proxy_plugins.holdfast]
//	  type = "snapshot"
//	  address = "/run/holdfast/containerd.sock"
//
// Names, labels and digests are containerd's; its own namespaces and leases are above a proxy plugin, and do not reach it. A
// client that is slow, or gone, holds no transaction open and no other client up.
package server
