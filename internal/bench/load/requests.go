package load

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"tidewire/internal/bench/message"
	"tidewire/internal/bench/sock"
)

// Requests is a load of requesters and of responders that answer each request with its
// own value. A message is a reply that came back to its request, a latency the time
// from the one to the other.
type Requests struct {
	Target     Target
	Records    Records
	Requesters int
	Window     int // in flight of each
	Responders int
	Mode       string // of their group: exclusive or shared
	Plan       Plan
}

const (
	// respondersGroup is the group of the responders.
	respondersGroup = "bench-responders"
	// responderCredit is how many requests a responder may have in hand.
	responderCredit = 256
)

// Run puts the load on and measures it.
func (w Requests) Run(ctx context.Context, p Progress) (Outcome, error) {
	crew, err := newCrew(ctx, w.Responders, 0)
	if err != nil {
		return Outcome{}, err
	}
	defer crew.stop()
	all := make([]*responder, w.Responders)
	err = crew.each(w.Responders, "joining responders", p, func(i int) error {
		all[i] = newResponder(crew, w.Records)
		return all[i].open(w.Target.turn(i), crew.loops[i%len(crew.loops)], w)
	})
	if err != nil {
		return Outcome{}, err
	}
	for _, r := range all {
		if err := r.begin(responderCredit); err != nil {
			return Outcome{}, err
		}
	}
	// Should a responder fail, so does the rest: it ends with the crew's context.
	return Publish{
		Target: w.Target, Records: w.Records, Transport: WebSocket, Publishers: w.Requesters, Window: w.Window, Plan: w.Plan,
		Speak: func() Dialect { return newQuestions(w.Records, w.Window) },
	}.Run(crew.ctx, p)
}

// questions are requests over WebSocket, a frame each.
type questions struct {
	*frames
	numbers []int64 // of what is in flight, by slot
}

func newQuestions(r Records, window int) *questions {
	q := &questions{frames: newFrames(r), numbers: make([]int64, window)}
	q.stencil = message.NewFrame(`{"op":"request","id":`+slotHead+message.Blank(slotDigits)+`,"topic":`+strconv.Quote(r.Topic)+`,"timeout":"30s",`+
		r.keyMember()+`"value":`+message.Value(r.Bytes)+`}`, q.key)
	q.line = q.text
	return q
}

// Append writes a frame.
func (q *questions) Append(dst []byte, slot int, n int64) []byte {
	q.numbers[slot] = n
	return q.frames.Append(dst, slot, n)
}

var (
	acceptedHead = []byte(`{"op":"accepted"`)
	replyHead    = []byte(`{"op":"reply","id":` + slotHead)
)

// text reads the answers of a frame, a line each.
func (q *questions) text(payload []byte) error {
	for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
		number, ok := bytes.CutPrefix(line, replyHead)
		switch {
		case ok:
			if err := q.reply(line, number); err != nil {
				return err
			}
		case bytes.HasPrefix(line, acceptedHead):
		default:
			if err := q.frames.text(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// reply takes a reply, which has the value of its request.
func (q *questions) reply(line, number []byte) error {
	slot, ok := message.Digits(number, slotDigits)
	if !ok || int(slot) >= len(q.numbers) {
		return fmt.Errorf("a reply is not as expected: %.200s", line)
	}
	n, err := message.Number(line, q.r.Bytes)
	if err != nil {
		return err
	}
	if n != q.numbers[slot] {
		return fmt.Errorf("request %d got the reply to request %d", q.numbers[slot], n)
	}
	return q.l.Answered(int(slot), 1, 0, nil)
}

// responder is one connection that answers requests. What comes in a frame is answered and
// acknowledged in one write.
type responder struct {
	seat
	r    Records
	text func([]byte) error
	take func([]byte) error

	// Of the goroutine that reads.
	id     int64
	groups map[int64][]place // of the frame under way, by partition
}

func newResponder(c *crew, r Records) *responder {
	x := &responder{seat: newSeat(c, "a responder"), r: r, groups: map[int64][]place{}, id: 1}
	x.text, x.take = x.lines, x.answer
	return x
}

func (x *responder) open(t Target, loop *sock.Loop, w Requests) error {
	return x.seat.open(t, loop, x, fmt.Appendf(nil, `{"op":"join","id":1,"topic":%q,"group":%q,"mode":%q,"from":"latest","credit":0}`,
		w.Records.Topic, respondersGroup, w.Mode))
}

// Receive works through what arrives.
func (x *responder) Receive(b []byte) (int, error) {
	used, err := Texts(b, x.conn, x.key, x.text)
	if err != nil {
		return used, err
	}
	return used, x.flush()
}

var (
	repliedHead = []byte(`{"op":"replied"`)
	replyToKey  = []byte(`"Tidewire-Reply-To":"`)
	valueKey    = []byte(`"value":`)
)

func (x *responder) lines(payload []byte) error {
	return x.read(payload, x.take, x.done, x.said)
}

// said reads a line that is not about messages.
func (x *responder) said(line []byte) error {
	if bytes.HasPrefix(line, repliedHead) {
		return nil
	}
	return x.notice(line)
}

// answer replies to a request with its own value.
func (x *responder) answer(line []byte) error {
	partition, p, err := placeOf(line)
	if err != nil {
		return err
	}
	_, to, ok := bytes.Cut(line, replyToKey)
	to, _, whole := bytes.Cut(to, []byte{'"'})
	at := bytes.Index(line, valueKey) + len(valueKey)
	if !ok || !whole || len(line) < at+x.r.Bytes {
		return fmt.Errorf("a message arrived that is no request: %.300s", line)
	}
	x.id++
	x.line()
	x.out = append(strconv.AppendInt(append(x.out, `{"op":"reply","id":`...), x.id, 10), `,"to":"`...)
	x.out = append(append(append(x.out, to...), `","value":`...), line[at:at+x.r.Bytes]...)
	x.out = append(x.out, '}')
	x.groups[partition] = append(x.groups[partition], p)
	return nil
}

// done acknowledges what was answered.
func (x *responder) done() {
	for partition, all := range x.groups {
		if len(all) > 0 {
			x.acknowledge(0, partition, all)
		}
		x.groups[partition] = all[:0]
	}
}
