// Package client speaks the public protocol as a client would that has only
// read its description: polls, server-sent events and the WebSocket. It uses
// none of the product's own readers or writers, so that both sides cannot be
// wrong in the same way, and shows what it got down to the bytes.
package client
