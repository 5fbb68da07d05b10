package server

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A call that panics fails, and the log has where; the daemon goes on.
func TestPanicOfACall(t *testing.T) {
	var log bytes.Buffer
	g := guard{slog.New(slog.NewTextHandler(&log, nil))}
	_, err := g.unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/unary"}, func(context.Context, any) (any, error) { panic("first") })
	if status.Code(err) != codes.Internal {
		t.Errorf("a unary call: %v", err)
	}
	err = g.stream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/stream"}, func(any, grpc.ServerStream) error { panic("second") })
	if status.Code(err) != codes.Internal {
		t.Errorf("a stream: %v", err)
	}
	for _, want := range []string{"/unary", "first", "/stream", "second", "guard_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log.String())
		}
	}
}
