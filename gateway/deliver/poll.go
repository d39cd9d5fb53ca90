package deliver

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"tidewire/gateway/budget"
	"tidewire/gateway/cursor"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/sleep"
	"tidewire/internal/wire"
)

// Bounds of a poll, from the public contract.
const (
	DefaultPollLimit = 100
	MaxPollLimit     = 10_000
	DefaultPollBytes = 1 << 20
	MaxPollBytes     = 16 << 20
	MaxPollWait      = 60 * time.Second
)

// pollScanBytes bounds what one poll reads of the log: a filter that matches
// next to nothing gives an answer with a moved cursor instead of an answer
// after minutes. It is enough for the largest answer without a filter.
const pollScanBytes = MaxPollBytes + 1<<20

// pollReadBytes bounds one read of a poll.
const pollReadBytes = 256 << 10

// pollMessageBytes is a message's size in the log as a poll guesses it; a wrong
// guess costs another read.
const pollMessageBytes = 4 << 10

// PollRequest asks for one answer. A zero field means its default.
type PollRequest struct {
	Start    Start // of Resolve; one with a gap is answered by the gap's fault
	Limit    int   // messages
	MaxBytes int   // of messages; at least one comes, whatever its size
	Wait     time.Duration
}

// PollResult is the answer.
type PollResult struct {
	Messages [][]byte // encoded, with commas between them, in pieces
	Count    int
	Cursor   string // where to go on
	End      bool   // nothing more was below the high watermark
	// Unavailable are the partitions that nothing more can be read of until
	// somebody mends them. The others are served.
	Unavailable []Unavailable
	// Held is what the messages hold of the node's memory: whoever has written a
	// piece and dropped it gives back its capacity, and in the end closes Held.
	// nil where there are no messages.
	Held *budget.Share
}

// Unavailable is a partition that cannot be read further, and why.
type Unavailable struct {
	Partition ident.Index
	Err       error
}

// Poll reads what there is, and waits for something where there is nothing.
// Where a partition has no leader it waits up to 5 s for one, unless others
// have given something. A partition that is damaged is no reason to keep the others
// of the topic from the client: it hears of it beside their messages, and as an
// error once there is nothing else to say.
func (h *Hub) Poll(ctx context.Context, q PollRequest) (PollResult, error) {
	if q.Start.Gap != nil {
		return PollResult{}, q.Start.Gap.Fault()
	}
	p := newPoll(h, q)
	res, err := p.run(ctx, q.Wait)
	if err != nil || res.Count == 0 {
		p.answer.share.Close()
		return res, err
	}
	res.Messages, res.Held = p.answer.pieces, p.answer.share
	return res, nil
}

func (p *poll) run(ctx context.Context, wait time.Duration) (PollResult, error) {
	deadline := time.Now().Add(wait)
	patient := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := p.pass(ctx)
		now := time.Now()
		switch {
		case err != nil && p.count > 0: // the next poll hears of it
			return p.result(false), nil
		case err != nil && passing(err) && now.Before(patient):
			if !sleep.For(ctx, pause) {
				return PollResult{}, err
			}
			continue
		case err != nil:
			return PollResult{}, err
		case p.count == 0 && p.answer.short > 0: // for its first message
			if err := p.answer.await(ctx); err != nil {
				return PollResult{}, err
			}
			continue
		case p.count > 0 || !p.atEnd():
			return p.result(p.atEnd()), nil
		case !now.Before(deadline):
			return p.nothing()
		}
		if pause = firstPause; !p.wait(ctx, deadline) {
			return p.nothing()
		}
	}
}

// poll is one Poll under way.
type poll struct {
	hub      *Hub
	start    *Start
	match    matcher
	places   []pollPlace
	limit    int
	maxBytes int
	scan     int // bytes of the log that may still be read
	first    int // the partition to begin with, so that none is always last

	answer pollAnswer
	count  int
}

// pollPlace is where a poll stands in one partition.
type pollPlace struct {
	cursor.Place
	end   bool // at the high watermark when last read, or stuck
	moved bool
	stuck error // why nothing more can be read
}

func newPoll(h *Hub, q PollRequest) *poll {
	p := &poll{
		hub: h, start: &q.Start, match: q.Start.Filter.matcher(), scan: pollScanBytes,
		answer: pollAnswer{share: h.held.Share()},
		limit:  q.Limit, maxBytes: q.MaxBytes, first: rand.IntN(max(1, len(q.Start.Places))),
	}
	if p.limit <= 0 {
		p.limit = DefaultPollLimit
	}
	if p.maxBytes <= 0 {
		p.maxBytes = DefaultPollBytes
	}
	for _, place := range q.Start.Places {
		p.places = append(p.places, pollPlace{Place: place})
	}
	return p
}

// pass reads every partition once, each with its share of what is left, and
// once more where others left theirs.
func (p *poll) pass(ctx context.Context) error {
	n := len(p.places)
	for round := 0; round < 2; round++ {
		for i := range n {
			if p.count >= p.limit || p.answer.bytes >= p.maxBytes || p.scan <= 0 || p.answer.short > 0 {
				return nil
			}
			place := &p.places[(p.first+i)%n]
			if place.stuck != nil || round > 0 && place.end {
				continue
			}
			share := n - i
			if round > 0 {
				share = 1
			}
			messages := max(1, (p.limit-p.count)/share)
			bytes := (p.maxBytes - p.answer.bytes) / share
			switch err := p.read(ctx, place, p.count+messages, p.answer.bytes+bytes); {
			case err == nil:
			case fault.Lasting(err) && n > 1:
				place.stuck, place.end = err, true
			default:
				return err
			}
		}
	}
	return nil
}

// read takes messages of one partition until the poll holds that many, or that
// many bytes.
func (p *poll) read(ctx context.Context, place *pollPlace, count, bytes int) error {
	for p.count < count && p.answer.bytes < bytes && p.scan > 0 {
		most := min(pollReadBytes, p.scan)
		if p.match.all { // about what is wanted, and not a piece of the log for one message
			most = min(most, bytes-p.answer.bytes, (count-p.count)*pollMessageBytes)
		}
		full, err := p.readOnce(ctx, place, most, count, bytes)
		if err != nil || full || place.end {
			return err
		}
	}
	return nil
}

// readOnce takes messages out of one read of a partition. full says that the
// next one has no room.
func (p *poll) readOnce(ctx context.Context, place *pollPlace, most, count, bytes int) (full bool, err error) {
	ref := p.start.Topic.Ref(place.Partition)
	// However small most is, one record comes, however large.
	release, err := p.hub.beginReading(ctx, max(most, p.start.Topic.Settings.MaxMessageBytes))
	if err != nil {
		return true, err
	}
	defer release()
	res, err := p.hub.source.Read(ctx, rpc.Read{Partition: ref, Offset: place.Offset, MaxBytes: most})
	if err != nil {
		return false, p.missed(ctx, place, res.Bounds, err)
	}
	if len(res.Batches) == 0 {
		place.end = true
		return true, nil
	}
	p.scan -= len(res.Batches)
	full, err = p.take(place, res.Batches, count, bytes)
	place.end = err == nil && place.Offset >= res.Bounds.HW
	return full, err
}

// missed judges a read that gave nothing. nil: go on, place.end says whether
// there is anything to read.
func (p *poll) missed(ctx context.Context, place *pollPlace, b rpc.Bounds, err error) error {
	switch {
	case fault.Is(err, fault.OffsetNotFound) && place.Epoch == 0: // ahead of the log
		place.end = true
		return nil
	case fault.Is(err, fault.OffsetNotFound):
		return p.beyond(ctx, place, b)
	case fault.Is(err, fault.OffsetExpired) && (p.start.given == byFrom || place.moved) && p.count == 0:
		// Retention was faster than this poll, which had promised nothing yet.
		place.Offset, place.Epoch, place.end = b.Start, b.Epoch, b.Start == b.HW
		return nil
	case fault.Is(err, fault.OffsetExpired) && p.start.given == byOffset:
		return offsetExpired(place.Partition, place.Offset, b, p.cursorWith(place, b.Start, b.Epoch))
	case fault.Is(err, fault.OffsetExpired):
		return p.gap(place, b, ReasonExpired, b.Start)
	}
	return p.hub.explain(p.start.Topic.Ref(place.Partition), err)
}

// beyond judges a place that lies above what was read: nothing is there yet, or what was seen
// below it is no longer part of the log.
func (p *poll) beyond(ctx context.Context, place *pollPlace, b rpc.Bounds) error {
	ref := p.start.Topic.Ref(place.Partition)
	end, err := p.hub.source.EpochEnd(ctx, ref, place.Epoch)
	switch {
	case err != nil:
		return p.hub.explain(ref, err)
	case place.Offset > max(end, b.Start):
		return p.gap(place, b, ReasonTruncated, max(end, b.Start))
	}
	return p.hub.explain(ref, outdated(ref))
}

// outdated is the word of a replica that is no leader yet, or no longer: of less than the
// leader has, which said so.
func outdated(p ident.Partition) error {
	return fault.New(fault.LeaderUnavailable, "who was asked for partition %d knows of less than its leader; try again in a moment", p.Index)
}

// gap is the fault for a place that is gone, with the cursor to go on from.
func (p *poll) gap(place *pollPlace, b rpc.Bounds, reason string, resume ident.Offset) error {
	g := gapOf([]loss{{reason: reason, partition: place.Partition, requested: place.Offset, earliest: b.Start, end: b.HW}})
	g.Cursor = p.cursorWith(place, resume, b.Epoch)
	return g.Fault()
}

// cursorWith is the poll's cursor with another place in one partition. The
// place itself stays: if the poll has messages to give, nobody hears of what
// is missing now, and the next poll must meet it again.
func (p *poll) cursorWith(place *pollPlace, o ident.Offset, e ident.Epoch) string {
	was := place.Place
	defer func() { place.Place = was }()
	place.Offset, place.Epoch = o, e
	return p.cursor()
}

// take adds the messages of some batches. full says that the next one has no
// room.
func (p *poll) take(place *pollPlace, batches []byte, count, bytes int) (full bool, err error) {
	for len(batches) > 0 {
		b, rest, err := record.Cut(batches)
		if err != nil {
			return true, err
		}
		batches = rest
		h := b.Header()
		it := b.Entries()
		for it.Next() {
			e := it.Entry()
			o := wire.OffsetOf(h, e)
			if e.Void || o < place.Offset || !p.match.match(e.Key) {
				continue
			}
			if !p.add(h, e, bytes, place.moved) {
				return true, nil
			}
			place.set(o+1, h.Epoch)
			if p.count >= count {
				return true, nil
			}
		}
		if it.Err() != nil {
			return true, it.Err()
		}
		place.set(max(place.Offset, h.Next()), h.Epoch)
	}
	return false, nil
}

// add appends one message, unless it has no room: in the share of its
// partition, or, as the first of it, in what the whole poll may hold, or in
// what the node may hold for its clients.
func (p *poll) add(h record.Header, e *record.Entry, bytes int, moved bool) bool {
	topic := p.start.Topic.Name
	if !p.answer.room(1 + wire.MessageBytes(topic, e)) {
		return false
	}
	n := p.answer.append(func(b []byte) []byte {
		if p.count > 0 {
			b = append(b, ',')
		}
		return wire.AppendMessage(b, topic, h, e)
	})
	if all := p.answer.bytes; p.count > 0 && all > bytes && (all > p.maxBytes || moved) {
		p.answer.undo(n)
		return false
	}
	p.count++
	return true
}

func (p *pollPlace) set(o ident.Offset, e ident.Epoch) {
	if o != p.Offset {
		p.Offset, p.Epoch, p.moved = o, e, true
	}
}

func (p *poll) atEnd() bool {
	return !slices.ContainsFunc(p.places, func(p pollPlace) bool { return !p.end })
}

func (p *poll) cursor() string {
	places := make([]cursor.Place, len(p.places))
	for i := range p.places {
		places[i] = p.places[i].Place
	}
	return cursor.Of(p.start.Topic, p.start.Range, places).String()
}

func (p *poll) result(end bool) PollResult {
	res := PollResult{Count: p.count, Cursor: p.cursor(), End: end}
	for i := range p.places {
		if place := &p.places[i]; place.stuck != nil {
			res.Unavailable = append(res.Unavailable, Unavailable{place.Partition, place.stuck})
			res.End = false // there is more, and it cannot be read
		}
	}
	return res
}

// nothing is the answer of a poll that has found no message.
func (p *poll) nothing() (PollResult, error) {
	res := p.result(true)
	if len(res.Unavailable) == 0 {
		return res, nil
	}
	first := res.Unavailable[0]
	return res, fault.As(first.Err).With("partition", first.Partition).With("cursor", res.Cursor)
}
