package rpc

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// statusOf is a backend's error as the end of a call; nil for nil.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	return statusWith(codeOf(fault.As(err)), err)
}

func statusWith(code codes.Code, err error) error {
	p := problemOf(err)
	s := status.New(code, p.Detail)
	if with, err := s.WithDetails(p); err == nil {
		s = with
	}
	return s.Err()
}

// codeOf is for whoever looks at calls with other tools: nodes read the detail.
func codeOf(f *fault.Error) codes.Code {
	if f.Kind == fault.UnknownOutcome {
		return codes.Unknown
	}
	switch f.Status() {
	case 400, 413, 415, 422:
		return codes.InvalidArgument
	case 401:
		return codes.Unauthenticated
	case 403:
		return codes.PermissionDenied
	case 404, 405:
		return codes.NotFound
	case 409:
		return codes.Aborted
	case 410:
		return codes.OutOfRange
	case 429:
		return codes.ResourceExhausted
	case 503:
		return codes.Unavailable
	case 504:
		return codes.DeadlineExceeded
	}
	return codes.Internal
}

// reply is what the end of a call says: the fault that the other node answered, or
// nil and whether the other node has surely done nothing.
func reply(err error) (f *fault.Error, refused bool) {
	if end := (*ending)(nil); errors.As(err, &end) {
		if end.problem == nil {
			return nil, end.refused
		}
		return fault.As(end.problem), end.refused
	}
	s, ok := status.FromError(err)
	if !ok {
		return nil, false
	}
	for _, d := range s.Details() {
		if p, ok := d.(*tidewirepb.Problem); ok {
			return faultOf(p), s.Code() == codes.FailedPrecondition
		}
	}
	// A node without the role has no such service.
	return nil, s.Code() == codes.Unimplemented
}

// lost is the error of a call that another node did not answer.
func lost(kind fault.Kind, node string, err error) *fault.Error {
	s, _ := status.FromError(err)
	text := err.Error()
	if s != nil && s.Message() != "" {
		text = s.Message()
	}
	if kind == fault.UnknownOutcome {
		return fault.New(kind, "the connection to %s broke before it answered: %s", node, text)
	}
	return untouched(fault.New(kind, "%s cannot be reached: %s", node, text))
}

// untouched says of a call to a coordinator that it has surely left no trace.
func untouched(f *fault.Error) *fault.Error {
	if f.Kind == fault.CoordinatorUnavailable {
		return f.With(cluster.FieldKept, "no")
	}
	return f
}
