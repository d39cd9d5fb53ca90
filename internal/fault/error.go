package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Error is an error with a kind. Err says what happened; Fields carries what
// the public contract adds to a kind (expected, allowed, cursor, …).
type Error struct {
	Kind       Kind
	Op         string // what was being done, as "storage.append"; may be empty
	Err        error
	Fields     map[string]any // extra members of the problem; nil for none
	RetryAfter time.Duration  // 0: no hint
	Lasting    bool           // waiting does not help: somebody has to act
	Elsewhere  bool           // it is this node that is short of something: another may do it
}

func (e *Error) Error() string {
	text := e.Kind.Code()
	if e.Err != nil {
		text = e.Err.Error()
	}
	if e.Op != "" {
		return e.Op + ": " + text
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Detail is the message without the operation, for the client.
func (e *Error) Detail() string {
	if e.Err == nil {
		return e.Kind.Advice()
	}
	return e.Err.Error()
}

// New makes an error of a kind; format is as in fmt.Errorf, %w included.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// With returns a copy that carries one more field.
func (e *Error) With(name string, value any) *Error {
	c := *e
	c.Fields = make(map[string]any, len(e.Fields)+1)
	for k, v := range e.Fields {
		c.Fields[k] = v
	}
	c.Fields[name] = value
	return &c
}

// After returns a copy that carries a hint when to try again.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Lasts returns a copy that says that waiting does not help, whatever is usual
// for its kind: the client is told so, and nobody tries again.
func (e *Error) Lasts() *Error {
	c := e.With("retryable", false)
	c.Lasting = true
	return c
}

// Overload returns a copy that says that it is this node that has no room at the
// moment, not the caller that wants too much: over HTTP it is a 503.
func (e *Error) Overload() *Error {
	c := *e
	c.Elsewhere = true
	return &c
}

// Status is the HTTP status: the kind's, or 503 of an overload.
func (e *Error) Status() int {
	if e.Elsewhere {
		return 503
	}
	return e.Kind.Status()
}

// As finds the fault in an error's chain; an error without one is Internal.
// A nil error gives nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// Whoever starts something that can be cut short says what that means;
		// this is the answer where nothing was started.
		return &Error{Kind: LeaderUnavailable, Err: err}
	}
	return &Error{Kind: Internal, Err: err}
}

// KindOf is As(err).Kind; call it with a non-nil error.
func KindOf(err error) Kind { return As(err).Kind }

// Lasting reports that waiting does not mend err.
func Lasting(err error) bool { return err != nil && As(err).Lasting }

// Is reports whether err is a fault of kind k.
func Is(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}
