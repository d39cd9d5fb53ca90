// Package seats bounds the long-lived connections of a node, over all transports,
// and spreads how they come and go.
//
//	Seats      how many there are, in all and from one address, and how many come in
//	           a second; those that are refused are told when to come again, one
//	           after another
//	Parting    how the clients of a node that stops hear of it, and when each is to
//	           come back
package seats
