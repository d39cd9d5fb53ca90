// Package reply is the one place where an error becomes an answer: a problem
// (RFC 9457) over HTTP, an error frame over a WebSocket, a close code for a
// connection. The code, status and title come from the table in package fault.
package reply
