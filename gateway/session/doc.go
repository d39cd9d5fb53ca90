// Package session is one WebSocket connection and the set of them.
//
// The library coder/websocket does the handshake, the reading of frames and the
// closing handshake. A session adds two goroutines and one bounded buffer:
//
//	reader   reads frames, line by line, and dispatches each by its op. It stops
//	         reading while too much is in flight or unanswered: that is the
//	         back-pressure of a publisher.
//	writer   the only one that writes frames: answers and pushes from the outbox
//	         first, then messages, subscriptions taking turns. What the client
//	         does not take stays in the log; a subscription is an offset.
//
// The life of a connection: the upgrade is checked and refused as a problem, or
// accepted; where the node asks who is calling and the upgrade did not say it, a
// `hello` with a token in time; `welcome`; lines; then an end of one of these
// kinds: the client closes or vanishes, the server closes with a code (the writer
// flushes first), or the client takes no byte for so long that it is cut.
//
// Not promised: an order between the answers of publishes to different
// partitions, and between subscriptions.
package session
