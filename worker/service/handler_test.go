package service

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"holdfast/worker/api"
)

// serve serves a handler on a loopback address.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// empty is a Service without a store, for what needs none.
func empty(t *testing.T) *Service {
	s := &Service{log: slog.New(slog.DiscardHandler)}
	s.ctx, s.end = context.WithCancel(t.Context())
	return s
}

// all wraps a handler as Handler wraps calls.
func (p patience) all(next http.Handler) http.Handler { return p.bound(p.whole(next)) }

func dial(t *testing.T, address, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSlowReader: the call of a client that does not read what is sent ends.
func TestSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	address := serve(t, patience{time.Minute, 50 * time.Millisecond}.bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 1<<20)
		var err error
		for err == nil {
			_, err = w.Write(part)
			w.(http.Flusher).Flush()
		}
		ended <- err
	})))
	dial(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-ended
}

// TestIdleStream: a stream on which nothing is sent for longer than a client may take goes on.
func TestIdleStream(t *testing.T) {
	address := serve(t, patience{time.Millisecond, time.Millisecond}.all(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, text := range []string{"one ", "two"} {
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})))
	resp, err := http.Post("http://"+address, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "one two" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSlowWriter: a client that does not send its request is refused, as is one that sends too much.
func TestSlowWriter(t *testing.T) {
	address := serve(t, patience{50 * time.Millisecond, time.Minute}.all(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, len(b))
	})))
	for request, code := range map[string]int{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfive.":                                                  413,
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfive.":                                                   200,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfive.\r\n":                                 413,
		"POST " + api.ImagesImportProcedure + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfive.\r\n": 400,
	} {
		resp, err := http.ReadResponse(bufio.NewReader(dial(t, address, request)), nil)
		if err != nil || resp.StatusCode != code {
			t.Errorf("%q: %v, %v; want %d", request, resp, err, code)
		}
	}
	resp, err := http.Post("http://"+address, "text/plain", bytes.NewReader(make([]byte, maxMessage+2048)))
	if err != nil || resp.StatusCode != 413 {
		t.Errorf("too much: %v, %v", resp, err)
	}
}

// TestTokenFirst: bodies were read into memory before the token was looked at, and took the places of requests: 150 clients without
// a token took 850 MB, and 1,024 that sent a part of a body kept all others out.
func TestTokenFirst(t *testing.T) {
	address := serve(t, empty(t).Handler(Access{Token: "a secret"}))
	for range maxRequests + 1 { // of which none ends
		dial(t, address, "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfive.")
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/debug/pprof/symbol", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer a secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("with the token: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	read := make(chan int, 1)
	h := authorized("a secret", patience{time.Minute, time.Minute}.whole(http.NotFoundHandler()))
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", readerFunc(func(p []byte) (int, error) {
		read <- len(p)
		return 0, io.EOF
	}))
	h.ServeHTTP(httptest.NewRecorder(), r)
	select {
	case <-read:
		t.Error("the body was read without the token")
	default:
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestNothingIsRead: a client that sent requests and read no answer kept its connection for ever, and the daemon from ending: small answers
// are sent when the call has ended, and with HTTP/2 the deadline of a stream waited for the connection.
func TestNothingIsRead(t *testing.T) {
	const short = 50 * time.Millisecond
	p := patience{short, short}
	for _, proto := range []string{"1", "2"} {
		t.Run("HTTP/"+proto, func(t *testing.T) {
			srv := p.server(p.all(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if proto == "1" {
					fmt.Fprint(w, "small")
					return
				}
				for part, err := make([]byte, 1<<20), error(nil); err == nil; {
					_, err = w.Write(part)
				}
			})), slog.New(slog.DiscardHandler))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- srv.Serve(l) }()
			if proto == "1" {
				conn := dial(t, l.Addr().String(), "")
				for err == nil { // until it is closed
					_, err = io.WriteString(conn, strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1000))
				}
			} else {
				unread(t, dial(t, l.Addr().String(), http2.ClientPreface))
			}
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			<-served
		})
	}
}

// unread makes requests with HTTP/2 that allow answers of any size, of which nothing is read until the handlers write.
func unread(t *testing.T, conn net.Conn) {
	t.Helper()
	f := http2.NewFramer(conn, conn)
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "x"}} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}), f.WriteSettingsAck(), f.WriteWindowUpdate(0, 1<<30),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true}))
	for err == nil { // the answer begins
		var got http2.Frame
		if got, err = f.ReadFrame(); err == nil && got.Header().Type == http2.FrameData {
			return
		}
	}
	t.Fatal(err)
}

// TestRestIsNotSent: an import that was refused waited for ever for the rest of what its client had begun to send.
func TestRestIsNotSent(t *testing.T) {
	address := serve(t, patience{50 * time.Millisecond, time.Minute}.all(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 5))
		_ = r.Body.Close() // as connect does
		http.Error(w, "no", http.StatusBadRequest)
	})))
	conn := dial(t, address, "POST "+api.ImagesImportProcedure+" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfive.")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestProfilesEnd: a profile of an hour kept the daemon from ending for an hour.
func TestProfilesEnd(t *testing.T) {
	s := empty(t)
	srv := httptest.NewServer(s.Handler(Access{}))
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get(srv.URL + "/debug/pprof/profile?seconds=3600")
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	s.End()
	if err := <-done; err != nil {
		t.Error(err)
	}
	srv.Close()
}

// TestTooMany: requests beyond the limit are refused, and the others go on.
func TestTooMany(t *testing.T) {
	gate, begun := make(chan bool), make(chan bool)
	address := serve(t, limited(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-gate
	})))
	codes := make(chan int, 3)
	get := func() {
		resp, err := http.Get("http://" + address)
		if err != nil {
			codes <- 0
			return
		}
		_ = resp.Body.Close()
		codes <- resp.StatusCode
	}
	go get()
	go get()
	<-begun
	<-begun
	get()
	if code := <-codes; code != 429 {
		t.Errorf("the third: %d", code)
	}
	close(gate)
	if a, b := <-codes, <-codes; a != 200 || b != 200 {
		t.Errorf("the others: %d, %d", a, b)
	}
}

func TestToken(t *testing.T) {
	address := serve(t, authorized("secret", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for header, code := range map[string]int{"": 401, "secret": 401, "Bearer ": 401, "Bearer secre": 401, "Bearer secrets": 401, "Basic secret": 401, "Bearer secret": 200} {
		req, _ := http.NewRequest("GET", "http://"+address, nil)
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != code {
			t.Errorf("%q: %v, %v; want %d", header, resp, err, code)
		}
	}
}
