package harness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tidewire/e2e/client"
)

// api is a client of the node for questions of the harness.
func (n *Node) api() *client.API { return &client.API{URL: n.URL, HTTP: &n.client} }

// AwaitNodes waits until what a gateway says of the nodes is as wanted; gateways
// of some nodes are not asked.
func (c *Cluster) AwaitNodes(bound time.Duration, what string, yes func(client.NodesInfo) bool, but ...*Member) client.NodesInfo {
	c.t.Helper()
	var last client.NodesInfo
	c.await(bound, what, but, func(ctx context.Context, a *client.API) (any, bool, error) {
		info, err := a.TryNodes(ctx)
		if err != nil {
			return nil, false, err
		}
		last = info
		return fmt.Sprintf("%+v", info), yes(info), nil
	})
	return last
}

// AwaitTopic waits until a topic is as wanted.
func (c *Cluster) AwaitTopic(bound time.Duration, topic, what string, yes func(client.TopicInfo) bool, but ...*Member) client.TopicInfo {
	c.t.Helper()
	var last client.TopicInfo
	c.await(bound, topic+": "+what, but, func(ctx context.Context, a *client.API) (any, bool, error) {
		info, err := a.TryTopic(ctx, topic)
		if err != nil {
			return nil, false, err
		}
		last = info
		return Standing(info), yes(info), nil
	})
	return last
}

func (c *Cluster) await(bound time.Duration, what string, but []*Member, ask func(context.Context, *client.API) (any, bool, error)) {
	c.t.Helper()
	began, starved := time.Now(), c.Starved()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var seen any
	var err error
	for {
		done := false
		err = c.each(but, func(ctx context.Context, a *client.API) (err error) {
			var said any
			said, done, err = ask(ctx, a)
			if err == nil {
				seen = said
			}
			return err
		})
		switch {
		case err == nil && done:
			return
		case time.Since(began) > bound && time.Since(began) > bound+starved():
			c.t.Fatalf("not within %s: %s; seen last: %v, error: %v", bound, what, seen, err)
		}
		<-tick.C
	}
}

// Standing is who leads and who is in sync, in one line.
func Standing(info client.TopicInfo) string {
	text := ""
	for _, p := range info.Layout.Partitions {
		bounds := "where it stands is not known"
		if p.HW >= 0 {
			bounds = fmt.Sprintf("[%d,%d)", p.Earliest, p.HW)
		}
		text += fmt.Sprintf("%d: leader %s epoch %d isr %v of %v %s; ", p.ID, p.Leader, p.LeaderEpoch, p.ISR, p.Replicas, bounds)
	}
	return text
}

// Whole says that every partition has a leader, and as many replicas as the topic
// asks for, all in sync.
func Whole(info client.TopicInfo) bool {
	for _, p := range info.Layout.Partitions {
		if p.Leader == "" || len(p.ISR) != len(p.Replicas) || len(p.Replicas) < info.Replicas {
			return false
		}
	}
	return len(info.Layout.Partitions) > 0
}

// AwaitWhole waits until all partitions of topics have a leader and a full ISR.
func (c *Cluster) AwaitWhole(bound time.Duration, topics ...string) {
	c.t.Helper()
	for _, topic := range topics {
		c.AwaitTopic(bound, topic, "every replica is in sync", Whole)
	}
}

// Leaders are the names of the nodes that lead a topic's partitions, by partition.
func Leaders(info client.TopicInfo) map[int]string {
	leaders := map[int]string{}
	for _, p := range info.Layout.Partitions {
		leaders[p.ID] = p.Leader
	}
	return leaders
}

// Led are the partitions of a topic that a node leads.
func Led(info client.TopicInfo, node string) (led []int) {
	for _, p := range info.Layout.Partitions {
		if p.Leader == node {
			led = append(led, p.ID)
		}
	}
	return led
}

// AwaitSpread waits until every partition is led by its preferred replica, so that
// leaders are where they were meant to be.
func (c *Cluster) AwaitSpread(bound time.Duration, topic string) client.TopicInfo {
	c.t.Helper()
	return c.AwaitTopic(bound, topic, "the preferred replicas lead", func(info client.TopicInfo) bool {
		return Whole(info) && !slices.ContainsFunc(info.Layout.Partitions, func(p client.PartitionInfo) bool { return p.Leader != p.Replicas[0] })
	})
}

// AwaitState waits until a node is in a state as the others see it.
func (c *Cluster) AwaitState(bound time.Duration, m *Member, state string) {
	c.t.Helper()
	c.AwaitNodes(bound, m.Name+" is "+state, func(info client.NodesInfo) bool {
		x, ok := info.Find(m.Name)
		return ok && x.State == state
	}, m)
}

// CoordinatorLeader waits until one of the nodes leads the coordinators.
func (c *Cluster) CoordinatorLeader(but ...*Member) *Member {
	c.t.Helper()
	info := c.AwaitNodes(startTimeout, "a coordinator leads", func(info client.NodesInfo) bool {
		return info.CoordinatorLeader != "" && !slices.ContainsFunc(but, func(m *Member) bool { return m.Name == info.CoordinatorLeader })
	}, but...)
	return c.Member(info.CoordinatorLeader)
}
