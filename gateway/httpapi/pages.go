package httpapi

import (
	_ "embed"
	"html"
	"net/http"
	"strings"

	"tidewire/gateway/reply"
	"tidewire/internal/fault"
)

// pagePolicy is the content security policy of the pages of problems. Those of the
// node come with their own.
const pagePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// openAPI is the document behind /openapi.json.
//
//go:embed openapi.json
var openAPI []byte

// asyncAPI is the document behind /asyncapi.json: what openAPI is for calls, this is for
// frames and events.
//
//go:embed asyncapi.json
var asyncAPI []byte

// document answers with one of the two.
func (a *API) document(text []byte) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := noQuery(r); err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(text) // the client is gone: nobody to tell
		return nil
	}
}

// problemPage is the page at a problem's type.
func (a *API) problemPage(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	code := param(r, "code")
	page, ok := reply.Page(code)
	if !ok {
		return fault.New(fault.NotFound, "there is no problem %q; /problems/ lists them", clip(code))
	}
	return sendPage(w, page)
}

// listProblems is the page that leads to all of them.
func (a *API) listProblems(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(reply.PageHead("Problems") + "<h2>Problems</h2><ul>")
	for _, k := range fault.Kinds() {
		b.WriteString(`<li><a href="/problems/` + k.Code() + `"><code>` + k.Code() + `</code></a> ` + html.EscapeString(k.Title()))
	}
	b.WriteString("</ul>" + reply.PageEnd)
	return sendPage(w, []byte(b.String()))
}

func sendPage(w http.ResponseWriter, page []byte) error {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(page) // the client is gone: nobody to tell
	return nil
}

// page hands a request to the pages of the node. What they do not have is a
// problem like everything else that is not there.
func (a *API) page(w http.ResponseWriter, r *http.Request) error {
	p := &pageWriter{ResponseWriter: w}
	a.cfg.Pages.ServeHTTP(p, r)
	if p.missing {
		h := w.Header()
		h.Del("Content-Length")
		h.Set("Content-Security-Policy", apiPolicy)
		return notFound(w, r)
	}
	return nil
}

// pageWriter keeps an answer that there is no such page to itself.
type pageWriter struct {
	http.ResponseWriter
	missing bool
}

func (p *pageWriter) WriteHeader(status int) {
	if p.missing = status == http.StatusNotFound; !p.missing {
		p.ResponseWriter.WriteHeader(status)
	}
}

func (p *pageWriter) Write(b []byte) (int, error) {
	if p.missing {
		return len(b), nil
	}
	return p.ResponseWriter.Write(b)
}
