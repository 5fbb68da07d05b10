package registry

import (
	"context"
	"net"
	"net/http"
)

// Dialing is a copy of a client that connects by a function.
func Dialing(c *Client, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Client {
	own := *c
	own.transport = &http.Transport{DialContext: dial}
	return &own
}
