// Package group is what a gateway decides about consumer groups: what one snapshot
// says of a group and its members, which of their partitions lie at which leader, how
// answers of several leaders become one, how leased records look to clients, and which
// settlements of a member may travel together. It is pure.
package group
