// Package obs is how a node is watched: its logger and the keys of log
// attributes, its metrics registry, what build it is, and how many files and
// connections its process may hold. It keeps no state; what it makes is passed
// on by hand.
package obs
