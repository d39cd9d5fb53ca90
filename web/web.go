package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed assets
var files embed.FS

// Policy is the Content-Security-Policy of the dashboard: its own files and its own
// node, no inline script or style, no frame around it, and no text that becomes
// markup, which the browser itself sees to.
const Policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// lasting is the name of a file that never changes: it has a hash of what is in it.
var lasting = regexp.MustCompile(`-[0-9a-f]{12}\.`)

// Paths lists every address that Handler answers, "/" first.
func Paths() []string {
	paths := []string{"/"}
	names, err := fs.Glob(files, "assets/*")
	if err != nil {
		panic("a pattern that is fixed and good: " + err.Error())
	}
	for _, name := range names {
		if name != "assets/index.html" {
			paths = append(paths, "/"+name)
		}
	}
	slices.Sort(paths)
	return paths
}

type asset struct {
	name  string
	mime  string
	body  []byte
	zip   func() []byte // the body in gzip, made when it is first asked for
	tag   string        // strong validator: the page of one build never runs with the script of another
	cache string
}

// Handler serves the dashboard under the addresses of Paths and 404 elsewhere.
func Handler() http.Handler {
	assets := map[string]asset{}
	for _, p := range Paths() {
		assets[p] = load(p)
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

// load reads the file of an address.
func load(address string) asset {
	name := strings.TrimPrefix(address, "/")
	if name == "" {
		name = "assets/index.html"
	}
	body, err := files.ReadFile(name)
	if err != nil {
		panic("every address of the dashboard has an embedded file: " + err.Error())
	}
	sum := sha256.Sum256(body)
	a := asset{
		name: path.Base(name), mime: mimes[path.Ext(name)], body: body, zip: sync.OnceValue(func() []byte { return zipped(body) }),
		tag: hex.EncodeToString(sum[:8]), cache: "no-cache", // kept, and asked about each time
	}
	if lasting.MatchString(name) {
		a.cache = "public, max-age=31536000, immutable"
	}
	return a
}

func zipped(body []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("memory takes what is written to it: " + err.Error())
	}
	return b.Bytes()
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", a.cache)
	h.Set("Vary", "Accept-Encoding")
	body, tag := a.body, a.tag
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body, tag = a.zip(), a.tag+"-gzip" // other bytes, so another validator
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(body))
}

// takesGzip reports whether a client names gzip among what it takes, and does not refuse it.
func takesGzip(accept string) bool {
	for one := range strings.SplitSeq(accept, ",") {
		coding, weight, _ := strings.Cut(strings.ReplaceAll(one, " ", ""), ";")
		if strings.EqualFold(coding, "gzip") {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}
