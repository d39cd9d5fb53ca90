package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryFileIsServedWithItsTypeAndPolicy(t *testing.T) {
	kinds := map[string]int{}
	for _, p := range Paths() {
		kind := path.Ext(p)
		if p == "/" {
			kind = ".html"
		}
		kinds[kind]++
		plain := get(t, "GET", p)
		if plain.StatusCode != 200 || plain.Header.Get("Content-Type") != mimes[kind] || mimes[kind] == "" {
			t.Errorf("%s: %d %q", p, plain.StatusCode, plain.Header.Get("Content-Type"))
		}
		cache := "no-cache"
		if lasting.MatchString(p) {
			cache = "public, max-age=31536000, immutable"
		}
		for _, accept := range []string{"", "br, gzip;q=0.5", "deflate, gzip;q=0"} {
			res := get(t, "GET", p, "Accept-Encoding", accept)
			if h := res.Header; h.Get("Content-Security-Policy") != Policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != cache || h.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: headers %v", p, h)
			}
			if again := get(t, "GET", p, "Accept-Encoding", accept, "If-None-Match", res.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
				t.Errorf("%s: %d for what the browser has", p, again.StatusCode)
			}
		}
		zipped := get(t, "GET", p, "Accept-Encoding", "gzip")
		if zipped.Header.Get("Content-Encoding") != "gzip" || zipped.Header.Get("ETag") == plain.Header.Get("ETag") {
			t.Errorf("%s: for who takes gzip: %v", p, zipped.Header)
			continue
		}
		unzip, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(body(t, unzip), body(t, plain.Body)) {
			t.Errorf("%s is another file in gzip", p)
		}
	}
	if kinds[".html"] != 1 || kinds[".js"] != 1 || kinds[".css"] != 2 || kinds[".svg"] != 1 {
		t.Errorf("the files are %v", kinds)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	for _, path := range []string{"/index.html", "/web.go", "/../web.go", "/assets/", "/assets/index.html", "/assets/style.css/", "/app.js", "/topics/", "/src/main.tsx"} {
		if res := get(t, "GET", path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if res := get(t, "POST", "/"); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
}

// Everything that the page loads is there, and it loads nothing else.
func TestThePageLoadsItsOwnFilesAlone(t *testing.T) {
	page := string(body(t, get(t, "GET", "/").Body))
	loads := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(loads) < 4 {
		t.Fatalf("the page loads %v", loads)
	}
	for _, m := range loads {
		if m[1] != "/openapi.json" && get(t, "GET", m[1]).StatusCode != http.StatusOK {
			t.Errorf("the page loads %s, which is not there", m[1])
		}
	}
	for _, bad := range []string{"<style", "style=", "javascript:", "http://", "https://", "data:"} {
		if strings.Contains(page, bad) {
			t.Errorf("index.html contains %s", bad)
		}
	}
	if m := regexp.MustCompile(`\son[a-z]+\s*=`).FindString(page); m != "" {
		t.Errorf("index.html has an inline handler:%s", m)
	}
	if m := regexp.MustCompile(`<script[^>]*>[^<]`).FindString(page); m != "" {
		t.Errorf("index.html has an inline script: %s", m)
	}
	for _, p := range Paths() {
		if css := string(body(t, get(t, "GET", p).Body)); path.Ext(p) == ".css" && (strings.Contains(css, "url(") || strings.Contains(css, "@import")) {
			t.Errorf("%s loads something", p)
		}
	}
}

// What the policy would block must not be there, and records must never become markup.
func TestTheSourceMakesNoMarkupOfText(t *testing.T) {
	looked := 0
	err := fs.WalkDir(os.DirFS("src"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(path.Ext(name), ".ts") {
			return err
		}
		source, err := os.ReadFile("src/" + name)
		looked++
		for _, bad := range []string{"innerHTML", "InnerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "style=", ".style.", "http://", "https://"} {
			if bytes.Contains(source, []byte(bad)) {
				t.Errorf("%s uses %s", name, bad)
			}
		}
		return err
	})
	if err != nil || looked < 30 {
		t.Errorf("looked at %d files: %v", looked, err)
	}
}

func TestTheScriptIsWithinItsBudget(t *testing.T) {
	const budget = 70_000 // bytes in gzip of all scripts
	size := 0
	for _, p := range Paths() {
		if path.Ext(p) == ".js" {
			size += len(body(t, get(t, "GET", p, "Accept-Encoding", "gzip").Body))
		}
	}
	if size == 0 || size > budget {
		t.Errorf("the scripts are %d bytes in gzip, of %d", size, budget)
	}
}
