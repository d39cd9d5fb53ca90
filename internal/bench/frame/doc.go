// Package frame reads and writes WebSocket frames (RFC 6455) for a load
// generator: a server's frames are found in a buffer without a copy, a client's
// are masked as the protocol wants it.
//
// Not promised: fragments and extensions, which a server of tidewire.v1.json
// does not send; Parse refuses them.
package frame
