package deliver_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/memlog"
)

// damaged has a topic of three partitions with ten records each, and of
// partition 1 only the first four can be read.
func damaged(t *testing.T) (*memlog.Broker, *deliver.Hub, func(deliver.Request) deliver.Start) {
	m := memlog.New()
	topic := m.Topic("orders", 3)
	h := startHub(t, m, deliver.Config{})
	for i := range 30 {
		m.Append(topic.Ref(ident.Index(i%3)), "")
	}
	m.Spoil(topic.Ref(1), 4)
	return m, h, func(q deliver.Request) deliver.Start {
		q.Topic = topic
		if q.From == "" && !q.HasCursor {
			q.From = "earliest"
		}
		return resolve(t, h, q)
	}
}

// A subscription to a topic tells of the damaged partition once and goes on
// with the others; one to that partition alone ends.
func TestADamagedPartitionKeepsNoOtherFromLiveReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, h, start := damaged(t)
		for _, only := range []*ident.Index{nil, at(1)} {
			sub := h.Subscribe(start(deliver.Request{Filter: deliver.Filter{Partition: only}}), func() {})
			var got, stuck, ended int
			read := func() {
				for synctest.Wait(); ; {
					switch ev := sub.Next(t.Context(), deliver.Limit{Messages: 100, Bytes: 1 << 20}); ev.Kind {
					case deliver.Idle:
						return
					case deliver.Messages:
						got += ev.Run.Len()
					case deliver.Stuck:
						if stuck++; !strings.Contains(ev.Err.Error(), "damaged") || fault.As(ev.Err).Fields["partition"] != ident.Index(1) {
							t.Errorf("%v", ev.Err)
						}
					case deliver.Ended:
						if ended++; !strings.Contains(ev.Err.Error(), "damaged") {
							t.Errorf("%v", ev.Err)
						}
						return
					}
				}
			}
			read()
			time.Sleep(time.Hour)
			read()
			if only == nil {
				m.Append(sub.Topic().Ref(0), "")
				read()
				if got != 25 || stuck != 1 || ended != 0 {
					t.Errorf("the topic: %d messages, told %d times, ended %d times", got, stuck, ended)
				}
			} else if got != 4 || stuck != 0 || ended == 0 {
				t.Errorf("the partition: %d messages, told %d times, ended %d times", got, stuck, ended)
			}
			sub.Close()
		}
	})
}

// A poll of a topic reads the other partitions to their end, names the damaged
// one beside them, and is its problem when there is nothing else to say.
func TestADamagedPartitionKeepsNoOtherFromPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, h, start := damaged(t)
		q := deliver.PollRequest{Start: start(deliver.Request{}), Limit: 5}
		got := map[ident.Index]int{}
		began := time.Now()
		for polls := 0; ; polls++ {
			res, err := h.Poll(t.Context(), q)
			if err != nil {
				if !fault.Lasting(err) || fault.As(err).Fields["partition"] != ident.Index(1) || fault.As(err).Fields["cursor"] != res.Cursor {
					t.Fatalf("%v", err)
				}
				break
			}
			if res.End || polls > 30 {
				t.Fatalf("an end is claimed, or never comes, after %v", got)
			}
			var msgs []message
			if err := json.Unmarshal([]byte("["+string(bytes.Join(res.Messages, nil))+"]"), &msgs); err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				got[m.Partition]++
			}
			q.Start = start(deliver.Request{Cursor: res.Cursor, HasCursor: true})
		}
		if got[0] != 10 || got[1] != 4 || got[2] != 10 || time.Since(began) > 0 {
			t.Errorf("%v after %s", got, time.Since(began))
		}
		// A long poll waits for what the others get.
		q.Wait = time.Minute
		go func() {
			time.Sleep(10 * time.Second)
			m.Append(q.Start.Topic.Ref(2), "")
		}()
		res, err := h.Poll(t.Context(), q)
		if err != nil || res.Count != 1 || len(res.Unavailable) != 1 || res.Unavailable[0].Partition != 1 || time.Since(began) != 10*time.Second {
			t.Errorf("%+v %v after %s", res, err, time.Since(began))
		}
		// Of the partition alone it is the problem at once.
		if _, err := h.Poll(t.Context(), deliver.PollRequest{Start: start(deliver.Request{Filter: deliver.Filter{Partition: at(1)}, Cursor: res.Cursor, HasCursor: true}), Wait: time.Minute}); !fault.Lasting(err) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
