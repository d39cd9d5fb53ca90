// Package sock holds thousands of client connections on a few goroutines: bare
// sockets, one epoll set a loop, one buffer that all connections of a loop read
// into. The runtime's own poller would wake a goroutine for each message of each
// connection, and a load generator that does so measures itself.
//
// Its life: Dial connects, Fetch and Write do a handshake that waits, Loop.Add
// hands the connection over, and from then on a Handler gets what arrives. It is
// for Linux, and for clear text.
package sock
