package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestMishapsOnMishaps lets something happen to a cluster to which something else is
// happening, each under load.
func TestMishapsOnMishaps(t *testing.T) {
	beside(t)
	for _, x := range []struct {
		name   string
		short  bool // part of the short form
		args   []string
		refuse func(code, by string) bool
		play   func(t *testing.T, c *harness.Cluster, w *crew)
	}{
		{name: "two of three are killed at once", refuse: hesitant, play: twoAtOnce},
		{name: "a node is back within its lease", play: backWithinItsLease},
		{name: "a drain while another node is dead", play: drainBesideADeadNode},
		{name: "a fourth node leaves for good", args: []string{"--replica-replace", "5s"}, play: leavesForGood},
		{name: "topics come and go while nodes die", short: true, play: topicsComeAndGo},
		{name: "strangers talk to the ports of nodes", play: strangersTalk},
	} {
		if !x.short && !harness.Soak() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			timed(t)
			c := harness.StartCluster(t, harness.ClusterOptions{Args: x.args})
			w := startCrew(t, c, crewOptions{topic: "twice", readers: 20, mayRefuse: x.refuse})
			c.AwaitSpread(patience, "twice")
			x.play(t, c, w)
			w.finish()
			w.identical()
		})
	}
}

// twoAtOnce leaves one node, which can decide nothing, and lets the others return, now
// the leading coordinator and now not among them.
func twoAtOnce(t *testing.T, c *harness.Cluster, w *crew) {
	for _, m := range c.Members {
		victims := c.Others(m)
		s := w.begin("%s and %s are killed at once", victims[0].Name, victims[1].Name)
		harness.KillAtOnce(victims...)
		pause(t.Context(), 2*time.Second)
		c.Run(victims...)
		c.AwaitWhole(patience, "twice")
		s.end(class{"all partitions", anyPartition, 0})
		for _, v := range victims {
			w.awaitTruth(v, "alive")
		}
	}
}

// backWithinItsLease kills a node and starts it at once: it has another life, and what it
// led goes on.
func backWithinItsLease(t *testing.T, c *harness.Cluster, w *crew) {
	for _, m := range c.Members {
		c.AwaitSpread(patience, "twice")
		more := time.Duration(0)
		if c.CoordinatorLeader() == m {
			more = alsoCoordinator
		}
		led, others := leadBy(m.Name)
		s := w.begin("%s is killed and started at once", m.Name)
		m.Kill()
		c.Run(m)
		w.awaitTruth(m, "alive")
		c.AwaitWhole(patience, "twice")
		s.end(class{"leader lost", led, lostLeader + more}, class{"follower lost", others, lostFollower + more})
	}
}

// drainBesideADeadNode moves what a node leads to the only one that is left.
func drainBesideADeadNode(t *testing.T, c *harness.Cluster, w *crew) {
	dead := c.Others(c.CoordinatorLeader())[0]
	for _, m := range c.Others(dead) {
		c.AwaitSpread(patience, "twice")
		dead.Kill()
		w.awaitTruth(dead, "dead")
		w.awaitEach(5)
		last := c.Others(dead, m)[0]
		s := w.begin("drain of %s while %s is dead", m.Name, dead.Name)
		if stdout, stderr, code := last.CLI(t.Context(), nil, "drain", m.Name, "--wait", "--timeout", patience.String()); code != 0 {
			t.Fatalf("drain: exit %d: %s%s", code, stdout, stderr)
		}
		w.awaitTruth(m, "draining")
		if led := harness.Led(w.info(), m.Name); len(led) > 0 {
			t.Errorf("%s is drained and leads %v", m.Name, led)
		}
		s.end(class{"all partitions", anyPartition, handedOver})
		s = w.begin("%s returns while %s is drained", dead.Name, m.Name)
		c.Run(dead)
		if stdout, stderr, code := last.CLI(t.Context(), nil, "drain", m.Name, "--cancel"); code != 0 {
			t.Fatalf("drain --cancel: exit %d: %s%s", code, stdout, stderr)
		}
		w.awaitTruth(m, "alive")
		w.awaitTruth(dead, "alive")
		c.AwaitWhole(patience, "twice")
		s.end(class{"all partitions", anyPartition, lostFollower})
	}
}

// leavesForGood adds a node, and kills it for ever once it has its share.
func leavesForGood(t *testing.T, c *harness.Cluster, w *crew) {
	m := c.Add(harness.AllRoles)
	c.AwaitTopic(patience, "twice", "the fourth node has its share", func(info client.TopicInfo) bool {
		return harness.Whole(info) && len(harness.Led(info, m.Name)) > 0
	})
	c.AwaitSpread(patience, "twice")
	led, others := leadBy(m.Name)
	s := w.begin("%s is killed for good", m.Name)
	m.Kill()
	w.awaitTruth(m, "dead")
	c.AwaitTopic(patience, "twice", "others have what it had", func(info client.TopicInfo) bool {
		return harness.Whole(info) && !slices.ContainsFunc(info.Layout.Partitions, func(p client.PartitionInfo) bool { return slices.Contains(p.Replicas, m.Name) })
	})
	s.end(class{"leader lost", led, lostLeader}, class{"follower lost", others, lostFollower})
	// Its folder is no replica any more.
	c.Members = c.Others(m)
}

// topicsComeAndGo makes and deletes topics by way of every node while nodes are killed in
// turn: in the end there is nothing of them, in the lists or on the disks.
func topicsComeAndGo(t *testing.T, c *harness.Cluster, w *crew) {
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() {
		stop()
		working.Wait()
	}()
	var mu sync.Mutex
	made, gone, answers := 0, 0, map[int]int{}
	for i := range 4 {
		working.Go(func() {
			api := &client.API{HTTP: &http.Client{Timeout: 5 * time.Second}}
			defer api.HTTP.CloseIdleConnections()
			for n := i; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("fleeting-%d", i)
				for _, call := range []struct{ method, path, body string }{
					{"POST", "/topics/", `{"name":"` + name + `","partitions":3}`}, {"POST", "/topics/" + name, `1`}, {"DELETE", "/topics/" + name, ""},
				} {
					api.URL = w.gateway(n).url
					kind := ""
					if call.body != "" {
						kind = "application/json"
					}
					ans, err := api.Do(ctx, call.method, call.path, kind, call.body)
					mu.Lock()
					if err == nil {
						answers[ans.Status]++
						if ans.Status == 500 {
							t.Errorf("%s %s: %d %s", call.method, call.path, ans.Status, ans.Body)
						}
						if ans.Status == 201 && call.path == "/topics/" {
							made++
						}
						if ans.Status == 204 {
							gone++
						}
					}
					mu.Unlock()
					if err != nil {
						n++
						pause(ctx, betweenTries)
					}
				}
			}
		})
	}
	victims := c.Members
	if !harness.Soak() {
		victims = []*harness.Member{c.CoordinatorLeader()}
	}
	for _, m := range victims {
		s := w.begin("%s is killed while topics come and go", m.Name)
		m.Kill()
		w.awaitTruth(m, "dead")
		s.end(class{"all partitions", anyPartition, lostLeader + alsoCoordinator})
		c.Run(m)
		c.AwaitWhole(patience, "twice")
	}
	stop()
	working.Wait()
	t.Logf("%d topics were made and %d deleted; answers: %v", made, gone, answers)
	if made == 0 || gone == 0 {
		t.Error("no topic came and went: this proves nothing")
	}
	for i := range 4 { // the end of some was not asked for, or the answer was lost
		ans, err := c.API().Do(t.Context(), "DELETE", fmt.Sprintf("/topics/fleeting-%d", i), "", "")
		if err != nil || ans.Status != http.StatusNoContent && ans.Status != http.StatusNotFound {
			t.Errorf("fleeting-%d cannot be deleted: %d %s %v", i, ans.Status, ans.Body, err)
		}
	}
	for _, m := range c.Members {
		harness.Await(t, patience, m.Name+" has the folder of one topic", func() bool {
			all, err := filepath.Glob(filepath.Join(m.Dir(), "topics", "*"))
			return err == nil && len(all) == 1
		})
	}
}

// strangersTalk sends what no node says to the ports that are for nodes.
func strangersTalk(t *testing.T, c *harness.Cluster, w *crew) {
	seed := random(t)
	ctx, stop := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	defer func() {
		stop()
		talking.Wait()
	}()
	sent := map[string]int{}
	var mu sync.Mutex
	for _, port := range []string{"rpc", "raft", "gossip"} {
		r := rand.New(rand.NewPCG(seed.Uint64(), 1))
		talking.Go(func() {
			for ctx.Err() == nil {
				m := c.Members[r.IntN(len(c.Members))]
				junk := make([]byte, 1+r.IntN(4<<10))
				for i := range junk {
					junk[i] = byte(r.Uint32())
				}
				switch r.IntN(4) {
				case 0:
					junk = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), junk...)
				case 1:
					junk[0] = byte(r.IntN(12)) // kinds of messages of Raft and gossip are small numbers
				case 2:
					junk = append([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), junk...)
				}
				network := "tcp"
				if port == "gossip" && r.IntN(2) == 0 {
					network = "udp"
					junk = junk[:min(len(junk), 1200)]
				}
				if talk(m.Listeners[port], network, junk, r.IntN(2) == 0) {
					mu.Lock()
					sent[port+" "+network]++
					mu.Unlock()
				}
				pause(ctx, 2*time.Millisecond)
			}
		})
	}
	s := w.begin("strangers talk to the ports of nodes")
	before := c.CoordinatorLeader()
	for began := time.Now(); time.Since(began) < 15*time.Second; {
		w.awaitEach(20)
	}
	s.end(class{"all partitions", anyPartition, handedOver})
	stop()
	talking.Wait()
	t.Logf("messages of strangers: %v", sent)
	for _, m := range c.Members {
		w.awaitTruth(m, "alive")
	}
	if after := c.CoordinatorLeader(); after != before { // a busy machine may do that, and is told from it by its load
		w.late.add("%s led the coordinators, and %s does after strangers talked; load %s", before.Name, after.Name, harness.Load())
	}
	if info, err := c.API().TryNodes(t.Context()); err != nil || len(info.Nodes) != len(c.Members) {
		t.Errorf("strangers are listed: %+v %v", info, err)
	}
}

// talk sends bytes to a port and leaves, at once or once the other side has.
func talk(addr, network string, junk []byte, stay bool) bool {
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	_, err = conn.Write(junk)
	if stay && network == "tcp" {
		_, _ = io.Copy(io.Discard, conn)
	}
	return err == nil || errors.Is(err, io.EOF)
}
