package rpc

import "tidewire/internal/inbox"

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
