package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"tidewire/internal/bench/sock"
)

// member is one connection of a consumer group. What comes in a frame is acknowledged at
// once, and its credit goes back with it.
type member struct {
	seat
	w     Groups
	clock *clock
	rec   *recorder
	seen  *ledger
	text  func([]byte) error
	take  func([]byte) error

	// Of the goroutine that reads.
	id     int64
	flying []acknowledgement // the oldest first: that is the order of most answers
	groups map[int64][]place // of the frame under way, by partition
	now    int64
}

// acknowledgement is one that is not confirmed.
type acknowledgement struct {
	id, at  int64
	numbers []int64
}

func newMember(w Groups, c *crew, k *clock, rec *recorder, seen *ledger) *member {
	m := &member{seat: newSeat(c, "a member"), w: w, clock: k, rec: rec, seen: seen, groups: map[int64][]place{}, id: 1}
	m.text, m.take = m.lines, m.message
	return m
}

// open connects and joins.
func (m *member) open(t Target, loop *sock.Loop) error {
	return m.seat.open(t, loop, m, fmt.Appendf(nil, `{"op":"join","id":1,"topic":%q,"group":%q,"mode":%q,"from":"earliest","max_in_flight":%d,"credit":0}`,
		m.w.Topic, m.w.Group, m.w.Mode, m.w.InFlight))
}

// Receive works through what arrives, and acknowledges it in one write.
func (m *member) Receive(b []byte) (int, error) {
	m.now = m.clock.now()
	m.rec.mu.Lock()
	used, err := Texts(b, m.conn, m.key, m.text)
	m.rec.mu.Unlock()
	if err != nil {
		return used, err
	}
	return used, m.flush()
}

var (
	ackedHead = []byte(`{"op":"acked","id":`)
	staleKey  = []byte(`"stale":`)
)

func (m *member) lines(payload []byte) error {
	return m.read(payload, m.take, m.done, m.answer)
}

// answer reads a line that is not about messages.
func (m *member) answer(line []byte) error {
	if bytes.HasPrefix(line, ackedHead) {
		return m.acked(line)
	}
	return m.notice(line)
}

// message notes a message of the backlog.
func (m *member) message(line []byte) error {
	partition, p, err := placeOf(line)
	if err != nil {
		return err
	}
	if p.number >= m.seen.records {
		return fmt.Errorf("a message arrived that is not of the backlog: %.200s", line)
	}
	if !mark(m.seen.delivered, p.number) {
		m.rec.duplicates++
	}
	m.groups[partition] = append(m.groups[partition], p)
	return nil
}

// done acknowledges what has come, by partition.
func (m *member) done() {
	for partition, all := range m.groups {
		for len(all) > 0 {
			n := min(len(all), m.w.Batch)
			m.id++
			m.acknowledge(m.id, partition, all[:n])
			a := acknowledgement{id: m.id, at: m.now, numbers: make([]int64, n)}
			for i, p := range all[:n] {
				a.numbers[i] = p.number
			}
			m.flying = append(m.flying, a)
			all = all[n:]
		}
		m.groups[partition] = m.groups[partition][:0]
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
