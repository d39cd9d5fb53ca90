package httpapi

import (
	"net/http"
	"strings"

	"tidewire/internal/fault"
)

// resuming ends the connection of an EventSource that comes back and is refused for the
// moment: it takes any answer but a stream for its end, and tries again by itself where there is
// none. Every other client gets the answer, with the time to come back at.
func resuming(do action) action {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := do(w, r)
		if err != nil && comesBack(r) && passes(err) {
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

// comesBack reports whether a request is an EventSource's that has been here before. Other
// clients resume by the same header; browsers alone call themselves Mozilla, and what their
// scripts fetch can be told to be patient in another way.
func comesBack(r *http.Request) bool {
	return r.Header.Get("Last-Event-ID") != "" && strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// passes reports whether waiting helps.
func passes(err error) bool {
	f := fault.As(err)
	return f.Kind.Retryable() && !f.Lasting
}
