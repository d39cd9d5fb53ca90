package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// Bounds of what an error carries: it travels in headers, which are bounded too.
const (
	maxDetailBytes = 2 << 10
	maxFieldsBytes = 4 << 10
)

// problemOf is an error as it goes over the wire; nil for nil.
func problemOf(err error) *tidewirepb.Problem {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	p := &tidewirepb.Problem{
		Code: f.Kind.Code(), Op: clip(f.Op), RetryAfterNs: int64(f.RetryAfter), Lasting: f.Lasting, Elsewhere: f.Elsewhere,
	}
	if f.Err != nil {
		p.Detail = clip(f.Err.Error())
	}
	if len(f.Fields) > 0 {
		// Fields are what the public contract adds to a kind: plain JSON values. One
		// that is none is left out rather than the error with it.
		if b, err := json.Marshal(f.Fields); err == nil && len(b) <= maxFieldsBytes {
			p.Fields = b
		}
	}
	return p
}

func clip(s string) string {
	if len(s) > maxDetailBytes {
		s = s[:maxDetailBytes] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// faultOf is the error that a problem says; nil for nil.
func faultOf(p *tidewirepb.Problem) *fault.Error {
	if p == nil {
		return nil
	}
	kind, known := fault.ByCode(p.Code)
	f := &fault.Error{Kind: kind, Op: p.Op, RetryAfter: time.Duration(p.RetryAfterNs), Lasting: p.Lasting, Elsewhere: p.Elsewhere}
	switch {
	case !known:
		f.Err = errors.New("another node answered " + p.Code + ": " + p.Detail)
	case p.Detail != "":
		f.Err = errors.New(p.Detail)
	}
	f.Fields = fieldsOf(p.Fields)
	return f
}

// errorOf is faultOf as an error: a nil one for nil.
func errorOf(p *tidewirepb.Problem) error {
	if p == nil {
		return nil
	}
	return faultOf(p)
}

func fieldsOf(b []byte) map[string]any {
	if len(b) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var fields map[string]any
	if err := d.Decode(&fields); err != nil {
		return nil // the kind and the detail are there all the same
	}
	for k, v := range fields {
		fields[k] = plain(v)
	}
	return fields
}

// plain gives a JSON value the type that it has where it is made: whole numbers
// are int64, a list of words is []string.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil && !math.IsInf(f, 0) {
			return f
		}
		return v.String()
	case []any:
		words := make([]string, 0, len(v))
		for i, e := range v {
			v[i] = plain(e)
			if s, ok := v[i].(string); ok {
				words = append(words, s)
			}
		}
		if len(words) == len(v) {
			return words
		}
	case map[string]any:
		for k, e := range v {
			v[k] = plain(e)
		}
	}
	return v
}
