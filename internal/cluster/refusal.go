package cluster

import (
	"errors"

	"tidewire/internal/fault"
)

// Refusal is a client's error as the log keeps it.
type Refusal struct {
	Code    string   // of package fault
	Detail  string   // names the field and what is allowed
	Field   string   `json:",omitempty"`
	Allowed string   `json:",omitempty"`
	Differs []string `json:",omitempty"` // names of settings, for topic-exists
}

// Fault is the refusal as an error for the client.
func (r *Refusal) Fault() *fault.Error {
	kind, ok := fault.ByCode(r.Code)
	if !ok {
		kind = fault.Internal
	}
	f := &fault.Error{Kind: kind, Err: errors.New(r.Detail)}
	if r.Field != "" {
		f = f.With("field", r.Field)
	}
	if r.Allowed != "" {
		f = f.With("allowed", r.Allowed)
	}
	if len(r.Differs) > 0 {
		f = f.With("differs", r.Differs)
	}
	return f
}
