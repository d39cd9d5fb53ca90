// Package turn writes to any number of connections by a few workers.
//
// A connection's writing side has no goroutine. Whoever has something for it
// schedules its slot, and a worker gives it a turn, in which it finds what there
// is to write and writes it. A turn never waits: not for the socket, which takes
// what it takes at once (what is left gets a goroutine until the client has taken
// it, and the connection no turn until then), and not for the disk, which only
// the workers for the log read. A reader that has had nothing to read for a while
// sleeps, likewise without a goroutine. So an idle connection costs nothing here but
// its memory, and a slow one nobody's time.
//
//	Crew     the workers of a node
//	Slot     a connection's place with them: idle, queued, or having its turn
//	Writer   what has turns: a WebSocket, a stream of events
//	Reader   the reading side of a connection, which may sleep
//	Socket   the connection below: writes that do not wait, and one that does,
//	         for as long as the client goes on taking bytes
//
// A slot is in one queue at most and has one turn at a time, so what a turn works
// on needs no lock. Turns of different slots have no order.
package turn
