package groups

import (
	"testing"
	"time"

	"tidewire/internal/fault"
)

// A log that cannot be read is tried now and then, not all the time, and those who ask hear
// of it.
func TestALogThatCannotBeRead(t *testing.T) {
	play(t, func(t *testing.T, s *stage) {
		topic := s.topic("orders", 1)
		ref, b := topic.Ref(0), s.nodes[n1]
		m := s.join(s.group(topic, "billing", nil), "m1")
		s.log.Append(ref, "a")
		s.log.Append(ref, "b")
		s.log.Spoil(ref, 1)
		b.takes(t, ref, m, 1, 0, "0/1")
		if _, err := b.take(t, ref, m, 1, time.Minute); !fault.Is(err, fault.LeaderUnavailable) {
			t.Error(err)
		}
		other := s.group(topic, "other", nil)
		m = s.join(other, "m1")
		s.log.Spoil(ref, 0)
		b.takes(t, ref, m, 2, 0, "0/1", "1/1")
		p, err := b.post(ref)
		if err != nil {
			t.Fatal(err)
		}
		w := &taker{by: m, poke: make(chan struct{}, 1)}
		s.log.Append(ref, "c")
		s.log.Spoil(ref, 2)
		before := s.log.Reads()
		p.unit(other.ID).join(w)
		time.Sleep(time.Minute)
		if n := s.log.Reads() - before; n < 30 || n > 200 {
			t.Errorf("%d reads in a minute", n)
		}
		s.log.Spoil(ref, 0)
		time.Sleep(time.Minute)
		select {
		case <-w.poke:
		default:
			t.Error("it was not told that there is something")
		}
		p.unit(other.ID).quit(w)
	})
}
