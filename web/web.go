package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed index.html assets/app.js assets/style.css assets/icon.svg
var files embed.FS

// Policy is the Content-Security-Policy of the page: its own files and its own
// node, no inline script or style, no frame around it.
const Policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Paths lists every address that Handler answers, "/" first.
func Paths() []string {
	return []string{"/", "/assets/app.js", "/assets/style.css", "/assets/icon.svg"}
}

type asset struct {
	name string
	mime string
	body []byte
	tag  string // strong validator: the page of one build never runs with the script of another
}

// Handler serves the page under the addresses of Paths and 404 elsewhere.
func Handler() http.Handler {
	assets := map[string]asset{}
	for _, p := range Paths() {
		name := strings.TrimPrefix(p, "/")
		if name == "" {
			name = "index.html"
		}
		body, err := files.ReadFile(name)
		if err != nil {
			panic("every address of the page has an embedded file: " + err.Error())
		}
		sum := sha256.Sum256(body)
		assets[p] = asset{name: name, mime: mimes[path.Ext(name)], body: body, tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		a.serve(w, r)
	})
}

// mimes is fixed: what the machine's tables say of these endings is no matter.
var mimes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // kept, and asked about each time
	h.Set("ETag", a.tag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.body))
}
