package ask

import (
	"context"
	"sync"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// mostCollecting bounds the repeats whose replies are collected elsewhere.
	mostCollecting = 1024
	// collectWait is how long one call waits for a reply, and doubtWait one at the leader
	// while the gateway that was asked may only be out of reach.
	collectWait = 5 * time.Second
	doubtWait   = 500 * time.Millisecond
	// readBytes is more than the batch of most requests has; one batch comes in any case.
	readBytes = 64 << 10
	// leastPause and mostPause bound the wait for who did not answer.
	leastPause = 20 * time.Millisecond
	mostPause  = 200 * time.Millisecond
)

// gatherLocked has a goroutine do what brings the reply to a repeat.
func (a *Ask) gatherLocked(do func()) error {
	if a.draining {
		return errDraining
	}
	if a.collecting >= mostCollecting {
		return fault.New(fault.Limit, "the node collects as many replies for repeated requests as it may (%d); ask again in a moment", mostCollecting).With("limit", "max_collected_replies").Overload()
	}
	a.collecting++
	a.running.Go(func() {
		do()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.collecting--
	})
	return nil
}

// seek looks for the original of a request that nobody serves now. Where there is one its
// reply is collected; nothing is published.
func (a *Ask) seek(k *lasting, original rpc.Sought, topic string) {
	ctx, cancel := context.WithDeadline(a.life, k.until)
	defer cancel()
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := a.cfg.Topology.Snapshot()
		var found rpc.Original
		m, err := a.mail(s, original.Partition)
		if err == nil {
			found, err = m.Original(ctx, original)
		}
		switch {
		case err == nil && !found.Known:
			a.fail(k, noResponders(topic))
			return
		case err == nil:
			at := Accepted{Partition: original.Partition.Index, Offset: found.Offset, Correlation: k.key.correlation, Duplicate: true}
			a.collect(k, at, found.Timestamp)
			return
		case fault.Is(err, fault.IdempotencyKeyReused):
			a.fail(k, reused(k.key.correlation))
			return
		case !passing(err), !a.await(ctx, s.Index, pause):
			a.fail(k, err)
			return
		}
	}
}

// collect brings the reply to a repeat, or why there is none.
func (a *Ask) collect(k *lasting, at Accepted, timestamp int64) {
	ctx, cancel := context.WithDeadline(a.life, k.until)
	defer cancel()
	to, err := a.original(ctx, k.address.Ref(), at.Offset)
	if err != nil {
		a.fail(k, err)
		return
	}
	if to.Token == k.address.Token { // a batch that was sent again: it is this request's own
		at.Duplicate = false
		a.accept(k, at)
		return
	}
	a.accept(k, at)
	reply, err := a.fetch(ctx, to, timestamp+to.Timeout.Milliseconds(), false)
	switch {
	case err != nil:
		a.fail(k, err)
	case reply != nil:
		a.put(k.address.Token, reply)
	}
}

// original reads the inbox out of the record of a request.
func (a *Ask) original(ctx context.Context, ref ident.Partition, at ident.Offset) (to inbox.Address, err error) {
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		s := a.cfg.Topology.Snapshot()
		var res rpc.ReadResult
		if res, err = a.cfg.Reader.Read(ctx, rpc.Read{Partition: ref, Offset: at, MaxBytes: readBytes}); err == nil {
			if text, ok := replyTo(res.Batches, at); ok {
				return inbox.Parse(text)
			}
			err = fault.New(fault.LeaderUnavailable, "the original of the request cannot be read yet")
		}
		if !passing(err) {
			return to, fault.New(fault.ReplyTimeout, "the original of the request is not kept any more: %w", err)
		}
		if !a.await(ctx, s.Index, pause) {
			return to, fault.New(fault.ReplyTimeout, "the original of the request could not be read in time: %w", err)
		}
	}
}

// replyTo finds the inbox of a record in batches.
func replyTo(batches []byte, at ident.Offset) (string, bool) {
	for rest := batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil {
			return "", false
		}
		rest = more
		h := b.Header()
		for it := b.Entries(); it.Next(); {
			e := it.Entry()
			if e.Void || h.Base+ident.Offset(e.Delta) != at {
				continue
			}
			for _, f := range e.Headers {
				if f.Name == ReplyTo {
					return f.Value, true
				}
			}
			return "", true // no request: its inbox does not parse
		}
	}
	return "", false
}

// fetch waits for the reply at an inbox that another call of this request waits at, or
// waited; nil without an error: ctx ended first. until is by the leader's clock. gone: only
// the leader can have it.
func (a *Ask) fetch(ctx context.Context, to inbox.Address, until int64, gone bool) (*inbox.Reply, error) {
	for pause := leastPause; ctx.Err() == nil; {
		s, began := a.cfg.Topology.Snapshot(), time.Now()
		var got rpc.Collected
		var err error
		answers := !gone && a.lives(s, &to) // a gateway that does not may be back later, with the reply
		if answers {
			if got, err = a.fromGateway(ctx, &to); err == nil && got.Fate == rpc.Elsewhere && got.Reply == nil {
				gone = true
			}
		}
		if !answers || gone || err != nil {
			wait := collectWait
			if answers && !gone {
				wait = doubtWait
			}
			got, err = a.fromLeader(ctx, s, &to, until, wait)
		}
		switch {
		case err != nil && !passing(err):
			return nil, err
		case err != nil:
		case got.Reply != nil:
			return got.Reply, nil
		case got.Fate == rpc.Over:
			return nil, fault.New(fault.ReplyTimeout, "no reply came within the %s of the original request", to.Timeout)
		}
		if time.Since(began) > mostPause { // it was waited there
			pause = leastPause
			continue
		}
		if !a.await(ctx, s.Index, pause) {
			return nil, nil
		}
		pause = min(2*pause, mostPause)
	}
	return nil, nil
}

// fromGateway waits at the gateway that was asked.
func (a *Ask) fromGateway(ctx context.Context, to *inbox.Address) (rpc.Collected, error) {
	if to.Node == a.cfg.Self {
		return a.join(ctx, to, collectWait), nil
	}
	p, err := a.cfg.Peer(to.Node)
	if err != nil {
		return rpc.Collected{}, err
	}
	if over(a.cfg.Topology.Snapshot(), to) {
		return p.CollectReply(ctx, to.String(), collectWait)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer func() { cancel(); watching.Wait() }()
	watching.Go(func() {
		a.awaitOver(ctx, to)
		cancel()
	})
	return p.CollectReply(ctx, to.String(), collectWait)
}

// awaitOver waits until the life is over in which a gateway was asked: from then on it may
// not answer any more, and the leader has what comes.
func (a *Ask) awaitOver(ctx context.Context, to *inbox.Address) {
	s := a.cfg.Topology.Snapshot()
	for ctx.Err() == nil && !over(s, to) {
		a.await(ctx, s.Index, collectWait)
		s = a.cfg.Topology.Snapshot()
	}
}

// fromLeader waits at the leader of the request's partition.
func (a *Ask) fromLeader(ctx context.Context, s snapshot, to *inbox.Address, until int64, wait time.Duration) (rpc.Collected, error) {
	m, err := a.mail(s, to.Ref())
	if err != nil {
		return rpc.Collected{}, err
	}
	return m.KeptReply(ctx, to.String(), until, wait)
}

// ServeCollect waits for the reply to a request of this gateway, for another one.
func (a *Ask) ServeCollect(ctx context.Context, to string, wait time.Duration) (rpc.Collected, error) {
	address, err := inbox.Parse(to)
	if err != nil {
		return rpc.Collected{}, fault.New(fault.Invalid, "%w", err)
	}
	return a.join(ctx, &address, wait), nil
}

// join waits with those who wait already.
func (a *Ask) join(ctx context.Context, to *inbox.Address, wait time.Duration) (got rpc.Collected) {
	came := make(waiter, 1)
	c := &Call{ask: a, client: came, proxy: true, told: true}
	c.caller = inbox.Caller{Token: to.Token, Until: time.Now().Add(wait), Of: c}
	a.mu.Lock()
	if mine := a.mineLocked(to); !mine || !a.box.Knows(to.Token) {
		a.mu.Unlock()
		if !mine {
			return rpc.Collected{Fate: rpc.Elsewhere}
		}
		return rpc.Collected{Fate: rpc.Over}
	}
	reply, w := a.box.Wait(&c.caller)
	a.setLocked()
	a.mu.Unlock()
	switch w {
	case inbox.Here:
		return rpc.Collected{Reply: reply}
	case inbox.Spent:
		return rpc.Collected{Fate: rpc.Over}
	case inbox.Crowded:
		return rpc.Collected{Fate: rpc.NotYet}
	}
	select {
	case got.Reply = <-came:
	case <-ctx.Done():
		c.Leave()
	}
	if got.Reply == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch {
		case !a.mineLocked(to):
			got.Fate = rpc.Elsewhere
		case !a.box.Knows(to.Token):
			got.Fate = rpc.Over
		}
	}
	return got
}

// waiter is a client that waits in a goroutine of its own.
type waiter chan *inbox.Reply

func (waiter) Accepted(Accepted) {}

func (w waiter) Answered(r *inbox.Reply, _ error) {
	if r != nil {
		r = r.Clone()
	}
	w <- r
}
