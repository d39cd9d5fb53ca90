// Package access decides who may do what: a token and the time give a Grant, a
// Grant and a right give yes or an error that names what is missing. It is pure:
// no clock, no request, no connection.
//
// A token is a JWT signed with HS256 and a secret, or with RS256, ES256 or EdDSA and
// the private half of a key. Its signature algorithm is the verifier's choice and
// never the token's: what there is no key of its own for, "none" above all, is
// refused. The key's holder is trusted, everybody else is not, so nothing of a token
// is believed, or told, before its signature is proven.
//
// Rights stand in the claim "tidewire": a list of patterns for each thing that
// can be done with a topic, and admin for the rest. All transports ask the same
// Grant, and one that is missing may do nothing.
package access
