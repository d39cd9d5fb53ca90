// Package membership tells nodes of one another by gossip (memberlist): which there
// are, of which cluster, at which addresses. It is discovery and nothing more: gossip
// alone never decides that a node is dead, and never changes who coordinates.
//
// Each process is a member of its own, named by its node's id and its start, so that
// a node which comes back elsewhere need not wait until the old one is forgotten. Of
// several with one id the one that started last counts.
//
// Two clusters never merge: who knows its cluster takes in nobody of another one.
// Who knows none yet may meet anybody. Seeds and peers known of old are joined again
// and again, because after a long split both sides have given one another up.
//
// Who founds a cluster is a pure decision of what gossip tells: see Founder.
package membership
