// Package session is one WebSocket connection and the set of them.
//
// The library coder/websocket does the handshake, the reading of frames and the
// closing handshake; text frames, pings and pongs that have come whole are taken
// without it. A session adds a goroutine that reads and one bounded buffer; a few
// workers write for all sessions:
//
//	reader   waits with next to no memory until there are bytes, reads frames, line
//	         by line, and dispatches each by its op. It stops reading while too
//	         much is in flight or unanswered: that is the back-pressure of a
//	         publisher.
//	turn     what a worker does for a session that has something to write: answers
//	         and pushes from the outbox first, then messages, subscriptions taking
//	         turns, in one frame and one write. A turn never waits. What the socket
//	         does not take at once gets a goroutine of its own until it has; what
//	         the client does not take stays in the log; a subscription is an offset.
//
// Subscribers that keep pace stand at the same place, so the frame that one of
// them gets is kept for the next. Turns that have to read the log go to workers
// of their own: the disk, or another node, makes nobody else wait.
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
