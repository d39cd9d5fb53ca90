package reply

import (
	"bytes"
	"encoding/json"
	"html"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// ProblemType is the media type of a problem.
const ProblemType = "application/problem+json"

// defaultRetry is what 429 and 503 advise where nobody knows better.
const defaultRetry = time.Second

// lastingRetry is what they advise where somebody has to act first.
const lastingRetry = time.Minute

// HTTP answers a request with an error.
func HTTP(w http.ResponseWriter, err error) {
	f := fault.As(err)
	h := w.Header()
	h.Set("Content-Type", ProblemType)
	h.Set("Cache-Control", "no-store")
	if d := RetryAfter(f); d > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	w.WriteHeader(f.Status())
	_, _ = w.Write(append(Problem(err), '\n')) // a failure means that nobody listens any more
}

// Problem is an error as a problem, in one line without the newline.
func Problem(err error) []byte {
	f := fault.As(err)
	l := wire.Begin(nil).
		Str("type", "/problems/"+f.Kind.Code()).
		Str("title", f.Kind.Title()).
		Int("status", int64(f.Status())).
		Str("detail", detail(f)).
		Str("code", f.Kind.Code())
	fields(l, f)
	return l.Close()
}

// Frame is an error as an error frame; id 0 leaves the id out.
func Frame(id int64, err error) []byte { return FrameFor(id, "", err) }

// FrameFor is an error frame that names the subscription it is about.
func FrameFor(id int64, sub string, err error) []byte {
	f := fault.As(err)
	l := wire.Open(nil, "error").ID(id)
	if sub != "" {
		l.Str("sub", sub)
	}
	l.Str("code", f.Kind.Code()).Str("title", f.Kind.Title()).Str("detail", detail(f))
	if d := RetryAfter(f); d > 0 {
		l.Str("retry_after", d.String())
	}
	fields(l, f)
	return l.Close()
}

// RetryAfter is when a caller may try again; 0 where that makes no sense.
func RetryAfter(f *fault.Error) time.Duration {
	switch {
	case f.Lasting:
		return lastingRetry
	case f.RetryAfter > 0:
		return f.RetryAfter
	}
	if s := f.Status(); s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable {
		return defaultRetry
	}
	return 0
}

// detail keeps what the server did not expect out of answers: it is in the log.
func detail(f *fault.Error) string {
	if f.Kind == fault.Internal {
		return fault.Internal.Advice()
	}
	return f.Detail()
}

// reserved are the members of a problem and a frame that a field never replaces.
var reserved = []string{"type", "title", "status", "detail", "code", "op", "id", "sub", "retry_after"}

func fields(l *wire.Line, f *fault.Error) {
	names := make([]string, 0, len(f.Fields))
	for name := range f.Fields {
		if !slices.Contains(reserved, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if raw, err := json.Marshal(f.Fields[name]); err == nil {
			l.Raw(name, raw)
		}
	}
}

// Page is the page at a problem's type: what the code means and what to do.
// ok is false where there is no such code.
func Page(code string) (page []byte, ok bool) {
	k, ok := fault.ByCode(code)
	if !ok {
		return nil, false
	}
	var b bytes.Buffer
	b.WriteString(PageHead(k.Code()) + "<h2>" + html.EscapeString(k.Title()) + "</h2>")
	b.WriteString("<p>Code <code>" + k.Code() + "</code>, HTTP status " + strconv.Itoa(k.Status()) + ".</p>")
	b.WriteString("<p>" + html.EscapeString(k.Advice()) + "</p>")
	if k.Retryable() {
		b.WriteString("<p>The same call may succeed later without a change.</p>")
	} else {
		b.WriteString("<p>The same call will not succeed without a change.</p>")
	}
	b.WriteString("<p><a href=\"/problems/\">All problems</a></p>" + PageEnd)
	return b.Bytes(), true
}

// PageHead begins a page about problems: in the style of the node's own page, with
// the way back to it.
func PageHead(title string) string {
	return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">" +
		"<title>" + html.EscapeString(title) + " – Tidewire</title><link rel=\"stylesheet\" href=\"/assets/style.css\">" +
		"<header><h1><a href=\"/\">Tidewire</a></h1></header><main class=\"text\">"
}

// PageEnd ends what PageHead began.
const PageEnd = "</main></html>\n"
