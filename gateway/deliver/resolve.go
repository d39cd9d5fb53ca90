package deliver

import (
	"context"
	"time"

	"tidewire/gateway/cursor"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// Where to begin.
const (
	Earliest = "earliest"
	Latest   = "latest"
)

// patience is how long a request waits for a partition to have a leader, or
// for news that its cursor has and this node has not.
const patience = 5 * time.Second

// Request asks where to begin. At most one of From, Cursor and Offset is given.
type Request struct {
	Topic     *cluster.Topic
	Filter    Filter
	From      string // "", earliest, latest or an RFC 3339 time
	Cursor    string
	HasCursor bool
	After     map[ident.Index]ident.Offset // the last offsets seen; refines Cursor
	Offset    *ident.Offset                // polls of one partition only
	// DefaultFrom is From where nothing is given.
	DefaultFrom string
}

// Start is where a reader begins: the answer to a Request.
type Start struct {
	Topic  *cluster.Topic
	Filter Filter
	Range  ident.HashRange
	Places []cursor.Place // by partition, ascending
	// Recovered: a cursor was given, and nothing after it is missing.
	Recovered bool
	// Gap is set where the cursor could not be used as it is; Places are then
	// where the reader goes on.
	Gap *Gap

	given given
}

// given is what a start was asked by: it decides what a reader hears when
// retention overtakes it before the first record.
type given uint8

const (
	byFrom given = iota
	byCursor
	byOffset
)

// Cursor is the start as a cursor.
func (s *Start) Cursor() string { return cursor.Of(s.Topic, s.Range, s.Places).String() }

// Resolve finds the offsets a request means. A cursor that cannot be used gives
// a Start with a Gap, not an error. It waits up to 5 s for partitions without a
// leader.
//
// after names the last offset seen, so a reader goes on at the next one, never
// before where its cursor stands. Beyond the end of the partition it names
// records that are no longer there: a gap (truncated), after which the reader
// goes on at the end of its cursor's epoch, up to which what it saw is still
// there. Partitions that after names and the filter does not
// read are passed over; those that the topic does not have are an error.
func (h *Hub) Resolve(ctx context.Context, q Request) (Start, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sc, err := q.Filter.scope(q.Topic)
	if err != nil {
		return Start{}, err
	}
	s := Start{Topic: q.Topic, Filter: q.Filter, Range: sc.rng}
	switch {
	case q.Offset != nil:
		err = h.startAt(ctx, q, &s)
	case q.HasCursor:
		err = h.startByCursor(ctx, q, sc, &s)
	default:
		from := q.From
		if from == "" {
			from = q.DefaultFrom
		}
		s.Places, err = h.startFrom(ctx, q.Topic, sc, from)
	}
	return s, err
}

// startAt begins at one offset of one partition.
func (h *Hub) startAt(ctx context.Context, q Request, s *Start) error {
	s.given = byOffset
	if s.Filter.Partition == nil {
		if len(q.Topic.Partitions) != 1 {
			return fault.New(fault.Invalid, "field \"partition\" is needed with \"offset\": topic %q has %d partitions", q.Topic.Name, len(q.Topic.Partitions)).With("field", "partition")
		}
		s.Filter.Partition = &q.Topic.Partitions[0].Index
	}
	i := *s.Filter.Partition
	b, err := h.bounds(ctx, q.Topic.Ref(i))
	if err != nil {
		return err
	}
	if *q.Offset < b.Start {
		s.Places = []cursor.Place{{Partition: i, Epoch: b.Epoch, Offset: b.Start}}
		return offsetExpired(i, *q.Offset, b, s.Cursor())
	}
	place := cursor.Place{Partition: i, Epoch: b.Epoch, Offset: *q.Offset}
	if place.Offset > b.HW {
		// The client's own number, ahead of the log: no epoch vouches for it.
		place.Epoch = 0
	}
	s.Places = []cursor.Place{place}
	return nil
}

func offsetExpired(p ident.Index, o ident.Offset, b rpc.Bounds, cursor string) error {
	return fault.New(fault.OffsetExpired, "offset %d of partition %d is no longer kept; the earliest is %d", o, p, b.Start).
		With("partition", p).With("requested", o).With("earliest", b.Start).With("end", b.HW).With("cursor", cursor)
}

// startFrom begins at earliest, latest or a time.
func (h *Hub) startFrom(ctx context.Context, t *cluster.Topic, sc scope, from string) ([]cursor.Place, error) {
	var ms int64
	parts := roots(t, sc)
	switch from {
	case Earliest:
	case Latest:
		parts = tips(t, sc)
	default:
		var err error
		if ms, err = wire.ParseTime("from", from); err != nil {
			return nil, err
		}
	}
	places := make([]cursor.Place, len(parts))
	err := each(ctx, len(parts), func(ctx context.Context, i int) error {
		ref := t.Ref(parts[i].Index)
		b, err := h.bounds(ctx, ref)
		if err != nil {
			return err
		}
		places[i] = cursor.Place{Partition: parts[i].Index, Epoch: b.Epoch, Offset: b.Start}
		switch from {
		case Earliest:
		case Latest:
			places[i].Offset = b.HW
		default:
			return patiently(ctx, func() (err error) {
				places[i].Offset, err = h.source.OffsetAt(ctx, ref, ms)
				return err
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return places, nil
}

// startByCursor begins where a cursor, refined by after, stands.
func (h *Hub) startByCursor(ctx context.Context, q Request, sc scope, s *Start) error {
	s.given = byCursor
	for i := range q.After {
		if _, ok := q.Topic.Partition(i); !ok {
			return fault.New(fault.Invalid, "field \"after\" names partition %d; topic %q has no such partition", i, q.Topic.Name).With("field", "after")
		}
	}
	c, err := cursor.Parse(q.Cursor)
	if err != nil {
		return h.startOver(ctx, q, sc, s, ReasonUnknown)
	}
	if c.Topic != q.Topic.ID {
		return h.startOver(ctx, q, sc, s, ReasonOtherTopic)
	}
	if q.Topic, err = h.layoutOf(ctx, q.Topic, c.Generation); err != nil {
		return err
	}
	s.Topic = q.Topic
	if sc, err = q.Filter.scope(q.Topic); err != nil { // the layout may be newer
		return err
	}
	places, ok := narrow(q.Topic, sc, c)
	if !ok || !c.Range.Covers(sc.rng) {
		return fault.New(fault.Invalid, "field \"cursor\" covers less of topic %q than is asked for; ask for what it was given for, or begin with \"from\"", q.Topic.Name).With("field", "cursor")
	}
	lost := make([]*loss, len(places))
	err = each(ctx, len(places), func(ctx context.Context, i int) (err error) {
		places[i], lost[i], err = h.check(ctx, q.Topic.Ref(places[i].Partition), places[i], q.After)
		return err
	})
	if err != nil {
		return err
	}
	var losses []loss
	for _, l := range lost {
		if l != nil {
			losses = append(losses, *l)
		}
	}
	s.Places = places
	s.Recovered = len(losses) == 0
	if s.Gap = gapOf(losses); s.Gap != nil {
		s.Gap.Cursor = s.Cursor()
	}
	return nil
}

// check holds one place of a cursor against the partition as it is. lost says
// why the reader cannot go on there; the place is then where it can.
func (h *Hub) check(ctx context.Context, ref ident.Partition, place cursor.Place, after map[ident.Index]ident.Offset) (_ cursor.Place, lost *loss, err error) {
	end := ident.Offset(1<<63 - 1) // a place without an epoch may lie ahead of the log
	var b rpc.Bounds
	err = patiently(ctx, func() (err error) {
		if b, err = h.source.Bounds(ctx, ref); err == nil && place.Epoch > b.Epoch {
			err = fault.New(fault.LeaderUnavailable, "the cursor knows a newer leader of partition %d than this node", ref.Index)
		}
		if err == nil && place.Epoch != 0 {
			end, err = h.source.EpochEnd(ctx, ref, place.Epoch)
		}
		if err == nil { // again: the high watermark may have passed what end says of it
			b, err = h.source.Bounds(ctx, ref)
		}
		return err
	})
	if err != nil {
		return place, nil, h.explain(ref, err)
	}
	end = max(end, b.Start) // of epochs that retention took away nothing more is known
	asked := place.Offset
	if last, ok := after[ref.Index]; ok && last >= asked {
		place.Offset = last + 1
		if place.Offset <= b.HW {
			place.Epoch = b.Epoch
		}
	}
	l := loss{partition: ref.Index, requested: place.Offset, earliest: b.Start, end: b.HW}
	switch {
	case asked > end, place.Offset > b.HW && place.Epoch != 0:
		// What that epoch holds up to its end was seen and is still there.
		l.reason, l.resume = ReasonTruncated, max(min(end, b.HW), b.Start)
	case place.Offset < b.Start:
		l.reason, l.resume = ReasonExpired, b.Start
	default:
		return place, nil, nil
	}
	return cursor.Place{Partition: ref.Index, Epoch: b.Epoch, Offset: l.resume}, &l, nil
}

// startOver begins at earliest because the cursor says nothing.
func (h *Hub) startOver(ctx context.Context, q Request, sc scope, s *Start, reason string) (err error) {
	if s.Places, err = h.startFrom(ctx, q.Topic, sc, Earliest); err != nil {
		return err
	}
	losses := make([]loss, len(s.Places))
	for i, p := range s.Places {
		b, err := h.bounds(ctx, q.Topic.Ref(p.Partition))
		if err != nil {
			return err
		}
		losses[i] = loss{reason: reason, partition: p.Partition, earliest: b.Start, end: b.HW}
	}
	s.Gap = gapOf(losses)
	s.Gap.Requested = clip(q.Cursor)
	s.Gap.Cursor = s.Cursor()
	return nil
}

func clip(s string) string {
	if len(s) > 128 {
		return s[:128] + "…"
	}
	return s
}
