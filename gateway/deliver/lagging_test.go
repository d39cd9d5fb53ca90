package deliver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/deliver"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
)

// lagging answers so many reads as a replica that leads from then on: it has yet to hear that
// the last record is committed, as its leader before had told a reader before it died.
type lagging struct {
	*memlog.Broker
	reads int
}

func (l *lagging) Read(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) {
	res, err := l.Broker.Read(ctx, q)
	if l.reads == 0 || q.Offset < res.Bounds.HW {
		return res, err
	}
	l.reads--
	res.Bounds.HW--
	return res, fault.New(fault.OffsetNotFound, "it ends at %d", res.Bounds.HW)
}

func (l *lagging) Tail(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) { return l.Read(ctx, q) }

// What a reader has seen is not lost because who is asked first knows of less than the leader.
func TestAReplicaThatIsAboutToLeadLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memlog.New()
		topic := m.Topic("orders", 1)
		ref := topic.Ref(0)
		m.Elect(ref, 0)
		for range 10 {
			m.Append(ref, "")
		}
		l := &lagging{Broker: m}
		h := deliver.New(deliver.Config{Source: l, Topology: m})
		activity.Start(t, h.Run)
		request := deliver.Request{Topic: topic, From: "latest"}
		first := resolve(t, h, request)
		resumed := resolve(t, h, deliver.Request{Topic: topic, HasCursor: true, Cursor: first.Cursor()})

		l.reads = 3
		sub := h.Subscribe(resumed, func() {})
		next := func() (last deliver.Event) {
			for range 20 { // it tries again after a pause
				time.Sleep(time.Second)
				synctest.Wait()
				if last = sub.Next(t.Context(), deliver.Limit{Messages: 100, Bytes: 1 << 20}); last.Kind != deliver.Idle && last.Kind != deliver.Busy {
					break
				}
			}
			return last
		}
		if ev := next(); ev.Kind == deliver.Lost {
			t.Errorf("a live reader is told of a gap: %+v", ev.Gap)
		}
		if l.reads != 0 {
			t.Errorf("%d reads were not made", l.reads)
		}
		l.reads = 3
		if _, err := h.Poll(t.Context(), deliver.PollRequest{Start: resumed}); err != nil {
			t.Errorf("a poll: %v", err)
		}
		if l.reads != 0 {
			t.Errorf("%d reads of polls were not made", l.reads)
		}
		m.Append(ref, "")
		if ev := next(); ev.Kind != deliver.Messages || ev.Run.Len() != 1 {
			t.Errorf("what comes next: %+v", ev)
		}
		if got, _ := poll(t, h, deliver.PollRequest{Start: resumed}); len(got) != 1 || got[0].Offset != ident.Offset(10) {
			t.Errorf("a poll gives %v", got)
		}
		sub.Close()
	})
}
