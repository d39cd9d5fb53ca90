package ask

import (
	"time"

	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

// key names a request by what its client said.
type key struct {
	principal   string
	topic       ident.TopicID
	correlation string
}

// lasting is a request with a correlation id of its client's: it is kept until its deadline,
// and repeats join it. Guarded by the mutex of Ask.
type lasting struct {
	key      key
	hash     [16]byte // of its content
	address  inbox.Address
	until    time.Time
	stage    stage
	accepted Accepted
	// timestamp is when it was kept, in ms since 1970 by the leader's clock; 0: not known.
	timestamp int64
	sought    bool    // its reply is looked for at the leader
	calls     []*Call // that are to hear that it is kept
}

// stage is what is known of a request.
type stage uint8

const (
	fresh  stage = iota // it has yet to be published
	asking              // it is being published
	known               // it is kept
	unsure              // nobody knows: a repeat publishes it again, to the same inbox
)

// beginLasting begins a request that can be repeated, or joins the one before.
func (a *Ask) beginLasting(c *Call, q *Request, s *cluster.Snapshot, t *cluster.Topic) error {
	c.correlation = q.Correlation
	name := key{q.Principal, t.ID, q.Correlation}
	hash := record.ContentHash(&q.Record)
	a.mu.Lock()
	k := a.byKey[name]
	var err error
	switch {
	case a.draining:
		err = fault.New(fault.Draining, "the node is shutting down; ask another")
	case k != nil && k.hash != hash:
		err = reused(q.Correlation)
	}
	unserved := k == nil && !served(s, t)
	if err != nil {
		a.mu.Unlock()
		return err
	}
	if k == nil {
		life, _ := a.cfg.Life()
		k = &lasting{key: name, hash: hash, until: c.caller.Until, address: inbox.Address{
			Topic: t.ID, Node: a.cfg.Self, Process: a.process, Token: drawn(), Lasting: true, Life: life, Partition: place(t, q), Timeout: q.Timeout,
		}}
		if !a.box.Hold(k.address.Token, k.address.Ref(), k.until) {
			a.mu.Unlock()
			return a.crowded()
		}
		a.byKey[name], a.byToken[k.address.Token] = k, k
	}
	c.caller.Token = k.address.Token
	if k.until.Before(c.caller.Until) {
		c.caller.Until = k.until
	}
	reply, w := a.box.Wait(&c.caller)
	if w == inbox.Crowded {
		if k.stage == fresh { // nothing was published
			a.dropLocked(k)
		}
		a.mu.Unlock()
		return a.crowded()
	}
	a.setLocked()
	a.watchLocked()
	was, found := k.stage, k.accepted
	if was != known {
		k.calls = append(k.calls, c)
		k.stage = asking
	}
	if unserved {
		// Nobody would get it: but it may be a repeat, whose reply is there.
		original := rpc.Sought{Partition: k.address.Ref(), Key: *idempotency(k)}
		err = a.gatherLocked(func() { a.seek(k, original, t.Name) })
	}
	a.mu.Unlock()
	if unserved {
		if err != nil {
			a.fail(k, err)
		}
		return nil
	}

	switch was {
	case known:
		found.Duplicate = true
		c.accepted(found)
	case fresh, unsure:
		req := publish.Request{Topic: t.Name, Partition: &k.address.Partition, Timeout: max(time.Until(c.caller.Until), inbox.MinTimeout), Record: q.Record}
		req.Record.Headers = headers(&q.Record, &k.address, c)
		req.Record.Idempotency = idempotency(k)
		a.cfg.Publisher.Publish(req, func(res publish.Result) { a.published(k, res) })
	}
	switch w {
	case inbox.Here:
		c.answered(reply, nil)
	case inbox.Spent:
		c.answered(nil, errSpent)
	}
	return nil
}

// idempotency is what the leader knows a request by that can be repeated.
func idempotency(k *lasting) *record.Idempotency {
	return &record.Idempotency{Principal: k.key.principal, Key: keyed + k.key.correlation, Hash: k.hash}
}

var errSpent = fault.New(fault.ReplyTimeout, "the reply came, went to an earlier call of this request, and is not kept: the node had no room for it")

func reused(correlation string) error {
	return fault.New(fault.IdempotencyKeyReused, "correlation id %q came before with another key, content type or body: a request of its own takes an id of its own", correlation)
}

// published is what became of the record of a request that can be repeated.
func (a *Ask) published(k *lasting, res publish.Result) {
	if fault.Is(res.Err, fault.IdempotencyKeyReused) {
		res.Err = reused(k.key.correlation)
	}
	at := Accepted{Partition: res.Partition, Offset: res.Offset, Correlation: k.key.correlation, Duplicate: res.Duplicate}
	a.mu.Lock()
	kept := res.Err == nil // if not under this inbox, then under that of another
	k.timestamp = res.Timestamp
	if kept && res.Duplicate {
		res.Err = a.gatherLocked(func() { a.collect(k, at, res.Timestamp) })
		if res.Err == nil {
			a.mu.Unlock()
			return
		}
	}
	calls := k.calls
	k.calls = nil
	switch {
	case res.Err == nil:
		k.stage, k.accepted = known, at
	case kept, fault.Is(res.Err, fault.UnknownOutcome):
		k.stage = unsure
	default:
		a.dropLocked(k)
	}
	a.mu.Unlock()
	for _, c := range calls {
		if res.Err != nil {
			c.failed(res.Err)
		} else {
			c.accepted(at)
		}
	}
}

// accept lets everybody know that a request is kept.
func (a *Ask) accept(k *lasting, at Accepted) {
	a.mu.Lock()
	calls := k.calls
	k.calls, k.stage, k.accepted = nil, known, at
	a.mu.Unlock()
	for _, c := range calls {
		c.accepted(at)
	}
}

// fail ends a request for everybody who waits.
func (a *Ask) fail(k *lasting, err error) {
	a.mu.Lock()
	calls := k.calls
	k.calls = nil
	callers := a.dropLocked(k)
	a.mu.Unlock()
	for _, c := range calls {
		c.failed(err)
	}
	for _, c := range callers {
		c.Of.(*Call).answered(nil, err)
	}
}

// dropLocked forgets a request.
func (a *Ask) dropLocked(k *lasting) []*inbox.Caller {
	if a.byToken[k.address.Token] != k {
		return nil
	}
	a.forgetLocked(k.address.Token)
	return a.box.Drop(k.address.Token)
}

// forgetLocked forgets the name of a request whose entry has ended.
func (a *Ask) forgetLocked(token inbox.Token) {
	if k := a.byToken[token]; k != nil {
		delete(a.byToken, token)
		delete(a.byKey, k.key)
	}
}
