// Package rpc holds what the roles say to one another: the requests and answers as plain
// values (data.go), and their carriage between processes: by gRPC, but for the two streams
// that carry records, Append and Follow. Those go over TCP connections of their own, in
// frames (frame.go), at the same port. In one process the roles call each other through
// their own small interfaces with these same values, so a lone node never opens a socket
// to itself.
//
// A Server answers other nodes by what its backends say; Peers hold a connection to each
// other node and one for each stream, and a Peer is what can be asked of it. Every
// connection of a node to another is opened by its Dialer, where tests cut and slow them.
//
// # What it promises
//
// A call reaches the node and the cluster that it means, or is refused before anything of
// it is read. An error is a *fault.Error, the same on either side. Of what did not get an
// answer it says whether it has surely left no trace (LeaderUnavailable,
// CoordinatorUnavailable) or not (UnknownOutcome); where it cannot know it is the latter.
// A node that falls silent shows within about two seconds, and what waits for it ends. All
// that waits is bounded, in bytes and in number: who does not read is sent no more, and
// who does not answer is asked no more.
//
// It does not try again, does not know who leads what, and does not encrypt: the port is
// for nodes on a network of their own.
//
// # The life of an append
//
// Peer.Append numbers the batch and sends it over the one stream there is to that broker,
// together with what others put meanwhile; it waits for nothing. The server hands each
// batch to the broker's backend, whose answers go back the same way in whatever order they
// come. When the stream breaks, batches that never were sent, or that the other end says
// not to have taken in, are LeaderUnavailable, the others UnknownOutcome. Batches are
// referred to, not copied, until they are written, and copied once where they are
// received. The messages that carry them are written and read by hand (encoder,
// decoder), in the format of tidewirepb/tidewire.proto; the rest is generated code.
//
// Who receives a batch calls the backend himself, and who has an answer writes it: there
// is no goroutine on the way that only hands on.
package rpc
