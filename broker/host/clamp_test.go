package host

import (
	"testing"

	"tidewire/internal/cluster"
)

// Where a partition ended as somebody took over who may lack records is what groups are set
// back to, however much came since and whoever leads by the time that it is heard.
func TestGroupsHearWhereALogEndedThatMayLackRecords(t *testing.T) {
	c, w := newCourt(2, three...), newWires()
	brokers := w.startAll(t, c, three...)
	for i := range int64(10) {
		publish(t, c, brokers, 1, i)
	}
	c.mu.Lock()
	c.deaf = true
	c.mu.Unlock()
	c.change(func(t *cluster.Topic) {
		p := &t.Partitions[0]
		p.Leader, p.LeaderEpoch, p.Unclean, p.Unclamped = three[1], 2, 2, 2
	})
	for i := int64(10); i < 15; i++ {
		publish(t, c, brokers, 1, i)
	}
	c.lead(three[2])
	publish(t, c, brokers, 1, 15)
	c.mu.Lock()
	if len(c.clamped) > 0 {
		t.Error(c.clamped)
	}
	c.deaf = false
	c.mu.Unlock()
	await(t, "a clamp", func() bool { return c.part().Unclamped == 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := (cluster.ClampOf{Partition: part, Epoch: 3, End: 10}); len(c.clamped) != 1 || c.clamped[0] != want {
		t.Fatalf("%+v", c.clamped)
	}
}
