package coordinator

import (
	"context"
	"slices"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
)

// touch is a call with signs of life.
type touch struct {
	signs   []cluster.SignOfLife
	arrived time.Time
	answer  chan cluster.Lost // holds it
}

// touch takes signs of life in. They count from when they came, however long they wait.
func (r *rule) touch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	t := &touch{signs: signs, arrived: time.Now(), answer: make(chan cluster.Lost, 1)}
	select {
	case r.touches <- t:
	case <-r.done:
		return cluster.Lost{}, interrupted()
	case <-ctx.Done():
		return cluster.Lost{}, fault.New(fault.CoordinatorUnavailable, "too many signs of life wait: %w", context.Cause(ctx)).After(tickEvery)
	}
	select {
	case lost := <-t.answer:
		return lost, nil
	case <-r.done:
		return cluster.Lost{}, interrupted()
	case <-ctx.Done():
		return cluster.Lost{}, fault.New(fault.CoordinatorUnavailable, "the signs of life were not looked at in time: %w", context.Cause(ctx)).After(tickEvery)
	}
}

func (r *rule) touched(t *touch) {
	t.answer <- r.sessions.Touch(time.Now(), t.arrived, r.of.feed.Snapshot(), t.signs)
}

// endSessions has lives of members ended that were not heard for a session. Nobody's
// leadership need be proved for that: the end is a change like any other, and a member's
// next life is another one. What the machine names while others are under way it names again.
func (r *rule) endSessions(now time.Time, s *cluster.Snapshot) {
	over := r.sessions.Tick(now, s)
	r.members.Store(int64(r.sessions.Members()))
	if len(over) == 0 || r.lapsing {
		return
	}
	r.lapsing = true
	r.lapses <- over // there is room: the one before is done
}

// lapse ends lives of members.
func (r *rule) lapse(ctx context.Context) {
	for {
		select {
		case all := <-r.lapses:
			r.of.cfg.Logger.Info("sessions of group members are over", "members", len(all), "first", all[0].Member)
			for part := range slices.Chunk(all, cluster.MaxLapse) {
				r.make(ctx, cluster.Change{MemberLapse: &cluster.MemberLapse{Lives: part}})
			}
			r.of.metrics.lapses.Add(float64(len(all)))
			r.lapsed <- struct{}{} // there is room: run takes one before it sends another
		case <-ctx.Done():
			return
		}
	}
}
