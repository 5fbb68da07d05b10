package service

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/worker/api"
)

// serve serves a handler on a loopback address.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// all is what a call is behind.
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
