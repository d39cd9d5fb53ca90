package ask

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
)

// A gateway that was stopped for a while (SIGSTOP, a machine that sleeps), or that is cut off,
// knows nothing of what others do meanwhile. So which reply to a request that can be repeated
// is the first is for one to decide at any time: for the gateway that was asked while the
// life of its node counts, and for the partition's leader once that is over. Whether it counts
// is for the coordinators to say, as it is for leaders: a node is sure of it while it has a
// lease, and nobody takes it for dead before that has run out.

// judge is who decides whether a reply is the first.
type judge uint8

const (
	here   judge = iota // this gateway
	leader              // the leader of the request's partition
	nobody              // nobody, until this node has a lease again or its life is over
)

// judgeLocked says who decides about a request; nil: one that cannot be repeated.
func (a *Ask) judgeLocked(k *lasting) judge {
	if k == nil || k.accepted.Duplicate { // of a repeat that collects elsewhere the record has another inbox
		return here
	}
	switch life, held := a.cfg.Life(); {
	case life != k.address.Life, life == 0 && !held:
		return leader
	case !held:
		return nobody
	}
	return here
}

// judge is judgeLocked for an inbox.
func (a *Ask) judge(to *inbox.Address) judge {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.judgeLocked(a.byToken[to.Token])
}

// over says that the leader decides about an inbox, wherever its gateway is.
func over(s snapshot, to *inbox.Address) bool {
	return to.Lasting && s.Ended(cluster.Life{Node: to.Node, Epoch: to.Life})
}

// beatEvery is how often the loop looks whether the node's life is another one, while there
// are requests that can be repeated.
const beatEvery = 250 * time.Millisecond

// beat is what the loop saw last.
type beat struct {
	on   bool
	life ident.BrokerEpoch
}

// watchLocked begins to look.
func (a *Ask) watchLocked() {
	if !a.beat.on {
		life, _ := a.cfg.Life()
		a.beat = beat{true, life}
		a.alarm.Set(time.Now().Add(beatEvery))
	}
}

// beatLocked looks, and says when to do so again; zero: not before watchLocked.
func (a *Ask) beatLocked(now time.Time) time.Time {
	if len(a.byToken) == 0 {
		a.beat = beat{}
		return time.Time{}
	}
	if life, _ := a.cfg.Life(); life != a.beat.life {
		a.beat.life = life
		for _, k := range a.byToken {
			a.lookElsewhereLocked(k)
		}
	}
	return now.Add(beatEvery)
}

// lookElsewhereLocked looks for the reply to a request at the leader, where that decides now
// and may have it.
func (a *Ask) lookElsewhereLocked(k *lasting) {
	if k.sought || a.draining || a.judgeLocked(k) == here || a.box.Answered(k.address.Token) || a.collecting >= mostCollecting {
		return // a reply that comes is judged all the same
	}
	k.sought = true
	timestamp := k.timestamp
	if timestamp == 0 {
		timestamp = time.Now().UnixMilli()
	}
	a.collecting++
	a.running.Go(func() {
		ctx, cancel := context.WithDeadline(a.life, k.until)
		defer cancel()
		if r, err := a.fetch(ctx, k.address, timestamp+k.address.Timeout.Milliseconds(), true); err == nil && r != nil {
			a.put(k.address.Token, r)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.collecting--
	})
}
