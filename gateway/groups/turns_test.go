package groups_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/groups"
	"tidewire/gateway/pulse"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/activity"
)

// distant is a broker whose answers take their time.
type distant struct{ groups.Broker }

func (d distant) Take(ctx context.Context, t rpc.Take) (rpc.Taken, error) {
	taken, err := d.Broker.Take(ctx, t)
	time.Sleep(2 * time.Millisecond)
	return taken, err
}

// A leader that answers later than another one has its turn as well, however much the
// nearer one has.
func TestTheNearestLeaderDoesNotComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.Lead(w.topic.Ref(1), far)
		p := pulse.New(w.Touch)
		w.groups = groups.New(groups.Config{
			Self: here, Topology: w, Changes: w, Places: w.log, Propose: w.Propose, Pulse: p,
			Broker: func(id ident.NodeID) (groups.Broker, error) {
				if id == far {
					return distant{w.Broker(id)}, nil
				}
				return w.Broker(id), nil
			},
		})
		activity.Start(t, p.Run)
		activity.Start(t, w.groups.Run)
		w.keep(0, 400)
		w.keep(1, 400)
		w.register(`,"max_in_flight":1000`)
		m := w.join("ann")
		from := map[string]int{}
		for range 60 {
			got, err := w.fetch(m, 5, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			for place := range strings.FieldsSeq(got) {
				from[place[:1]]++
			}
		}
		// By chance alone fewer than 10 of 60 are one in ten million.
		if from["0"] < 50 || from["1"] < 50 {
			t.Errorf("of 60 fetches of 5 records: %v", from)
		}
	})
}
