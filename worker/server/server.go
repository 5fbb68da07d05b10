package server

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"holdfast/worker/content"
	"holdfast/worker/snapshot"
)

// Services are what a Server serves. What is nil is not served.
type Services struct {
	// Snapshots ought to be the namespace of a client (Store.ClientNamespace): nothing of it is pruned.
	Snapshots *snapshot.Namespace
	Content   *content.Store
}

// Limits on clients.
const (
	maxMessage = 16 << 20 // bytes, as containerd's own
	maxStreams = 1024     // of one connection
	idleTime   = 2 * time.Minute
	answerTime = 20 * time.Second // in which an idle client answers, or is gone
)

// A Server serves clients.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
}

// New makes a Server.
func New(services Services, log *slog.Logger) *Server {
	g := guard{log}
	s := &Server{health: health.NewServer(), grpc: grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: idleTime, Timeout: answerTime}),
		grpc.ChainUnaryInterceptor(g.unary), grpc.ChainStreamInterceptor(g.stream),
		grpc.WaitForHandlers(true),
	)}
	if services.Snapshots != nil {
		snapshotsapi.RegisterSnapshotsServer(s.grpc, &snapshots{namespace: services.Snapshots})
	}
	if services.Content != nil {
		contentapi.RegisterContentServer(s.grpc, &contents{store: services.Content})
	}
	healthapi.RegisterHealthServer(s.grpc, s.health)
	return s
}

// Serve serves the connections of a listener until Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop waits until the calls that run have ended, or ctx has: then it ends them.
func (s *Server) Stop(ctx context.Context) {
	s.health.Shutdown()
	defer context.AfterFunc(ctx, s.grpc.Stop)()
	s.grpc.GracefulStop()
}

// guard turns a panic of a call into its error, which the log gets with the stack: what others are doing goes on. All state of a
// call is in transactions, which end with it.
type guard struct{ log *slog.Logger }

func (g guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer g.caught(info.FullMethod, &err)
	resp, err = next(ctx, req)
	return resp, coded(err)
}

func (g guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer g.caught(info.FullMethod, &err)
	return coded(next(srv, ss))
}

func (g guard) caught(method string, err *error) {
	if r := recover(); r != nil {
		g.log.Error("a call has failed", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s: internal error: see the log of the daemon", method)
	}
}
