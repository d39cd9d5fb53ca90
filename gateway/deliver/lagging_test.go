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

// lagging answers until a moment as a replica that leads from then on: it has yet to hear that
// the last record is committed, as its leader before had told a reader before it died.
type lagging struct {
	*memlog.Broker
	until time.Time
	lags  int // reads that were answered so
}

func (l *lagging) Read(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) {
	res, err := l.Broker.Read(ctx, q)
	if !time.Now().Before(l.until) || q.Offset < res.Bounds.HW-1 {
		return res, err
	}
	res.Bounds.HW--
	if q.Offset == res.Bounds.HW {
		return rpc.ReadResult{Bounds: res.Bounds}, nil
	}
	l.lags++
	return res, fault.New(fault.OffsetNotFound, "it ends at %d", res.Bounds.HW)
}

func (l *lagging) Tail(ctx context.Context, q rpc.Read) (rpc.ReadResult, error) {
	return l.Read(ctx, q)
}

// Wait gives a channel that closes once it leads.
func (l *lagging) Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error) {
	if !time.Now().Before(l.until) {
		return l.Broker.Wait(p, after)
	}
	leads := make(chan struct{})
	time.AfterFunc(time.Until(l.until), func() { close(leads) })
	return leads, nil
}

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

		l.until = time.Now().Add(2 * time.Second)
		sub := h.Subscribe(resumed, func() {})
		for range 100 { // it tries again after a pause
			if ev := sub.Next(t.Context(), deliver.Limit{Messages: 100, Bytes: 1 << 20}); ev.Kind == deliver.Lost {
				t.Fatalf("a live reader is told of a gap: %+v", ev.Gap)
			}
			time.Sleep(30 * time.Millisecond)
			synctest.Wait()
		}
		sub.Close()
		if l.lags == 0 {
			t.Error("no read of a live reader lagged")
		}
		l.until, l.lags = time.Now().Add(2*time.Second), 0
		if _, err := h.Poll(t.Context(), deliver.PollRequest{Start: resumed}); err != nil {
			t.Errorf("a poll: %v", err)
		}
		if l.lags == 0 {
			t.Error("no read lagged")
		}
		m.Append(ref, "")
		if got, _ := poll(t, h, deliver.PollRequest{Start: resumed}); len(got) != 1 || got[0].Offset != ident.Offset(10) {
			t.Errorf("a poll gives %v", got)
		}
	})
}
