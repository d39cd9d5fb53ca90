package ask_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
	"tidewire/internal/testkit/activity"
)

// link is the way from one node to another.
type link struct {
	w        *world
	from, to ident.NodeID
}

// cross says why a call does not come to the other node.
func (l link) cross() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.from != l.to {
		l.w.calls++
	}
	if l.from != l.to && (l.w.cut[l.to] || l.w.cut[l.from] || l.w.split[[2]ident.NodeID{l.from, l.to}] || l.w.split[[2]ident.NodeID{l.to, l.from}]) {
		return fault.New(fault.LeaderUnavailable, "cut")
	}
	return nil
}

// back says why its answer does not: a node that is cut off in the meantime is silent.
func (l link) back() error {
	if err := l.cross(); err != nil {
		return fault.New(fault.UnknownOutcome, "cut meanwhile")
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.lose {
		return fault.New(fault.UnknownOutcome, "lost")
	}
	return nil
}

// mute is the answer of a node that is paused: none.
func (l link) mute(ctx context.Context) error {
	l.w.mu.Lock()
	mute := l.w.mute[l.to]
	l.w.mu.Unlock()
	if !mute {
		return nil
	}
	<-ctx.Done()
	return fault.New(fault.UnknownOutcome, "silent: %w", ctx.Err())
}

func (l link) HandReply(ctx context.Context, to string, r *inbox.Reply) (h rpc.Handed, err error) {
	if err := l.mute(ctx); err != nil {
		return 0, err
	}
	if err = l.cross(); err == nil {
		if h, err = l.w.asks[l.to].ServeReply(ctx, to, r); err == nil {
			err = l.back()
		}
	}
	return h, err
}

func (l link) CollectReply(ctx context.Context, to string, wait time.Duration) (c rpc.Collected, err error) {
	if err := l.mute(ctx); err != nil {
		return c, err
	}
	if err = l.cross(); err == nil {
		if c, err = l.w.asks[l.to].ServeCollect(ctx, to, wait); err == nil {
			err = l.back()
		}
	}
	return c, err
}

func (l link) leads() error {
	if l.w.Snapshot().ByID[l.w.topic.ID].Partitions[0].Leader != l.to {
		return fault.New(fault.LeaderUnavailable, "not led here")
	}
	return nil
}

func (l link) KeepReply(ctx context.Context, to string, r *inbox.Reply, gone bool) (h rpc.Handed, err error) {
	if err := l.mute(ctx); err != nil {
		return 0, err
	}
	if err = l.cross(); err == nil {
		err = l.leads()
	}
	if err == nil {
		a, _ := inbox.Parse(to)
		if life := (cluster.Life{Node: a.Node, Epoch: a.Life}); !gone && !l.w.Snapshot().Ended(life) {
			err = fault.New(fault.LeaderUnavailable, "it counts as alive")
		}
	}
	if err == nil {
		if h, err = l.w.mail[l.to].keep(to, r); err == nil {
			err = l.back()
		}
	}
	return h, err
}

func (l link) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (c rpc.Collected, err error) {
	if err = l.cross(); err == nil {
		err = l.leads()
	}
	if err == nil {
		if c, err = l.w.mail[l.to].collect(ctx, to, until, wait); err == nil {
			if err = l.back(); err == nil {
				err = l.leads()
			}
		}
	}
	return c, err
}

func (l link) Original(_ context.Context, s rpc.Sought) (o rpc.Original, err error) {
	if err = l.cross(); err == nil {
		err = l.leads()
	}
	if err == nil {
		if o, err = l.w.original(&s.Key); err == nil {
			err = l.back()
		}
	}
	return o, err
}

// mailbox is what a leader keeps, in short.
type mailbox struct {
	mu    sync.Mutex
	box   *inbox.Box
	alarm *sleep.Alarm
}

func newMailbox(t *testing.T) *mailbox {
	m := &mailbox{box: inbox.NewBox(inbox.Bounds{Entries: 100, Bytes: 1 << 20}), alarm: sleep.NewAlarm()}
	activity.Start(t, func(ctx context.Context) error {
		m.alarm.Run(ctx, m.look)
		return nil
	})
	return m
}

func (m *mailbox) look(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	late, _ := m.box.Expire(now)
	tell(late, nil)
	next, _ := m.box.Next()
	return next
}

func tell(callers []*inbox.Caller, r *inbox.Reply) {
	for _, c := range callers {
		c.Of.(chan *inbox.Reply) <- r
	}
}

func (m *mailbox) again() {
	if next, ok := m.box.Next(); ok {
		m.alarm.Set(next)
	}
}

func (m *mailbox) keep(to string, r *inbox.Reply) (rpc.Handed, error) {
	a, err := inbox.Parse(to)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.box.Hold(a.Token, a.Ref(), time.Now().Add(a.Timeout))
	callers, v := m.box.Put(a.Token, r)
	tell(callers, r.Clone())
	m.again()
	if v == inbox.Gone {
		return rpc.HandedNobody, nil
	}
	return rpc.HandedOver, nil
}

func (m *mailbox) collect(ctx context.Context, to string, until int64, wait time.Duration) (rpc.Collected, error) {
	a, err := inbox.Parse(to)
	if err != nil {
		return rpc.Collected{}, err
	}
	deadline := time.UnixMilli(until)
	if !time.Now().Before(deadline) {
		return rpc.Collected{Fate: rpc.Over}, nil
	}
	m.mu.Lock()
	m.box.Hold(a.Token, a.Ref(), deadline)
	came := make(chan *inbox.Reply, 1)
	c := &inbox.Caller{Token: a.Token, Until: time.Now().Add(wait), Of: came}
	r, _ := m.box.Wait(c)
	m.again()
	m.mu.Unlock()
	if r != nil {
		return rpc.Collected{Reply: r}, nil
	}
	select {
	case r = <-came:
	case <-ctx.Done():
		m.mu.Lock()
		m.box.Leave(c)
		m.mu.Unlock()
	}
	if r == nil && !time.Now().Before(deadline) {
		return rpc.Collected{Fate: rpc.Over}, nil
	}
	return rpc.Collected{Reply: r}, nil
}
