package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/gateway/router"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc"
	"tidewire/internal/testkit/memlog"
)

// decider decides at once.
type decider struct {
	*memlog.Broker
	topic *cluster.Topic
}

func (d *decider) CreateTopic(context.Context, cluster.TopicSpec) (*cluster.Topic, bool, error) {
	return d.topic, true, nil
}

func (d *decider) AlterTopic(context.Context, string, cluster.SettingsPatch) (*cluster.Topic, error) {
	return d.topic, nil
}
func (d *decider) DeleteTopic(context.Context, string) error { return nil }
func (d *decider) Decided(context.Context) (uint64, error)   { return 0, nil }
func (d *decider) Next(context.Context, uint64) (*cluster.Snapshot, error) {
	return d.Snapshot(), nil
}

// leading is another node's broker in memory.
type leading struct {
	*memlog.Broker
	router.Groups
}

func (leading) Append(rpc.Append, func(rpc.Appended)) {}
func (l leading) Read(ctx context.Context, r rpc.Read, _ time.Duration) (rpc.ReadResult, error) {
	return l.Broker.Read(ctx, r)
}

func (l leading) Bounds(ctx context.Context, p ident.Partition, _ ident.Offset, _ time.Duration) (rpc.Bounds, error) {
	return l.Broker.Bounds(ctx, p)
}

// A new topic is answered once its leaders serve, and after two seconds if they
// do not.
func TestANewTopicIsAnsweredOnceItIsServed(t *testing.T) {
	for name, c := range map[string]struct{ serves, want time.Duration }{
		"at once":    {0, 0},
		"a bit late": {300 * time.Millisecond, 400 * time.Millisecond},
		"never":      {time.Hour, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &decider{Broker: memlog.New()}
				d.topic = d.Topic("orders", 20)
				ref := d.topic.Ref(7)
				if c.serves > 0 {
					d.Serve(ref, false)
					time.AfterFunc(c.serves, func() { d.Serve(ref, true) })
				}
				r := router.New(router.Config{Self: ident.NodeID{9}, Topology: d, Peer: func(ident.NodeID) (router.Peer, error) { return leading{Broker: d.Broker}, nil }})
				began := time.Now()
				if _, _, err := (control{Coordinator: d, router: r, age: fresh}).CreateTopic(t.Context(), cluster.TopicSpec{}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < min(c.serves, c.want) || took > c.want {
					t.Errorf("answered after %s", took)
				}
				time.Sleep(2 * time.Hour) // the timer has fired
			})
		})
	}
}

func fresh() time.Duration { return 0 }

// undecided answers nothing.
type undecided struct{ *decider }

func (undecided) AlterTopic(ctx context.Context, _ string, _ cluster.SettingsPatch) (*cluster.Topic, error) {
	<-ctx.Done()
	return nil, fault.New(fault.CoordinatorUnavailable, "nobody leads")
}

// A change waits until a coordinator that failed has a successor, and hardly at all
// where none has been heard for a while.
func TestAChangeThatNobodyDecides(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 3 * time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := control{Coordinator: undecided{&decider{Broker: memlog.New()}}, age: func() time.Duration { return age }}
			began := time.Now()
			if _, err := c.AlterTopic(t.Context(), "orders", cluster.SettingsPatch{}); !fault.Is(err, fault.CoordinatorUnavailable) || time.Since(began) != want {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		})
	}
}

func TestADrainThatIsRefused(t *testing.T) {
	d := &decider{Broker: memlog.New()}
	c := control{Coordinator: d, age: fresh, propose: func(_ context.Context, change cluster.Change) (cluster.Answer, error) {
		if change.Drain == nil || change.Drain.Node != (ident.NodeID{7}) || change.Drain.Cancel {
			t.Errorf("%+v", change)
		}
		return cluster.Answer{Refusal: &cluster.Refusal{Code: "node-not-found", Detail: "none"}}, nil
	}}
	if err := c.Drain(t.Context(), ident.NodeID{7}, false); !fault.Is(err, fault.NodeNotFound) {
		t.Error(err)
	}
}
