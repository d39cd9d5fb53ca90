package replication

import (
	"time"

	"tidewire/internal/record"
)

// ends remembers where a leader's log ended at recent moments. A follower is behind
// when it has not reached what was the end one replica_lag ago: so one that stops is
// noticed after one replica_lag, and one that is always a little late never.
type ends struct {
	marks []mark // oldest first; the first one is the newest that is at least a lag old
}

type mark struct {
	at  time.Time
	end record.Position
}

// note adds where the log ends now, and forgets what is older than is asked for.
func (e *ends) note(now time.Time, end record.Position, lag time.Duration) {
	if n := len(e.marks); n > 0 && e.marks[n-1].end == end && n > 1 {
		// Nothing came since the last mark: it stands for all the time from then on.
	} else {
		e.marks = append(e.marks, mark{now, end})
	}
	for len(e.marks) > 1 && now.Sub(e.marks[1].at) >= lag {
		e.marks = e.marks[1:]
	}
}

// due is what has to be reached by now; false where the leader has not led for so
// long yet.
func (e *ends) due(now time.Time, lag time.Duration) (record.Position, bool) {
	if len(e.marks) == 0 || now.Sub(e.marks[0].at) < lag {
		return record.Position{}, false
	}
	return e.marks[0].end, true
}
