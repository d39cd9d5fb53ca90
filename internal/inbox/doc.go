// Package inbox is where replies meet those who wait for them: the address that a
// request carries, the reply, and the box in which one finds the other. It is pure:
// time arrives as a value, and who is told of what is for the caller to do.
//
// A gateway has a box of the requests that it asked, and a broker one of the replies that
// it keeps for requests whose gateway is gone. Both are bounded in entries and in bytes.
package inbox
