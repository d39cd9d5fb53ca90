package replica

import (
	"slices"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// answer is who waits for a batch, and until the log is kept up to where.
type answer struct {
	end     record.Position
	results []rpc.RecordResult
	done    func(rpc.Appended)
}

// queue is who waits for the same thing, in the order of the log.
type queue struct {
	waiting []answer
	first   int
}

func (q *queue) add(a answer) { q.waiting = append(q.waiting, a) }

// next takes the first one that waits for no more than to.
func (q *queue) next(to record.Position) (answer, bool) {
	if q.first == len(q.waiting) || to.Before(q.waiting[q.first].end) {
		return answer{}, false
	}
	a := q.waiting[q.first]
	q.waiting[q.first] = answer{}
	q.first++
	if q.first == len(q.waiting) {
		q.waiting, q.first = q.waiting[:0], 0
	} else if q.first > 64 && q.first > len(q.waiting)/2 {
		q.waiting, q.first = slices.Delete(q.waiting, 0, q.first), 0
	}
	return a, true
}

// end takes all.
func (q *queue) end() []answer {
	all := slices.Clone(q.waiting[q.first:])
	q.waiting, q.first = nil, 0
	return all
}

// outcome is an answer that is to be given.
type outcome struct {
	done func(rpc.Appended)
	with rpc.Appended
}

// news is what came of a call and is told once the lock is free.
type news struct {
	outcomes []outcome
	push     bool // to all followers
	tell     bool // to all followers, of the high watermark
	say      bool // to the leader
	propose  bool
}

func (n *news) fail(q *queue, err error) {
	for _, a := range q.end() {
		n.outcomes = append(n.outcomes, outcome{a.done, rpc.Appended{Err: err}})
	}
}

// unlock frees the lock and tells what there is to tell: first to producers, who wait
// for it, then to others.
func (r *Replica) unlock() { r.unlockAs(false) }

// unlockAs is unlock, and says whether the passing of time is of any interest.
func (r *Replica) unlockAs(quiet bool) {
	r.quiet.Store(quiet)
	n := r.news
	r.news = news{}
	var room, roomToo [4]ident.NodeID
	now, soon := room[:0], roomToo[:0] // followers to push to
	var leader ident.NodeID
	if (n.push || n.tell) && r.leader != nil {
		for _, f := range r.leader.Followers() {
			switch {
			case !f.Agreed:
			case n.push || f.Watched:
				now = append(now, f.Node)
			default:
				soon = append(soon, f.Node)
			}
		}
	}
	if n.say && r.follower != nil {
		leader = r.follower.View().Leader
	}
	r.mu.Unlock()
	for i := range n.outcomes {
		n.outcomes[i].done(n.outcomes[i].with)
	}
	for _, f := range now {
		r.cfg.Outlet.Push(f, r.ref)
	}
	for _, f := range soon {
		r.cfg.Outlet.Tell(f, r.ref)
	}
	if leader != (ident.NodeID{}) {
		r.cfg.Outlet.Say(leader, r.ref)
	}
	if n.propose {
		r.cfg.Outlet.Propose(r.ref)
	}
}
