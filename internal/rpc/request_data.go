package rpc

import (
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
)

// Handed is what became of a reply.
type Handed uint8

const (
	HandedOver    Handed = iota // its requester has it, or it is kept
	HandedNobody                // its requester is gone, or has a reply
	HandedWrongly               // the inbox is of another life of the node
)

// Collected answers who waits for a reply that somebody else's request brings.
type Collected struct {
	Reply *inbox.Reply // nil: see Fate
	Fate  Fate
}

// Fate is why there is no reply.
type Fate uint8

const (
	NotYet    Fate = iota // the wait is over, the request's time is not
	Over                  // the request's time is up, or its reply is not kept any more
	Elsewhere             // the inbox is of another life of the node
)

// Sought is a record that an idempotency key may have brought.
type Sought struct {
	Partition ident.Partition
	Key       record.Idempotency
}

// Original is where such a record is, once it is committed.
type Original struct {
	Known     bool // false: no record came with the key within the topic's window
	Offset    ident.Offset
	Timestamp int64 // ms since 1970
}
