package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"holdfast/worker/image"
)

// Bounds on what servers send and ask for.
const (
	maxRedirects = 10
	maxDocument  = 8 << 20 // as of package image
	leastBytes   = 4 << 10 // that a transfer has to bring in the time of Client.Stall
)

// anyLength is the key of a context in which bodies may have any length: who reads them has a bound.
type anyLength struct{}

// newTransport makes the transport below all others.
func newTransport(stall time.Duration) http.RoundTripper {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: min(stall, 30*time.Second), KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // what is transferred has a digest
		MaxIdleConnsPerHost:    2 * DefaultJobs,
		MaxResponseHeaderBytes: 1 << 20,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    min(stall, 10*time.Second),
	}
}

// guard is a transport that gives no server more than it needs: no endless redirects, nothing in the clear, no
// waiting without progress, and no documents without a bound.
type guard struct {
	next  http.RoundTripper
	plain bool // without TLS, too
	stall time.Duration
	sent  *atomic.Int64   // counts bytes of requests; nil: nothing does
	also  context.Context // ends requests, besides their own; nil: nothing does
}

// RoundTrip does a request.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !g.plain {
		return nil, fmt.Errorf("%s: %w", r.URL.Host, ErrPlainHTTP)
	}
	for n, from := 0, r.Response; from != nil && from.Request != nil; n, from = n+1, from.Request.Response {
		if n >= maxRedirects {
			return nil, fmt.Errorf("%s: more than %d redirects", r.URL.Host, maxRedirects)
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	if g.also != nil {
		context.AfterFunc(g.also, func() { cancel(context.Cause(g.also)) })
	}
	w := &watch{ctx: ctx, cancel: cancel, stall: g.stall, host: r.URL.Host}
	w.timer = time.AfterFunc(g.stall, w.look)
	out := r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = &watched{ReadCloser: r.Body, watch: w, count: g.sent}
	}
	resp, err := g.next.RoundTrip(out)
	if err != nil {
		return nil, w.end(err)
	}
	w.seen.Store(leastBytes) // that it answers is progress
	body := &watched{ReadCloser: resp.Body, watch: w, last: true, left: -1}
	if r.Context().Value(anyLength{}) == nil {
		body.left = maxDocument
	}
	resp.Body = body
	return resp, nil
}

// watch ends a request that makes no progress.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	host   string
	seen   atomic.Int64 // bytes since it last looked
}

// look looks whether there was progress since it last did.
func (w *watch) look() {
	if w.seen.Swap(0) < leastBytes {
		w.cancel(fmt.Errorf("%s: %w for %s", w.host, ErrStalled, w.stall))
		return
	}
	w.timer.Reset(w.stall)
}

// end ends the watch, and makes of an error that of the watch, if that is why.
func (w *watch) end(err error) error {
	w.timer.Stop()
	err = w.why(err)
	w.cancel(nil)
	return err
}

func (w *watch) why(err error) error {
	if cause := context.Cause(w.ctx); err != nil && errors.Is(cause, ErrStalled) {
		return cause
	}
	return err
}

// watched is a body that tells of progress.
type watched struct {
	io.ReadCloser
	watch *watch
	last  bool  // the watch ends with it
	left  int64 // bytes that it may have; -1: any number
	count *atomic.Int64
}

// Read reads.
func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watch.seen.Add(int64(n))
	if b.count != nil {
		b.count.Add(int64(n))
	}
	if b.last && b.left >= 0 {
		if b.left -= int64(n); b.left < 0 {
			return 0, fmt.Errorf("%s: %w: a document of more than %d bytes", b.watch.host, image.ErrLimit, maxDocument)
		}
	}
	if err != nil && err != io.EOF {
		err = b.watch.why(err)
	}
	return n, err
}

// Close closes the body.
func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	if b.last {
		_ = b.watch.end(nil)
	}
	return err
}
