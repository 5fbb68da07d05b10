// Package page has the page of holdfastd, which shows a store in a browser. It is served as it is: no file of it comes from
// elsewhere.
package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// policy is what a browser may load and do on the page: what comes from where the page does.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page at / and its files below /page/.
func Handler() http.Handler {
	files := map[string][]byte{} // compressed
	_ = fs.WalkDir(static, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		var z bytes.Buffer
		w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
		_, _ = w.Write(b)
		_ = w.Close()
		files[strings.TrimPrefix(name, "static/")] = z.Bytes()
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/page/")
		if r.URL.Path == "/" {
			name = "index.html"
		}
		z, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			serveUnpacked(w, r, z)
			return
		}
		h.Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(z))
	})
}

func serveUnpacked(w http.ResponseWriter, r *http.Request, z []byte) {
	unzip, err := gzip.NewReader(bytes.NewReader(z))
	var b bytes.Buffer
	if err == nil {
		_, err = b.ReadFrom(unzip)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b.Bytes()))
}
