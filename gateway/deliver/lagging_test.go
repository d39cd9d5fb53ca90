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
	if !time.Now().Before(l.until) || q.Offset < res.Bounds.HW {
		return res, err
	}
	l.lags++
	res.Bounds.HW--
	return res, fault.New(fault.OffsetNotFound, "it ends at %d", res.Bounds.HW)
}

// What a poller has seen is not lost because who is asked first knows of less than the leader.
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
