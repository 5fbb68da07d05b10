package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"holdfast/worker/api"
	"holdfast/worker/page"
)

// Limits on clients.
const (
	maxMessage  = 4 << 20         // bytes
	maxHeader   = 64 << 10        // bytes
	maxRequests = 1024            // at once; others are refused
	maxConns    = 2 * maxRequests // of a listener; others wait
	idleTime    = 2 * time.Minute // of a connection without a request
)

// patience is how long a client may take.
type patience struct {
	read  time.Duration // for a request, and for each part of an import
	write time.Duration // to take a part of what is sent
}

var ofAll = patience{30 * time.Second, 30 * time.Second}

// Access is who may use a Handler.
type Access struct {
	// Token must come with each request but those for the page itself and for /healthz, as "Authorization: Bearer TOKEN".
	// "": none is asked for, as on a socket of which the mode says who may.
	Token string
}

// Handler serves the service by Connect, gRPC and gRPC-Web; /metrics, /debug/pprof/, /healthz; and the page.
func (s *Service) Handler(access Access) http.Handler {
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, r any) error {
			s.log.Error("a call has failed", "method", spec.Procedure, "panic", r, "stack", string(debug.Stack()))
			return connect.NewError(connect.CodeInternal, fmt.Errorf("%s: internal error: see the log of the daemon", spec.Procedure))
		}),
	}
	calls := http.NewServeMux()
	calls.Handle(api.NewStepsHandler(steps{s}, options...))
	calls.Handle(api.NewSnapshotsHandler(snapshots{s}, options...))
	calls.Handle(api.NewImagesHandler(images{s}, options...))
	calls.Handle(api.NewStorageHandler(storage{s}, options...))
	calls.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError), MaxRequestsInFlight: 4}))
	calls.Handle("/debug/pprof/", s.profiles())

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	static := page.Handler()
	mux.Handle("GET /{$}", static)
	mux.Handle("GET /page/", static)
	mux.Handle("/", authorized(access.Token, limited(maxRequests, ofAll.whole(calls)))) // who has no token takes neither room nor memory
	return s.counted(ofAll.bound(mux))
}

// profiles serves profiles of the daemon. Those that take some time end with the daemon.
func (s *Service) profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound) // it has no use, and the command line may say too much
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, done := s.watching(r.Context())
		defer done()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Limit is a listener with a limit on connections, each of which takes a descriptor that steps and the store can need.
func Limit(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConns) }

// NewServer makes a server for a Handler, with the limits on clients.
func NewServer(h http.Handler, log *slog.Logger) *http.Server { return ofAll.server(h, log) }

func (p patience) server(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC
	return &http.Server{Handler: h, Protocols: protocols, ReadHeaderTimeout: p.read, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		HTTP2:    &http.HTTP2Config{WriteByteTimeout: p.write}, // the deadline of a stream does not end a write to its connection
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// healthz says whether the store answers.
func (s *Service) healthz(w http.ResponseWriter, r *http.Request) {
	if _, err := s.store.Totals(r.Context()); err != nil {
		http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// authorized asks for a token.
func authorized(token string, next http.Handler) http.Handler {
	if token == "" {
		return next
	}
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong: holdfastd page prints an address with it", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limited refuses requests that are too many at once.
func limited(most int, next http.Handler) http.Handler {
	slots := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			refuse(w, r, connect.NewError(connect.CodeResourceExhausted, errors.New("too many requests at once")))
		}
	})
}

// refuse answers a request as its protocol has errors.
func refuse(w http.ResponseWriter, r *http.Request, err *connect.Error) {
	if errs := connect.NewErrorWriter(); errs.IsSupported(r) {
		_ = errs.Write(w, r, err)
		return
	}
	http.Error(w, err.Message(), http.StatusServiceUnavailable)
}

// bound bounds what a client that is slow, or gone without a word, holds up: each write has its time, and so has what the server does by
// itself before and after the call, such as sending the end of the answer and reading what is left of the request.
func (p patience) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc, body := http.NewResponseController(w), r.Body != nil && r.Body != http.NoBody
		reading := func() {
			if body {
				_ = rc.SetReadDeadline(time.Now().Add(p.read))
			}
		}
		_ = rc.SetWriteDeadline(time.Time{}) // that of the last request of the connection
		reading()
		defer func() {
			reading()
			_ = rc.SetWriteDeadline(time.Now().Add(p.write))
		}()
		next.ServeHTTP(&timedWriter{w, rc, p.write}, r)
	})
}

// whole has all of a request read, within the time that bound gives, before its call begins; but for an import.
func (p patience) whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.URL.Path == api.ImagesImportProcedure {
			r.Body = &timedBody{r.Body, rc, p.read}
		} else if r.Body != nil && r.Body != http.NoBody {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage+1024))
			if err != nil {
				w.Header().Set("Connection", "close")
				http.Error(w, "the request cannot be read, or is too large", http.StatusRequestEntityTooLarge)
				return
			}
			_ = rc.SetReadDeadline(time.Time{}) // its end would end the call
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a body each part of which has its time.
type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	time time.Duration
}

func (b *timedBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.time))
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Close implements io.Closer. The server reads what a client still sends, to use the connection again.
func (b *timedBody) Close() error {
	_ = b.rc.SetReadDeadline(time.Now().Add(b.time))
	return b.ReadCloser.Close()
}

// timedWriter is a response each part of which has its time. Between writes there is no deadline: its end would end the stream.
type timedWriter struct {
	http.ResponseWriter
	rc   *http.ResponseController
	time time.Duration
}

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *timedWriter) Write(p []byte) (int, error) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.time))
	n, err := w.ResponseWriter.Write(p)
	_ = w.rc.SetWriteDeadline(time.Time{})
	return n, err
}

// Flush implements http.Flusher.
func (w *timedWriter) Flush() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.time))
	_ = w.rc.Flush()
	_ = w.rc.SetWriteDeadline(time.Time{})
}
