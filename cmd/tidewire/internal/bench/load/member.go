package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"tidewire/cmd/tidewire/internal/bench/frame"
	"tidewire/cmd/tidewire/internal/bench/sock"
)

// member is one connection of a consumer group. What comes in a frame is acknowledged at
// once, and its credit goes back with it.
type member struct {
	w     Groups
	crew  *crew
	clock *clock
	rec   *recorder
	seen  *ledger
	conn  *sock.Conn
	key   [4]byte
	text  func([]byte) error
	sub   string // as a string of JSON

	// Of the goroutine that reads.
	id     int64
	flying []acknowledgement // the oldest first: that is the order of most answers
	groups map[int64][]place // of the frame under way, by partition
	out    []byte
	frame  []byte
	now    int64
}

// place is where a record is, and its number.
type place struct{ offset, number int64 }

// acknowledgement is one that is not confirmed.
type acknowledgement struct {
	id, at  int64
	numbers []int64
}

func newMember(w Groups, c *crew, k *clock, rec *recorder, seen *ledger) *member {
	m := &member{w: w, crew: c, clock: k, rec: rec, seen: seen, key: maskKey(), groups: map[int64][]place{}, id: 1}
	m.text = m.lines
	return m
}

// open connects and joins, without a credit: it is given nothing until begin.
func (m *member) open(t Target, loop *sock.Loop) (err error) {
	if m.conn, err = dialWebSocket(t); err != nil {
		return err
	}
	if err = m.join(); err == nil {
		err = loop.Add(m.conn, m)
	}
	if err != nil {
		m.conn.Cut()
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

func (m *member) join() error {
	err := m.say(fmt.Appendf(nil, `{"op":"join","id":1,"topic":%q,"group":%q,"mode":%q,"from":"earliest","max_in_flight":%d,"credit":0}`,
		m.w.Topic, m.w.Group, m.w.Mode, m.w.InFlight))
	if err != nil {
		return err
	}
	deadline := time.Now().Add(handshakeTimeout)
	for b, err := m.conn.Rest(), error(nil); ; b, err = m.conn.Fetch(deadline) {
		if err != nil {
			return err
		}
		used, err := texts(b, m.conn, m.key, func(payload []byte) error {
			for line := range bytes.SplitSeq(payload, []byte{'\n'}) {
				switch n, err := readNotice(line); {
				case err != nil:
					return err
				case n.Op == "error":
					return n.refusal()
				case n.Op == "joined":
					m.sub = strconv.Quote(n.Sub)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		m.conn.Use(used)
		if m.sub != "" {
			return nil
		}
	}
}

// begin takes messages from now on.
func (m *member) begin() error {
	return m.say(fmt.Appendf(nil, `{"op":"credit","sub":%s,"add":%d}`, m.sub, m.w.InFlight))
}

func (m *member) say(payload []byte) error {
	return m.conn.Write(frame.Append(nil, frame.Text, payload, m.key))
}

// Receive works through what arrives, and acknowledges it in one write.
func (m *member) Receive(b []byte) (int, error) {
	m.now = m.clock.now()
	m.rec.mu.Lock()
	used, err := texts(b, m.conn, m.key, m.text)
	m.rec.mu.Unlock()
	if err != nil || len(m.out) == 0 {
		return used, err
	}
	m.frame = frame.Append(m.frame[:0], frame.Text, m.out, m.key)
	m.out = m.out[:0]
	return used, m.conn.Write(m.frame)
}

var (
	ackedHead    = []byte(`{"op":"acked","id":`)
	partitionKey = []byte(`"partition":`)
	offsetKey    = []byte(`"offset":`)
	numberKey    = []byte(`"value":{"n":"`)
	staleKey     = []byte(`"stale":`)
)

func (m *member) lines(payload []byte) error {
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte{'\n'})
		payload = rest
		var err error
		switch {
		case bytes.HasPrefix(line, messagesHead):
			payload, err = m.messages(line, payload)
		case bytes.HasPrefix(line, ackedHead):
			err = m.acked(line)
		default:
			err = m.notice(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// messages takes the messages that a line announces, and acknowledges them by partition.
func (m *member) messages(head, payload []byte) (rest []byte, err error) {
	_, text, _ := bytes.Cut(head, countMember)
	count, ok := leading(text)
	if !ok {
		return nil, fmt.Errorf("a line of messages without a count: %.200s", head)
	}
	for range count {
		var line []byte
		line, payload, _ = bytes.Cut(payload, []byte{'\n'})
		partition, p, err := m.place(line)
		if err != nil {
			return nil, err
		}
		if !mark(m.seen.delivered, p.number) {
			m.rec.duplicates++
		}
		m.groups[partition] = append(m.groups[partition], p)
	}
	for partition, all := range m.groups {
		for len(all) > 0 {
			n := min(len(all), m.w.Batch)
			m.acknowledge(partition, all[:n])
			all = all[n:]
		}
		m.groups[partition] = m.groups[partition][:0]
	}
	m.line()
	m.out = fmt.Appendf(m.out, `{"op":"credit","sub":%s,"add":%d}`, m.sub, count)
	return payload, nil
}

// place reads where a message is.
func (m *member) place(line []byte) (partition int64, p place, err error) {
	_, text, _ := bytes.Cut(line, partitionKey)
	partition, ok := leading(text)
	_, text, _ = bytes.Cut(text, offsetKey)
	offset, there := leading(text)
	_, text, _ = bytes.Cut(text, numberKey)
	number, known := leading(text)
	if !ok || !there || !known || number >= m.seen.records {
		return 0, p, fmt.Errorf("a message arrived that this load did not publish: %.200s", line)
	}
	return partition, place{offset, number}, nil
}

func (m *member) acknowledge(partition int64, all []place) {
	m.id++
	m.line()
	m.out = fmt.Appendf(m.out, `{"op":"ack","id":%d,"sub":%s,"partition":%d,"offsets":[`, m.id, m.sub, partition)
	a := acknowledgement{id: m.id, at: m.now, numbers: make([]int64, len(all))}
	for i, p := range all {
		if i > 0 {
			m.out = append(m.out, ',')
		}
		m.out = strconv.AppendInt(m.out, p.offset, 10)
		a.numbers[i] = p.number
	}
	m.out = append(m.out, ']', '}')
	m.flying = append(m.flying, a)
}

// line begins one more line of what goes out.
func (m *member) line() {
	if len(m.out) > 0 {
		m.out = append(m.out, '\n')
	}
}

// acked counts what an acknowledgement was about.
func (m *member) acked(line []byte) error {
	id, _ := leading(line[len(ackedHead):])
	a, ok := m.leave(id)
	if !ok {
		return fmt.Errorf("the server confirms an acknowledgement that is not under way: %.200s", line)
	}
	m.seen.answers.Add(1)
	if bytes.Contains(line, staleKey) {
		var s struct{ Stale []json.RawMessage }
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		m.seen.stale.Add(int64(len(s.Stale)))
		return nil // which of them are done comes out when they come again
	}
	m.rec.latency.Record(m.now - a.at)
	m.rec.moved.Add(1)
	fresh := int64(0)
	for _, n := range a.numbers {
		if mark(m.seen.acked, n) {
			fresh++
		}
	}
	m.rec.messages += fresh
	m.seen.done.Add(fresh)
	return nil
}

// notice reads a line that is neither.
func (m *member) notice(line []byte) error {
	n, err := readNotice(line)
	switch {
	case err != nil:
		return err
	case n.Op == "error":
		return n.refusal()
	case n.Op == "closing":
		return n
	}
	return nil
}

// leading reads the number that a text begins with.
func leading(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n, ok = 10*n+int64(c-'0'), true
	}
	return n, ok
}

// Ended ends the load: a member that is gone would leave figures of another.
func (m *member) Ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the server closed the connection of a member")
	}
	m.crew.fail(fmt.Errorf("a member: %w", err))
}

// leave forgets what is in flight under an id.
func (m *member) leave(id int64) (a acknowledgement, ok bool) {
	i := slices.IndexFunc(m.flying, func(a acknowledgement) bool { return a.id == id })
	if i < 0 {
		return a, false
	}
	a = m.flying[i]
	m.flying = slices.Delete(m.flying, i, i+1)
	return a, true
}
