package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
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

func TestEveryFileIsServedWithItsTypeAndPolicy(t *testing.T) {
	want := map[string]string{"/": "text/html; charset=utf-8", "/assets/app.js": "text/javascript; charset=utf-8", "/assets/style.css": "text/css; charset=utf-8", "/assets/icon.svg": "image/svg+xml"}
	for _, path := range Paths() {
		res := get(t, "GET", path)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != want[path] || res.ContentLength == 0 {
			t.Errorf("%s: %d %q", path, res.StatusCode, res.Header.Get("Content-Type"))
		}
		if res.Header.Get("Content-Security-Policy") != Policy || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, res.Header)
		}
		if again := get(t, "GET", path, "If-None-Match", res.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %d for what the browser has", path, again.StatusCode)
		}
	}
	all, err := fs.Glob(files, "assets/*")
	if err != nil || len(all)+1 != len(Paths()) {
		t.Errorf("%d files beside the page, %d addresses, %v", len(all), len(Paths()), err)
	}
}

func TestNothingElseIsServed(t *testing.T) {
	for _, path := range []string{"/index.html", "/web.go", "/../web.go", "/assets/", "/assets/app.js/", "/app.js", "/topics/"} {
		if res := get(t, "GET", path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	if res := get(t, "POST", "/"); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
}

func source(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What the policy would block must not be there, and records must never
// become markup.
func TestThePageKeepsItsPolicy(t *testing.T) {
	page, script := source(t, "index.html"), source(t, "assets/app.js")
	for _, bad := range []string{"<style", "style=", "javascript:", "http://", "https://", "data:"} {
		if strings.Contains(strings.ReplaceAll(page, "http://…", ""), bad) {
			t.Errorf("index.html contains %s", bad)
		}
	}
	if m := regexp.MustCompile(`\son[a-z]+\s*=`).FindString(page); m != "" {
		t.Errorf("index.html has an inline handler:%s", m)
	}
	if m := regexp.MustCompile(`<script[^>]*>[^<]`).FindString(page); m != "" {
		t.Errorf("index.html has an inline script: %s", m)
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", ".style."} {
		if strings.Contains(script, bad) {
			t.Errorf("app.js uses %s", bad)
		}
	}
	if strings.Contains(source(t, "assets/style.css"), "url(") || strings.Contains(source(t, "assets/style.css"), "@import") {
		t.Error("style.css loads something")
	}
}

func TestTheScriptFindsWhatItLooksFor(t *testing.T) {
	page, script := source(t, "index.html"), source(t, "assets/app.js")
	ids := regexp.MustCompile(`(?:el|note)\("([a-z-]+)"`).FindAllStringSubmatch(script, -1)
	if len(ids) < 20 {
		t.Fatalf("only %d look-ups found", len(ids))
	}
	for _, m := range ids {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("app.js looks for #%s, which index.html does not have", m[1])
		}
	}
}

func TestEveryFieldHasALabel(t *testing.T) {
	page := source(t, "index.html")
	for _, m := range regexp.MustCompile(`<(?:input|textarea|select)[^>]*\sid="([a-z-]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `<label for="`+m[1]+`"`) {
			t.Errorf("#%s has no label", m[1])
		}
	}
}
