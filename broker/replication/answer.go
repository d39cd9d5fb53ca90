package replication

import (
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// Compare decides, at the leader, whether a follower's log is a prefix of its own.
// start is where the leader's log starts, end its end.
//
// A log that has no batch agrees where it begins at or behind the leader's start: it
// took that start from a leader. Else the follower's last epoch has to be one that
// the leader has, and the follower must not go further in it than the leader.
func Compare(s *rpc.Standing, start, end record.Position, h History) rpc.Divergence {
	d := rpc.Divergence{Partition: s.Partition, Epoch: s.Epoch, Start: start.Offset, Of: s.End, OfLast: s.Last}
	if s.End.Before(start) {
		d.End = start // it lacks what is no longer kept
		return d
	}
	if s.Last == 0 {
		d.Agreed = !end.Before(s.End)
		d.End = end
		return d
	}
	d.Last, d.End = h.EpochEndPosition(s.Last)
	d.Agreed = d.Last == s.Last && !d.End.Before(s.End)
	return d
}

// BeginsAnew says whether an answer tells a follower to drop all it has, and to begin where the
// leader's log starts: what the leader has begins behind the follower's end, or after its
// last epoch.
func BeginsAnew(d *rpc.Divergence) bool {
	return !d.Agreed && d.Last == 0 && d.End != (record.Position{}) && d.End.Offset == d.Start
}
