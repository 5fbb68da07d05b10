package registry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/worker/image"
)

// Bytes of a layer, and after how many the connection breaks.
const size, cut = 8 << 20, 5 << 20

// breaksOff sends the beginning of what is large.
func breaksOff(w http.ResponseWriter, r *http.Request, next http.Handler) {
	answer(w, r, next, func(h http.Header, b []byte) []byte {
		if isLayer(r) && len(b) > cut {
			w.Header().Set("Content-Length", h.Get("Content-Length"))
			_, _ = w.Write(b[:cut])
			panic(http.ErrAbortHandler)
		}
		return b
	})
}

// noRange knows no ranges.
func noRange(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r.Header.Del("Range")
	next.ServeHTTP(w, r)
}

// resumes are what can become of a download that was interrupted: what is left is spoiled, and then the server is another.
var resumes = map[string]struct {
	then    handler
	spoil   func(t *testing.T, part string)
	least   int64
	most    int64
	refused error
}{
	"goes on":             {then: nil, most: size - cut + 100000},
	"the range ignored":   {then: noRange, least: size, most: size + 100000},
	"other bytes before":  {spoil: func(t *testing.T, part string) { must(t, os.WriteFile(part, make([]byte, cut), 0o600)) }, least: size, most: 2*size - cut + 100000},
	"more than there is":  {spoil: func(t *testing.T, part string) { must(t, os.Truncate(part, 2*size)) }, least: size, most: size + 100000},
	"nothing of it there": {spoil: func(t *testing.T, part string) { must(t, os.Truncate(part, 0)) }, least: size, most: size + 100000},
	"another range": {then: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isLayer(r) && r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", size, size+1))
			w.WriteHeader(http.StatusPartialContent)
			return
		}
		next.ServeHTTP(w, r)
	}, refused: image.ErrDigest, most: size},
	"no such range": {then: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isLayer(r) && r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		next.ServeHTTP(w, r)
	}, least: size, most: size + 100000},
}

// TestResume: what was downloaded is not downloaded again, whatever is left of it, and however the server takes a range.
func TestResume(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, size))
	for what, test := range resumes {
		t.Run(what, func(t *testing.T) {
			n := store(t, nil)
			first, cancel := context.WithCancel(ctx)
			s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Header.Get("Range") != "" { // the first attempt alone
					cancel()
					<-r.Context().Done()
					return
				}
				breaksOff(w, r, next)
			})
			if _, err := client(n).Pull(first, n, ref, named("x"), nil); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
			none(t, n)
			list := left(t, n)
			if len(list) != 1 || !strings.HasSuffix(list[0], ".part") {
				t.Fatalf("left: %q", list)
			}
			if test.spoil != nil {
				test.spoil(t, filepath.Join(downloads(n), list[0]))
			}
			s.is(test.then)
			_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
			if !errors.Is(err, test.refused) {
				t.Fatal(err)
			}
			if got := s.bytes(); got < test.least || got > test.most {
				t.Errorf("%d bytes were sent, not %d to %d", got, test.least, test.most)
			}
			if test.refused == nil && len(left(t, n)) > 0 {
				t.Errorf("left: %q", left(t, n))
			}
		})
	}
}

// TestBreaksOften: a connection that breaks again and again, but never without bringing much.
func TestBreaksOften(t *testing.T) {
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, size))
	n := store(t, nil)
	s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answer(w, r, next, func(h http.Header, b []byte) []byte {
			if len(b) > 1200<<10 {
				w.Header().Set("Content-Length", h.Get("Content-Length"))
				w.Header().Set("Content-Range", h.Get("Content-Range"))
				if r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write(b[:1100<<10])
				panic(http.ErrAbortHandler)
			}
			return b
		})
	})
	_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
	must(t, err)
	if got := s.bytes(); got > size+size/2 {
		t.Errorf("%d bytes were sent", got)
	}
}

// TestWholeDownload: a blob that was downloaded whole is verified before it is used again.
func TestWholeDownload(t *testing.T) {
	const size = 2 << 20
	s := serve(t)
	ref := s.put(t, "app:1", layered(t, size, 100))
	for _, spoiled := range []bool{false, true} {
		n := store(t, nil)
		s.is(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			answer(w, r, next, func(_ http.Header, b []byte) []byte {
				if isLayer(r) && len(b) < 10000 && !strings.HasPrefix(string(b), "{") {
					for !slices.ContainsFunc(left(t, n), func(name string) bool { return !strings.HasSuffix(name, ".part") }) {
						time.Sleep(time.Millisecond) // until the other layer is there
					}
					b[0]++
				}
				return b
			})
		})
		_, err := client(n).Pull(ctx, n, ref, named("x"), nil)
		if !errors.Is(err, image.ErrDigest) {
			t.Fatal(err)
		}
		none(t, n)
		whole := ""
		for _, name := range left(t, n) {
			if !strings.HasSuffix(name, ".part") {
				whole = filepath.Join(downloads(n), name)
			}
		}
		if whole == "" {
			t.Fatalf("left: %q", left(t, n))
		}
		if spoiled {
			must(t, os.WriteFile(whole, make([]byte, size), 0o600))
		}
		s.is(nil)
		_, err = client(n).Pull(ctx, n, ref, named("x"), nil)
		must(t, err)
		if sent := s.bytes(); (sent > size) != spoiled {
			t.Errorf("spoiled %v: %d bytes were sent", spoiled, sent)
		}
	}
}

// TestFullDisk: what does not fit on the disk does not stay there, in the way of others.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	s, n := serve(t), store(t, nil)
	ref := s.put(t, "app:1", layered(t, 8<<20))
	must(t, os.MkdirAll(downloads(n), 0o700))
	must(t, unix.Mount("tmpfs", downloads(n), "tmpfs", 0, "size=4m"))
	defer func() { must(t, unix.Unmount(downloads(n), 0)) }()
	if _, err := client(n).Pull(ctx, n, ref, named("x"), nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if list := left(t, n); len(list) > 0 {
		t.Errorf("left: %q", list)
	}
	none(t, n)
}
