package mailbox

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
)

// Config of a Mailbox. A zero field means its default.
type Config struct {
	Self  ident.NodeID            // required
	Lease func(acted uint64) bool // whether this node is sure to lead what it does by the snapshot of an index; required
	// Entries bounds the requests that have a reply here or are waited for; 16,384.
	Entries int
	Bytes   int64 // of the replies; 64 MiB
}

// Mailbox keeps replies. It is safe for concurrent use.
type Mailbox struct {
	cfg   Config
	alarm *sleep.Alarm // for what comes next of the box

	mu       sync.Mutex
	snapshot *cluster.Snapshot // the newest that was acted on
	box      *inbox.Box
	stopped  bool

	entries, bytes prometheus.GaugeFunc
	kept           *prometheus.CounterVec // result
}

// New makes a Mailbox. It starts nothing; deadlines are looked after only while Run does.
func New(cfg Config) *Mailbox {
	cfg.Entries, cfg.Bytes = cmp.Or(cfg.Entries, 1<<14), cmp.Or(cfg.Bytes, 64<<20)
	m := &Mailbox{
		cfg: cfg, alarm: sleep.NewAlarm(), snapshot: &cluster.Snapshot{},
		box: inbox.NewBox(inbox.Bounds{Entries: cfg.Entries, Bytes: cfg.Bytes}),
	}
	m.newMetrics()
	return m
}

// Run looks after deadlines until ctx ends.
func (m *Mailbox) Run(ctx context.Context) error {
	m.alarm.Run(ctx, m.look)
	m.mu.Lock()
	m.stopped = true
	callers := m.box.Clear()
	m.mu.Unlock()
	tell(callers, rpc.Collected{}, fault.New(fault.LeaderUnavailable, "the node is stopping"))
	return nil
}

func (m *Mailbox) look(now time.Time) time.Time {
	m.mu.Lock()
	late, _ := m.box.Expire(now)
	next, _ := m.box.Next()
	m.mu.Unlock()
	tell(late, rpc.Collected{}, nil)
	return next
}

// Apply takes in a snapshot: what is kept for a partition that is led elsewhere is of no
// use any more, for whoever collects asks there.
func (m *Mailbox) Apply(s *cluster.Snapshot) {
	m.mu.Lock()
	m.snapshot = s
	var callers []*inbox.Caller
	if m.box.Entries() > 0 {
		for p := range m.box.Of() {
			if m.leadsLocked(p) != nil {
				callers = append(callers, m.box.DropOf(p)...)
			}
		}
	}
	m.mu.Unlock()
	tell(callers, rpc.Collected{}, errNotLed)
}

var errNotLed = fault.New(fault.LeaderUnavailable, "this node does not lead the request's partition (any more)")

// leadsLocked says why nothing of a partition is kept here.
func (m *Mailbox) leadsLocked(p ident.Partition) error {
	if t := m.snapshot.ByID[p.Topic]; t != nil && !m.stopped {
		if part, ok := t.Partition(p.Index); ok && part.Leader == m.cfg.Self {
			return nil
		}
	}
	return errNotLed
}

// mineLocked reads an inbox whose replies are kept here.
func (m *Mailbox) mineLocked(to string) (inbox.Address, error) {
	a, err := inbox.Parse(to)
	if err != nil || !a.Lasting {
		return a, fault.New(fault.Invalid, "this is no inbox that is kept at a leader")
	}
	if err := m.leadsLocked(a.Ref()); err != nil {
		return a, err
	}
	if !m.cfg.Lease(m.snapshot.Index) {
		return a, fault.New(fault.LeaderUnavailable, "this node's lease of a broker is over: it is not sure to lead")
	}
	return a, nil
}

// KeepReply takes a reply whose gateway takes none by itself any more: it has said so (gone),
// or the life of its node is over. Whoever only cannot reach the gateway is refused, for it
// may have a reply already. The first one counts. When its request was kept only who collects
// knows, who has read it; it was not later than now.
func (m *Mailbox) KeepReply(_ context.Context, to string, r *inbox.Reply, gone bool) (rpc.Handed, error) {
	m.mu.Lock()
	a, err := m.mineLocked(to)
	if err == nil && !gone && !m.snapshot.Ended(cluster.Life{Node: a.Node, Epoch: a.Life}) {
		err = errNotGone
	}
	if err != nil {
		m.mu.Unlock()
		return 0, err
	}
	v := inbox.Full
	var callers []*inbox.Caller
	if m.box.Hold(a.Token, a.Ref(), time.Now().Add(a.Timeout)) {
		if callers, v = m.box.Put(a.Token, r); v == inbox.Full {
			m.box.Drop(a.Token) // nobody waits there
		}
	}
	m.setLocked()
	m.mu.Unlock()
	tell(callers, rpc.Collected{Reply: r}, nil)
	switch v {
	case inbox.Taken:
		m.kept.WithLabelValues("kept").Inc()
		return rpc.HandedOver, nil
	case inbox.Gone:
		m.kept.WithLabelValues("second").Inc()
		return rpc.HandedNobody, nil
	}
	m.kept.WithLabelValues("full").Inc()
	return 0, full()
}

var errNotGone = fault.New(fault.LeaderUnavailable, "the gateway that was asked counts as alive: it takes the reply, once it can be reached, or the leader of the request's partition does, once the cluster takes it for dead")

func full() error {
	return fault.New(fault.Limit, "the leader of the request's partition keeps as many replies as it may for requests whose gateway is gone; try again in a moment").
		With("limit", "max_kept_replies").Overload()
}

// KeptReply waits so long for a reply, or until the deadline of its request, in ms since
// 1970 by this node's clock.
func (m *Mailbox) KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (rpc.Collected, error) {
	w := &waiter{came: make(chan struct{})}
	m.mu.Lock()
	a, err := m.mineLocked(to)
	if err != nil {
		m.mu.Unlock()
		return rpc.Collected{}, err
	}
	now := time.Now()
	deadline := now.Add(min(time.Duration(until-rpc.Clock(now))*time.Millisecond, a.Timeout))
	if !deadline.After(now) {
		m.mu.Unlock()
		return rpc.Collected{Fate: rpc.Over}, nil
	}
	if !m.box.Hold(a.Token, a.Ref(), deadline) {
		m.mu.Unlock()
		return rpc.Collected{}, full()
	}
	w.caller = inbox.Caller{Token: a.Token, Until: now.Add(wait), Of: w}
	reply, waited := m.box.Wait(&w.caller)
	m.setLocked()
	m.mu.Unlock()
	switch waited {
	case inbox.Here:
		return rpc.Collected{Reply: reply}, nil
	case inbox.Spent:
		return rpc.Collected{Fate: rpc.Over}, nil
	case inbox.Crowded:
		return rpc.Collected{}, full()
	}
	select {
	case <-w.came:
	case <-ctx.Done():
		m.mu.Lock()
		m.box.Leave(&w.caller)
		m.mu.Unlock()
		return rpc.Collected{}, nil
	}
	if w.got.Reply == nil && w.err == nil && !time.Now().Before(deadline) {
		w.got.Fate = rpc.Over
	}
	return w.got, w.err
}

// waiter is one who collects.
type waiter struct {
	caller inbox.Caller
	came   chan struct{} // closed when there is something
	got    rpc.Collected
	err    error
}

// tell lets those go who waited.
func tell(callers []*inbox.Caller, got rpc.Collected, err error) {
	for _, c := range callers {
		w := c.Of.(*waiter)
		if w.err = err; got.Reply != nil {
			w.got.Reply = got.Reply.Clone() // it is only lent
		}
		close(w.came)
	}
}

func (m *Mailbox) setLocked() {
	if next, ok := m.box.Next(); ok {
		m.alarm.Set(next)
	}
}
