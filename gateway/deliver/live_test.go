package deliver_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"tidewire/gateway/deliver"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// TestALogThatWasCutUnderItsReadersIsSaid: a new leader's log is shorter than
// what readers saw, and has grown past it by the time they look.
func TestALogThatWasCutUnderItsReadersIsSaid(t *testing.T) {
	for _, c := range []struct {
		grown   int
		noticed bool // by the feed, before the log grows again
	}{{0, false}, {2, false}, {20, false}, {20, true}} {
		grown := c.grown
		synctest.Test(t, func(t *testing.T) {
			m := memlog.New()
			topic := m.Topic("orders", 1)
			ref := topic.Ref(0)
			h := startHub(t, m, deliver.Config{})
			sub := h.Subscribe(resolve(t, h, deliver.Request{Topic: topic, From: "latest"}), func() {})
			defer sub.Close()
			lim := deliver.Limit{Messages: 100, Bytes: 1 << 20}
			read := func() (out []deliver.Event) {
				synctest.Wait()
				for {
					ev := sub.Next(t.Context(), lim)
					switch ev.Kind {
					case deliver.Idle:
						return out
					case deliver.Busy:
					default:
						out = append(out, ev)
					}
				}
			}
			read()
			for range 10 {
				m.Append(ref, "")
			}
			if got := count(read()); got != 10 {
				t.Fatalf("%d messages", got)
			}
			m.Elect(ref, 6)
			if c.noticed {
				synctest.Wait()
			}
			for range grown {
				m.Append(ref, "")
			}
			events := read()
			if len(events) == 0 || events[0].Kind != deliver.Lost || events[0].Gap.Reason != deliver.ReasonTruncated || events[0].Gap.Requested != "0:10" {
				t.Fatalf("%+v", events)
			}
			if got := count(events); got != grown {
				t.Fatalf("%d messages of the new log, want %d", got, grown)
			}
			m.Append(ref, "")
			events = read()
			if len(events) != 1 || events[0].Run.Offset(0) != ident.Offset(6+grown) {
				t.Fatalf("%+v", events)
			}
		})
	}
}

func count(events []deliver.Event) (n int) {
	for _, ev := range events {
		if ev.Kind == deliver.Messages {
			n += ev.Run.Len()
		}
	}
	return n
}

func TestASubscriptionEndsWithItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 2)
		h := startHub(t, m, deliver.Config{})
		woken := make(chan struct{}, 10)
		sub := h.Subscribe(resolve(t, h, deliver.Request{Topic: topic, From: "latest"}), func() { woken <- struct{}{} })
		for sub.Next(t.Context(), deliver.Limit{Messages: 1, Bytes: 1}).Kind != deliver.Idle {
		}
		synctest.Wait()
		for len(woken) > 0 {
			<-woken
			for sub.Next(t.Context(), deliver.Limit{Messages: 1, Bytes: 1}).Kind != deliver.Idle {
			}
		}
		m.DeleteTopic(topic)
		<-woken
		if ev := sub.Next(t.Context(), deliver.Limit{Messages: 1, Bytes: 1}); ev.Kind != deliver.Ended || !fault.Is(ev.Err, fault.TopicNotFound) || !strings.Contains(ev.Err.Error(), "orders") {
			t.Fatalf("%+v", ev)
		}
		sub.Close()
		sub.Close() // once is enough, twice does no harm
		again := h.Subscribe(resolve(t, h, deliver.Request{Topic: m.Topic("other", 1), From: "latest"}), func() {})
		again.Close()
	})
}

// TestOneFeedServesAllSubscriptions counts what the source is asked for.
func TestOneFeedServesAllSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		h := startHub(t, m, deliver.Config{})
		var subs []*deliver.Subscription
		start := resolve(t, h, deliver.Request{Topic: topic, From: "latest"})
		drain := func() (n int) {
			synctest.Wait()
			for _, s := range subs {
				for {
					ev := s.Next(t.Context(), deliver.Limit{Messages: 10, Bytes: 1000})
					if ev.Kind == deliver.Idle {
						break
					}
					n += ev.Run.Len()
				}
			}
			return n
		}
		for range 100 {
			subs = append(subs, h.Subscribe(start, func() {}))
		}
		drain()
		drain()
		before := m.Reads()
		for range 50 {
			m.Append(topic.Ref(0), "k")
			synctest.Wait()
			drain()
		}
		if reads := m.Reads() - before; reads > 120 {
			t.Fatalf("%d reads of the log for 50 batches and 100 subscriptions at its end", reads)
		}
		var lines []byte
		m.Append(topic.Ref(0), "k")
		synctest.Wait()
		for _, s := range subs { // and all of them get the same bytes
			ev := s.Next(t.Context(), deliver.Limit{Messages: 10, Bytes: 1000})
			got := ev.Run.Lines()
			if lines == nil {
				lines = got
			}
			if !ev.Run.Live() || &got[0] != &lines[0] {
				t.Fatal("encoded twice")
			}
		}
		for _, s := range subs {
			s.Close()
		}
	})
}
