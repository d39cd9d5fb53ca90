package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/wire"
)

// params are the query parameters of one call: all of them known, each given
// once.
type params url.Values

// query reads the parameters of a request strictly. Those not known are errors
// that name the nearest one that is.
func query(r *http.Request, known ...string) (params, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the query cannot be read: %w; separate parameters by & and escape what is not a letter or a digit", err).With("field", "query")
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the same complaint every time
	for _, name := range names {
		if !slices.Contains(known, name) {
			if name == "keys" && slices.Contains(known, "key") { // nearly known, and yet not to be found here
				return nil, fault.New(fault.UnknownField, "\"keys\" is for subscriptions over a WebSocket alone; this call takes one \"key\", or \"key_prefix\"").With("field", name)
			}
			return nil, fault.Unknown("parameter", name, known)
		}
		if len(values[name]) > 1 {
			return nil, invalid(name, "comes %d times; give it once", len(values[name]))
		}
	}
	return params(values), nil
}

// noQuery is for calls without parameters.
func noQuery(r *http.Request) error {
	_, err := query(r)
	return err
}

// get is a parameter's value, and whether it was given.
func (p params) get(name string) (string, bool) {
	v, ok := p[name]
	if !ok {
		return "", false
	}
	return v[0], true
}

func (p params) has(name string) bool {
	_, ok := p[name]
	return ok
}

// integer is a whole number from lo to hi, or otherwise where it was not given.
func (p params) integer(name string, lo, hi, otherwise int) (int, error) {
	s, ok := p.get(name)
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi || s[0] == '+' {
		return 0, invalid(name, "takes a whole number from %d to %d, not %q", lo, hi, clip(s))
	}
	return n, nil
}

// duration is a duration from lo to hi.
func duration(name, s string, lo, hi time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < lo || d > hi {
		return 0, invalid(name, `takes a duration such as "250ms" or "5s", from %s to %s, not %q`, wire.ShortDuration(lo), wire.ShortDuration(hi), clip(s))
	}
	return d, nil
}

// exclusive says which of the named parameters were given together though only
// one can be.
func (p params) exclusive(names ...string) error {
	first := ""
	for _, name := range names {
		switch {
		case !p.has(name):
		case first == "":
			first = name
		default:
			return invalid(name, "and %q exclude one another", first)
		}
	}
	return nil
}

// invalid is the error for a parameter, header or field that has no valid value.
func invalid(name, format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "%q %s", name, fmt.Sprintf(format, args...)).With("field", name)
}
