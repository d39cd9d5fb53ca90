// Package load puts a load on a server and counts what comes of it.
//
//	lane        one publishing connection: slots for what is in flight, a dialect
//	            that says how a publish is written and its answer read
//	subscriber  one receiving connection, over WebSocket or server-sent events
//	member      one connection of a consumer group
//	share       the subscribers that one loop reads, and how far all of them are
//	meter       cuts time into runs and reads what they cost
//
// In a closed loop the next message leaves when there is room in a window. In an
// open loop messages leave by a schedule, and a latency counts from the time the
// schedule names, sent or not: a server that stalls is charged for the wait of
// everything behind the stall (no coordinated omission).
//
// Not promised: TLS, and anything but Linux.
package load
