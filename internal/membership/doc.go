// Package membership tells nodes of one another by gossip (memberlist): who
// joined, who left, at which addresses. It is discovery and nothing more: gossip
// alone never decides that a node is dead, and never changes who coordinates.
//
// In this version a node gossips alone: it opens its listener, so that its
// address is settled, and leaves in order. It does not join others, and hears
// nobody: see alone.
package membership
