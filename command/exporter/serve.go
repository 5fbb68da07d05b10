package exporter

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// limits bound what clients can take.
type limits struct {
	conns   int           // at once; others wait
	scrapes int           // at once; others are refused
	read    time.Duration // for a request
	write   time.Duration // from then on, until the answer is taken
	idle    time.Duration // of a connection without a request
	end     time.Duration // for scrapes that run when the command is asked to end
}

var usual = limits{conns: 64, scrapes: 4, read: 5 * time.Second, write: 30 * time.Second, idle: 2 * time.Minute, end: 2 * time.Second}

const maxHeader = 16 << 10 // bytes

// serve answers scrapes until ctx ends.
func serve(ctx context.Context, l net.Listener, c *collector, of limits) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: c.log, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: of.scrapes, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "The figures are at /metrics\n")
	})
	server := &http.Server{
		Handler: mux, ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: of.read, ReadTimeout: of.read, WriteTimeout: of.read + of.write, IdleTimeout: of.idle,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(netutil.LimitListener(l, of.conns)) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), of.end)
	defer cancel()
	err := server.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) { // a client that takes its time
		err = server.Close()
	}
	<-ended
	return err
}
