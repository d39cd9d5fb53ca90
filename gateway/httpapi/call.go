package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"tidewire/gateway/access"
	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// Bounds of what a produce call may say.
const (
	minTimeout          = time.Millisecond
	maxTimeout          = time.Minute
	maxIdempotencyBytes = 255
)

// produceHeaders are the headers of a produce call that are ours, as errors
// name them.
var produceHeaders = []string{
	"Tidewire-Key", "Tidewire-Partition", "Tidewire-Acks", "Tidewire-Timeout",
	"Tidewire-Tombstone", "Tidewire-Producer", "Tidewire-Sequence", "Tidewire-H-<name>", idempotencyHeader,
}

const idempotencyHeader = "Idempotency-Key"

// produceParameters are its parameters.
var produceParameters = []string{"key", "partition", "acks", "timeout"}

// produceCall is what a produce call says beside its body.
type produceCall struct {
	topic     *cluster.Topic
	partition *ident.Index
	acks      rpc.Acks
	timeout   time.Duration
	sequenced bool
	producer  ident.ProducerID
	sequence  int64 // of the record, or of the first line

	mediaType   string // without parameters; "" where none is given
	contentType string // as given

	key            *string
	headers        []namedValue // Tidewire-H-…
	tombstone      bool
	idempotencyKey string // "": none
	principal      string // whose key it is
	caller         *access.Grant
	client         string // whose rate it counts against
}

type namedValue struct{ name, value string }

// lines reports a body of one record a line.
func (c *produceCall) lines() bool { return c.mediaType == ndjsonType }

// readProduceCall reads everything but the body. Its errors are mistakes of the
// call: they use no sequence number up.
func (a *API) readProduceCall(r *http.Request) (c produceCall, err error) {
	name := param(r, "topic")
	if strings.HasPrefix(name, "_") {
		return c, fault.New(fault.ReservedName, "topic %q is the cluster's own: readable, not writable", clip(name)).With("field", "topic")
	}
	c.caller, c.client = access.Of(r.Context()), a.cfg.Quota.OfRequest(r)
	c.principal = c.caller.Principal // asked for the right to publish, so there is one
	if c.topic, err = topology.Topic(r.Context(), a.cfg.Topology, name); err != nil {
		return c, err
	}
	q, err := query(r, produceParameters...)
	if err != nil {
		return c, err
	}
	given, err := c.readHeaders(r.Header, produceHeaders)
	if err != nil {
		return c, err
	}
	if len(q) > 0 || len(given) > 0 {
		if err := c.readParameters(q, given, maxTimeout); err != nil {
			return c, err
		}
	}
	if err := c.readSequence(given); err != nil {
		return c, err
	}
	if c.mediaType, err = mediaType(r); err != nil {
		return c, err
	}
	c.contentType = r.Header.Get("Content-Type")
	if c.lines() {
		return c, c.checkLines(given)
	}
	return c, nil
}

// readParameters reads what can be said in the query or in a header.
func (c *produceCall) readParameters(q params, given map[string]string, mostTimeout time.Duration) error {
	for _, p := range []struct {
		name, header string
		take         func(string) error
	}{
		{"key", "Tidewire-Key", func(s string) error { c.key = &s; return nil }},
		{"partition", "Tidewire-Partition", c.takePartition},
		{"acks", "Tidewire-Acks", c.takeAcks},
		{"timeout", "Tidewire-Timeout", func(s string) (err error) {
			c.timeout, err = duration("timeout", s, minTimeout, mostTimeout)
			return err
		}},
	} {
		value, ok := q.get(p.name)
		if header, too := given[p.header]; too {
			if ok && header != value {
				return invalid(p.name, "and header %q say different things; give one of them", p.header)
			}
			value, ok = header, true
		}
		if !ok {
			continue
		}
		if err := p.take(value); err != nil {
			return err
		}
	}
	return nil
}

func (c *produceCall) takePartition(s string) error {
	i, err := wire.ParsePartition(s)
	c.partition = &i
	return err
}

func (c *produceCall) takeAcks(s string) error {
	switch s {
	case "all":
		c.acks = rpc.AcksAll
	case "leader":
		c.acks = rpc.AcksLeader
	case "none":
		c.acks = rpc.AcksNone
	default:
		return invalid("acks", "takes one of all, leader, none, not %q", clip(s))
	}
	return nil
}

// readHeaders gathers the headers that are ours, each of which comes once. Those that the
// call takes are known.
func (c *produceCall) readHeaders(h http.Header, known []string) (map[string]string, error) {
	var names []string
	for name := range h {
		if name == idempotencyHeader || len(name) >= 9 && strings.EqualFold(name[:9], "tidewire-") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	given := map[string]string{}
	slices.Sort(names) // the order in which a record keeps its headers
	for _, name := range names {
		values := h[name]
		if len(values) > 1 {
			return nil, invalid(name, "comes %d times; give it once", len(values))
		}
		switch {
		case strings.HasPrefix(name, "Tidewire-H-"):
			c.headers = append(c.headers, namedValue{name[len("Tidewire-H-"):], values[0]})
		case name == idempotencyHeader && !slices.Contains(known, idempotencyHeader):
			return nil, invalid(name, "is for POST /topics/{topic}; a request that may be repeated takes Tidewire-Correlation-Id")
		case slices.Contains(known, name):
			given[name] = values[0]
		default:
			return nil, fault.Unknown("header", name, known)
		}
	}
	if key, ok := given[idempotencyHeader]; ok {
		if key == "" || len(key) > maxIdempotencyBytes {
			return nil, invalid("Idempotency-Key", "takes 1 to %d bytes", maxIdempotencyBytes)
		}
		c.idempotencyKey = key
	}
	switch v, ok := given["Tidewire-Tombstone"]; {
	case v == "true":
		c.tombstone = true
	case ok && v != "false":
		return nil, invalid("Tidewire-Tombstone", "takes true or false, not %q", clip(v))
	}
	return given, nil
}

// readSequence reads a producer and its sequence, which go together, with a
// partition.
func (c *produceCall) readSequence(given map[string]string) error {
	producer, hasProducer := given["Tidewire-Producer"]
	sequence, hasSequence := given["Tidewire-Sequence"]
	switch {
	case !hasProducer && !hasSequence:
		return nil
	case !hasSequence:
		return invalid("Tidewire-Sequence", "is needed with Tidewire-Producer")
	case !hasProducer:
		return invalid("Tidewire-Producer", "is needed with Tidewire-Sequence")
	case c.partition == nil:
		return invalid("partition", "is needed with Tidewire-Producer: sequences count by partition")
	case c.acks == rpc.AcksNone:
		return invalid("acks", `"none" takes no Tidewire-Producer: nobody would hear of a gap`)
	case c.idempotencyKey != "":
		return invalid("Idempotency-Key", "and Tidewire-Producer exclude one another")
	}
	var err error
	if c.producer, err = ident.ParseProducerID(producer); err != nil {
		return fault.New(fault.Invalid, "header \"Tidewire-Producer\": %w", err).With("field", "Tidewire-Producer")
	}
	n, err := wire.ParseOffset("Tidewire-Sequence", sequence)
	if err != nil {
		return invalid("Tidewire-Sequence", "takes a whole number from 0 to %d, not %q", ident.MaxSequence, clip(sequence))
	}
	c.sequence, c.sequenced = int64(n), true
	return nil
}

// checkLines refuses what says something of one record where there are many.
func (c *produceCall) checkLines(given map[string]string) error {
	const each = "belongs to one record; with " + ndjsonType + " each line has its own "
	switch {
	case c.key != nil:
		return invalid("key", each+"\"key\"")
	case len(c.headers) > 0:
		return invalid("Tidewire-H-"+c.headers[0].name, each+"\"headers\"")
	case given["Tidewire-Tombstone"] != "":
		return invalid("Tidewire-Tombstone", each+"\"tombstone\"")
	case c.idempotencyKey != "":
		return invalid("Idempotency-Key", "belongs to one record; with "+ndjsonType+" give Tidewire-Producer and Tidewire-Sequence")
	}
	return nil
}
