package control

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// Propose makes a change and gives its answer; a refusal is an error. It tries under
// one request id until ctx or proposeLimit ends. When it returns the feed has reached
// the change, but for a Commit, which is not on it.
func (r *Remote) Propose(ctx context.Context, change cluster.Change) (cluster.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	request := cluster.RequestID(uuid.New())
	open, pause := false, leastPause
	for {
		var answer cluster.Answer
		err := r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) (err error) {
			answer, err = r.cfg.Client.Propose(ctx, to, request, change)
			return err
		})
		if err == nil {
			if answer.Refusal != nil {
				return cluster.Answer{}, answer.Refusal.Fault()
			}
			if !change.OnFeed() {
				return answer, nil
			}
			// A feed that lags for longer than the caller waits makes the answer no
			// less true.
			_, _ = r.feed.Next(ctx, answer.Index-min(answer.Index, 1))
			return answer, nil
		}
		v := Judge(err)
		if v == Final && !open {
			return cluster.Answer{}, err
		}
		open = open || v == Unknown && err != error(errNobody)
		if !sleep.For(ctx, pause) {
			return cluster.Answer{}, Unavailable(open, err)
		}
		pause = min(2*pause, mostPause/2)
	}
}

// Renew asks for a lease. It follows where a coordinator points and makes no other
// tries: who renews does so again and again.
func (r *Remote) Renew(ctx context.Context, renewal cluster.Renewal) (lease cluster.Lease, err error) {
	err = r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) (err error) {
		lease, err = r.cfg.Client.Renew(ctx, to, renewal)
		return err
	})
	return lease, err
}

// Report tells the leading coordinator that a node may be dead.
func (r *Remote) Report(ctx context.Context, s cluster.Suspicion) error {
	return r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) error { return r.cfg.Client.Report(ctx, to, s) })
}

// Decided asks the leading coordinator for the index of the latest change of a snapshot
// that anybody can have had an answer to before.
func (r *Remote) Decided(ctx context.Context) (index uint64, err error) {
	err = r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) (err error) {
		index, err = r.cfg.Client.Decided(ctx, to)
		return err
	})
	return index, err
}

// Touch tells the leading coordinator of signs of life of groups' members, in as many
// calls as they need. What it answers is of all of them.
func (r *Remote) Touch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	return InParts(ctx, signs, func(ctx context.Context, part []cluster.SignOfLife) (lost cluster.Lost, err error) {
		err = r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) (err error) {
			lost, err = r.cfg.Client.Touch(ctx, to, part)
			return err
		})
		return lost, err
	})
}

// Progress tells how far groups have come on a partition, as of an index or later. It
// asks until ctx or proposeLimit ends.
func (r *Remote) Progress(ctx context.Context, of cluster.ProgressOf) (all []cluster.GroupProgress, err error) {
	ctx, cancel := context.WithTimeout(ctx, proposeLimit)
	defer cancel()
	pause := leastPause
	for {
		err = r.call(ctx, tryLimit, func(ctx context.Context, to ident.NodeID) (err error) {
			all, err = r.cfg.Client.Progress(ctx, to, of)
			return err
		})
		if err == nil || Judge(err) == Final || !sleep.For(ctx, pause) {
			return all, err
		}
		pause = min(2*pause, mostPause/2)
	}
}

// InParts tells signs of life, so many at once as one call takes.
func InParts(ctx context.Context, signs []cluster.SignOfLife, touch func(context.Context, []cluster.SignOfLife) (cluster.Lost, error)) (cluster.Lost, error) {
	var all cluster.Lost
	at := 0
	for part := range slices.Chunk(signs, cluster.MaxSigns) {
		lost, err := touch(ctx, part)
		if err != nil {
			return cluster.Lost{}, err
		}
		for _, i := range lost.Lives {
			all.Lives = append(all.Lives, at+i)
		}
		at += len(part)
	}
	return all, nil
}

// call asks the leading coordinator, and where one that does not lead points to
// another, that one: once, for it may be pointing back.
func (r *Remote) call(ctx context.Context, limit time.Duration, ask func(context.Context, ident.NodeID) error) error {
	var err error = errNobody
	for range 2 {
		to := r.pick()
		if to == (ident.NodeID{}) {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		err = ask(limited, to)
		cancel()
		if err == nil || Judge(err) == Final {
			r.heardOf(to)
			return err
		}
		leader := LeaderIn(err)
		if leader == (ident.NodeID{}) || leader == to {
			r.missed(to)
			return err
		}
		r.heardOf(leader)
	}
	return err
}
