package control

import (
	"cmp"
	"errors"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Verdict is what the error of a call to a coordinator tells about another try.
type Verdict uint8

const (
	Final   Verdict = iota // another try would say the same
	Nothing                // what was asked for has left no trace: try again
	Unknown                // it may have been done: try again under the same request id
)

// Judge sorts the error of a call to a coordinator.
func Judge(err error) Verdict {
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case !ok, e.Kind == fault.Internal:
		return Unknown // lost on the way, or on the way back
	case e.Fields[cluster.FieldKept] == "no":
		return Nothing
	case e.Kind == fault.CoordinatorUnavailable, e.Kind == fault.LeaderUnavailable, e.Kind == fault.Draining, e.Kind == fault.UnknownOutcome:
		return Unknown
	}
	return Final
}

// LeaderIn is the leading coordinator that a refusal names; zero: none.
func LeaderIn(err error) ident.NodeID {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return ident.NodeID{}
	}
	text, ok := e.Fields[cluster.FieldLeader].(string)
	if !ok {
		return ident.NodeID{}
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return ident.NodeID{}
	}
	return ident.NodeID(id)
}

// Unavailable is what a caller hears once its time for tries is over.
func Unavailable(open bool, err error) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.CoordinatorUnavailable {
		err = cmp.Or(errors.Unwrap(e.Err), e.Err, err) // its cause: it says the same itself
	}
	if open {
		return fault.New(fault.CoordinatorUnavailable, "no coordinator said what became of the change: it may have been made or may yet be, so look before you repeat it (%w)", err).After(retryAfter)
	}
	return fault.New(fault.CoordinatorUnavailable, "no coordinator leads that could be reached, and the change was not made: ask again in a moment, and if that does not help look which coordinators run (%w)", err).After(retryAfter)
}
