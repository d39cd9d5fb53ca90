// Package groups is consumer groups as clients of any gateway use them: what package group
// decides, carried to the coordinator and to the leaders of partitions, wherever they are.
//
// It promises that a call follows a leader that moves, until its time is over; that what
// was leased goes on to its client, whatever else fails meanwhile; and that nothing is
// called settled that no leader has said to be.
//
// The life of a delivery: a puller waits at all leaders of a member's partitions at once,
// which leases nothing, so a wait may be given up at any time. Where one of them has
// something it is asked for as much as there is room for: that leases, and is not given
// up any more.
package groups
