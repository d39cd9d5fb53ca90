package ask

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/google/uuid"

	"tidewire/gateway/publish"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
	"tidewire/internal/wire"
)

// Headers of a request's record. They keep their spelling, as the system's own do.
const (
	ReplyTo       = "Tidewire-Reply-To"
	CorrelationID = "Tidewire-Correlation-Id"
	Deadline      = "Tidewire-Deadline"
)

// MaxCorrelationBytes bounds a correlation id: it stands among the headers of its record.
const MaxCorrelationBytes = 255

// keyed begins the idempotency key of a request with a correlation id. No Idempotency-Key
// of a client begins so: a header cannot hold these bytes.
const keyed = "\x00request\x00"

// Request is what a client asks.
type Request struct {
	Topic       string
	Record      record.Record // copied before Begin returns
	Principal   string        // whose correlation id it is
	Correlation string        // "": one is made
	Timeout     time.Duration // 0: the default
}

// Begin sends a request on its way. An error says that it was not; otherwise client hears
// of what becomes of it, perhaps before Begin returns. It waits, no longer than the request
// may, where it has to be found out whether there is a topic, or a member of a group.
func (a *Ask) Begin(ctx context.Context, q Request, client Client) (*Call, error) {
	c, err := a.begin(ctx, &q, client)
	if err != nil {
		a.metrics.ended(err)
		return nil, err
	}
	return c, nil
}

func (a *Ask) begin(ctx context.Context, q *Request, client Client) (*Call, error) {
	if strings.HasPrefix(q.Topic, "_") {
		return nil, fault.New(fault.ReservedName, "topic %q is the cluster's own: readable, not writable", q.Topic).With("field", "topic")
	}
	began := time.Now()
	s, t, err := a.route(ctx, q)
	if err != nil {
		return nil, err
	}
	c := &Call{ask: a, client: client, timeout: q.Timeout}
	c.caller.Of, c.caller.Until = c, began.Add(q.Timeout)
	if q.Correlation != "" {
		return c, a.beginLasting(c, q, s, t)
	}
	address := inbox.Address{Topic: t.ID, Node: a.cfg.Self, Process: a.process, Token: drawn()}
	c.caller.Token = address.Token
	c.correlation = uuid.Must(uuid.NewV7()).String()
	if err := a.wait(c); err != nil {
		return nil, err
	}
	req := publish.Request{Topic: t.Name, Timeout: q.Timeout, Record: q.Record}
	req.Record.Headers = headers(&q.Record, &address, c)
	a.cfg.Publisher.Publish(req, c.published)
	return c, nil
}

// route finds the topic of a request. Somebody serves it, unless the request may be a
// repeat: what was asked before is answered all the same.
func (a *Ask) route(ctx context.Context, q *Request) (s snapshot, t *cluster.Topic, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(q.Timeout, inbox.DefaultTimeout))
	defer cancel()
	err = topology.Find(ctx, a.cfg.Topology, func(now snapshot) error {
		var ok bool
		s = now
		if t, ok = s.Topic(q.Topic); !ok {
			return topology.NotFound(q.Topic)
		}
		if err := check(q, t); err != nil {
			return err
		}
		if !served(s, t) && !a.asked(q, t) {
			return noResponders(t.Name)
		}
		return nil
	})
	if q.Correlation != "" && fault.Is(err, fault.NoResponders) {
		err = nil
	}
	return s, t, err
}

// asked says that a request is the repeat of one that this gateway knows.
func (a *Ask) asked(q *Request, t *cluster.Topic) bool {
	if q.Correlation == "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byKey[key{q.Principal, t.ID, q.Correlation}] != nil
}

// check reads the bounds of a request, and fills in what it leaves out.
func check(q *Request, t *cluster.Topic) error {
	if q.Correlation != "" {
		if err := CheckCorrelation(q.Correlation); err != nil {
			return err
		}
	}
	window := t.Settings.IdempotencyWindow
	if q.Timeout == 0 {
		q.Timeout = inbox.DefaultTimeout
		if q.Correlation != "" {
			q.Timeout = min(q.Timeout, window)
		}
	}
	q.Timeout = q.Timeout.Round(time.Millisecond)
	if q.Timeout < inbox.MinTimeout || q.Timeout > inbox.MaxTimeout {
		return fault.New(fault.Invalid, "field \"timeout\" takes a duration from %s to %s", inbox.MinTimeout, wire.ShortDuration(inbox.MaxTimeout)).With("field", "timeout")
	}
	if q.Correlation != "" && q.Timeout > window {
		// Its repeats are found as those of an Idempotency-Key are, for as long.
		return fault.New(fault.Invalid, "field \"timeout\" with a correlation id takes at most the idempotency_window of topic %q, %s: a repeat is known for so long", t.Name, wire.ShortDuration(window)).With("field", "timeout")
	}
	return nil
}

// CheckCorrelation says why an id cannot be a client's correlation id.
func CheckCorrelation(id string) error {
	ok := id != "" && len(id) <= MaxCorrelationBytes
	for i := range len(id) {
		ok = ok && id[i] > 0x20 && id[i] < 0x7f
	}
	if !ok {
		return fault.New(fault.Invalid, "a correlation id (%s, \"correlation\") takes 1 to %d letters, digits and signs of ASCII, without spaces", CorrelationID, MaxCorrelationBytes).With("field", "correlation")
	}
	return nil
}

// wait opens the box for a call that nobody else shares.
func (a *Ask) wait(c *Call) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return fault.New(fault.Draining, "the node is shutting down; nothing was kept")
	}
	if _, w := a.box.Wait(&c.caller); w == inbox.Crowded {
		return a.crowded()
	}
	a.setLocked()
	return nil
}

func (a *Ask) crowded() error {
	return fault.New(fault.Limit, "the node has as many requests under way as it takes (%d); ask another, or again in a moment", a.cfg.Pending).
		With("limit", "max_pending_requests").Overload()
}

func noResponders(topic string) error {
	return fault.New(fault.NoResponders, "no live member of any group serves topic %q; nothing was published. Start one, for example with `tidewire respond %s`", topic, topic).With("topic", topic)
}

// headers are those of the client and the request's own.
func headers(r *record.Record, address *inbox.Address, c *Call) []record.HeaderField {
	out := append(make([]record.HeaderField, 0, len(r.Headers)+3), r.Headers...)
	var room [32]byte
	return append(
		out,
		record.HeaderField{Name: ReplyTo, Value: address.String()},
		record.HeaderField{Name: CorrelationID, Value: c.correlation},
		record.HeaderField{Name: Deadline, Value: string(wire.AppendTime(room[:0], c.caller.Until.UnixMilli()))},
	)
}

func drawn() (t inbox.Token) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

// place is the partition of a request that can be repeated: by its key, else by its
// correlation id, so that a repeat comes to where the original is.
func place(t *cluster.Topic, q *Request) ident.Index {
	if q.Record.Key != nil {
		return topology.Owner(t, ident.KeyHash(q.Record.Key)).Index
	}
	return topology.Owner(t, ident.KeyHash([]byte(keyed+q.Correlation))).Index
}
