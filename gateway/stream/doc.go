// Package stream is subscriptions as server-sent events.
//
// Every event has one line of data. Its id is the cursor of the whole stream: on
// every event where one partition is read, else on every 64th; where the stream
// has moved for a second without one, an event without data carries it.
//
// What a stream has to say (stream.go) does not depend on who writes it:
//
//	over HTTP/1.1  the connection is taken from the server once the answer has
//	               begun, and the workers of package turn write to it: an idle
//	               stream is a subscription and a goroutine that waits for the
//	               client to go, with next to no stack. Streams of one partition
//	               that stand at the same place get the same chunk of bytes.
//	over HTTP/2    the server's own goroutine stays with the stream (held.go), for
//	               there is no connection to take. It borrows what it writes with
//	               only while it has something to write.
//
// The life of a stream: a seat; the head of the answer, when to come back and where
// it stands; events; then one of these: the client goes, takes no byte for so long
// that it is cut, the topic ends (`error`), or the server ends it (`closing`). Set
// knows all streams, for Drain and for the end of Run.
package stream
