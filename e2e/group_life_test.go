package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// elsewhere is a node that leads nothing of a topic's partition, through which no member
// came.
func elsewhere(t *testing.T, c *harness.Cluster, topic string, partition int, but *harness.Member) *harness.Member {
	t.Helper()
	leader := harness.Leaders(c.API(but).Topic(t, topic))[partition]
	for _, m := range c.Members {
		if m != but && m.Name != leader && m.Running() {
			return m
		}
	}
	t.Fatal("there is no such node")
	return nil
}

// statusOf is what a node says of a record in the one group of its topic.
func statusOf(t *testing.T, m *harness.Member, topic string, at client.At) client.RecordStatus {
	t.Helper()
	all, err := client.New(m.URL).RecordStatus(t.Context(), topic, at.Partition, at.Offset)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("%+v: %v", at, all)
	}
	return all[0]
}

// TestTheStatusOfARecordThroughItsLife asks a node that neither leads the record's partition
// nor is the gateway of the member what became of it, before and after the leader dies.
func TestTheStatusOfARecordThroughItsLife(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "lives", `"partitions":1,"replicas":3`)
	c.AwaitWhole(patience, "lives")
	api.Must(t, 201, "POST", "/topics/lives", "application/x-ndjson", `{"value":0}`+"\n"+`{"value":1}`+"\n"+`{"value":2}`+"\n"+`{"value":3}`+"\n")
	leader := c.Member(harness.Leaders(api.Topic(t, "lives"))[0])
	through := c.Others(leader)[0]
	asked := elsewhere(t, c, "lives", 0, through)
	member := client.New(through.URL)
	if _, err := member.RegisterGroup(t.Context(), "lives", "g", `"from":"earliest","lease":"20s","session":"20s"`); err != nil {
		t.Fatal(err)
	}
	want := func(offset int64, status, who string, delivery int) {
		t.Helper()
		s := statusOf(t, asked, "lives", client.At{Offset: offset})
		if s.Group != "g" || s.Status != status || s.Member != who || s.Delivery != delivery {
			t.Errorf("offset %d: %+v, want %s by %q, delivery %d", offset, s, status, who, delivery)
		}
		if until, err := time.Parse(time.RFC3339, s.LeaseUntil); status == "in-flight" && (err != nil || time.Until(until) <= 0 || time.Until(until) > 21*time.Second) {
			t.Errorf("offset %d: its lease ends at %q", offset, s.LeaseUntil)
		}
	}
	want(0, "received", "", 0)
	j, err := member.JoinGroup(t.Context(), "lives", "g", "ann")
	if err != nil {
		t.Fatal(err)
	}
	all := takeAll(t, member, "lives", "g", j, 4)
	want(0, "in-flight", "ann", 1)
	settleAll(t, member, "lives", "g", client.Settlement{
		Member: "ann", Epoch: j.Epoch, Ack: []client.At{{Offset: 0}}, Reject: []client.RejectionAt{{At: client.At{Offset: 1}, Reason: "no good"}},
	})
	want(0, "processed", "", 0)
	harness.Await(t, patience, "the rejected one is dead", func() bool { return statusOf(t, asked, "lives", client.At{Offset: 1}).Status == "dead" })
	if len(all) != 4 {
		t.Fatalf("%d messages", len(all))
	}

	leader.Kill()
	c.AwaitState(patience, leader, "dead")
	c.AwaitTopic(patience, "lives", "another leads", func(info client.TopicInfo) bool {
		l := harness.Leaders(info)[0]
		return l != "" && l != leader.Name
	}, leader)
	for offset, status := range []string{"processed", "dead"} {
		if s := statusOf(t, asked, "lives", client.At{Offset: int64(offset)}); s.Status != status {
			t.Errorf("after the leader's death offset %d: %+v, want %s", offset, s, status)
		}
	}
	// The same member gets the rest again from the new leader, under the number it had.
	again := takeAll(t, member, "lives", "g", j, 2)
	for _, m := range again {
		if m.Delivery != 1 {
			t.Errorf("offset %d: delivery %d after a takeover", m.Offset, m.Delivery)
		}
	}
	want(3, "in-flight", "ann", 1)
	settleAll(t, member, "lives", "g", client.Settlement{Member: "ann", Epoch: j.Epoch, Ack: []client.At{{Offset: 2}, {Offset: 3}}})
	want(3, "processed", "", 0)
	if _, err := client.New(asked.URL).RecordStatus(t.Context(), "lives", 0, 4); !refusedWith(err, "offset-not-found") {
		t.Errorf("the status of what is not there: %v", err)
	}
}

func refusedWith(err error, code string) bool {
	r, ok := err.(*client.Refused)
	return ok && r.Code == code
}

// takeAll takes so many messages, in as many calls as it needs.
func takeAll(t *testing.T, api *client.API, topic, group string, j client.Joined, n int) (all []client.Leased) {
	t.Helper()
	harness.Await(t, patience, fmt.Sprintf("%d messages", n), func() bool {
		some, err := api.TakeMessages(t.Context(), topic, group, j, n-len(all), "1s")
		if err != nil && !passingRefusal(err) {
			t.Fatal(err)
		}
		all = append(all, some...)
		return len(all) >= n
	})
	return all
}

// settleAll has all of it taken.
func settleAll(t *testing.T, api *client.API, topic, group string, s client.Settlement) {
	t.Helper()
	if stale, err := api.Settle(t.Context(), topic, group, s); err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
}

// TestAZombieIsFenced lets a member be silent for longer than its session: another one gets
// its work, and what it says afterwards counts no more.
func TestAZombieIsFenced(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "grave", `"partitions":1,"replicas":3`)
	c.AwaitWhole(patience, "grave")
	api.Must(t, 201, "POST", "/topics/grave", "application/json", `1`)
	if _, err := api.RegisterGroup(t.Context(), "grave", "g", `"from":"earliest","lease":"2s","session":"1s","backoff":"0s"`); err != nil {
		t.Fatal(err)
	}
	zombie, err := api.JoinGroup(t.Context(), "grave", "g", "zombie")
	if err != nil {
		t.Fatal(err)
	}
	takeAll(t, api, "grave", "g", zombie, 1)
	other, err := api.JoinGroup(t.Context(), "grave", "g", "other")
	if err != nil {
		t.Fatal(err)
	}
	got := takeAll(t, api, "grave", "g", other, 1) // the zombie says nothing meanwhile
	if got[0].Delivery != 2 {
		t.Errorf("delivery %d of what a lost member had", got[0].Delivery)
	}
	if _, err := api.Settle(t.Context(), "grave", "g", client.Settlement{Member: "zombie", Epoch: zombie.Epoch, Ack: []client.At{{}}}); !isFenced(err) {
		t.Errorf("a zombie acknowledges: %v", err)
	}
	if _, _, err := api.Heartbeat(t.Context(), "grave", "g", zombie, []int{0}); !isFenced(err) {
		t.Errorf("a zombie's heart beats: %v", err)
	}
	settleAll(t, api, "grave", "g", client.Settlement{Member: "other", Epoch: other.Epoch, Ack: []client.At{{}}})
}

// TestAStoppedProcessIsFenced stops a member's process with a record in hand for longer than
// its session. Another one gets the record; the process hears of it when it goes on, gives
// up what it was at, and joins again.
func TestAStoppedProcessIsFenced(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "grave", `"partitions":1,"replicas":3`)
	c.AwaitWhole(patience, "grave")
	api.Must(t, 201, "POST", "/topics/grave", "application/json", `1`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	running := filepath.Join(t.TempDir(), "running")
	zombie := exec.CommandContext(ctx, harness.Binary(t), "consume", "grave", "--group", "g", "--member", "zombie", "--server", c.Members[0].URL,
		"--from", "earliest", "--lease", "5s", "--session", "5s", "--backoff", "0s", "--exec", fmt.Sprintf(`echo > %q; exec sleep 600`, running))
	var noted strings.Builder
	zombie.Stderr = &noted
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := zombie.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	member := func() bool {
		info, err := api.Group(t.Context(), "grave", "g")
		return err == nil && len(info.Members) == 1 && info.Members[0].Member == "zombie"
	}
	harness.Await(t, patience, "it works", func() bool {
		_, err := os.Stat(running)
		return err == nil
	})
	signal(syscall.SIGSTOP)
	other, err := api.JoinGroup(t.Context(), "grave", "g", "other")
	if err != nil {
		t.Fatal(err)
	}
	if got := takeAll(t, api, "grave", "g", other, 1); got[0].Delivery != 2 {
		t.Errorf("delivery %d of what a stopped member had", got[0].Delivery)
	}
	settleAll(t, api, "grave", "g", client.Settlement{Member: "other", Epoch: other.Epoch, Ack: []client.At{{}}})
	if err := api.LeaveGroup(t.Context(), "grave", "g", "other"); err != nil {
		t.Fatal(err)
	}
	if member() {
		t.Fatal("a process that was stopped for a session is a member still")
	}
	signal(syscall.SIGCONT)
	harness.Await(t, patience, "it has joined again", member)
	signal(syscall.SIGINT)
	if err := zombie.Wait(); err != nil || !strings.Contains(noted.String(), "fenced") || !strings.Contains(noted.String(), "0 records done") {
		t.Errorf("it says %v:\n%s", err, noted.String())
	}
}

// TestAStalledCoordinatorEvictsNobody pauses the leading coordinator for longer than a
// session: members whose hearts beat at the other nodes stay.
func TestAStalledCoordinatorEvictsNobody(t *testing.T) {
	t.Parallel()
	stall := 5 * time.Second
	if harness.Soak() {
		stall = 15 * time.Second
	}
	c := harness.StartCluster(t, harness.ClusterOptions{})
	c.API().CreateTopic(t, "calm", `"partitions":3,"replicas":3`)
	c.AwaitWhole(patience, "calm")
	stalled := c.CoordinatorLeader()
	var hearts []*client.API
	for _, m := range c.Others(stalled) {
		hearts = append(hearts, client.New(m.URL))
	}
	if _, err := hearts[0].RegisterGroup(t.Context(), "calm", "g", `"session":"2s"`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	beats := make(chan error, 4)
	for i := range 4 {
		api := hearts[i%2]
		j, err := api.JoinGroup(ctx, "calm", "g", fmt.Sprint("m", i))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			held := j.Partitions
			for ctx.Err() == nil {
				p, _, err := api.Heartbeat(ctx, "calm", "g", j, held)
				switch {
				case err == nil:
					held = p
				case ctx.Err() == nil && !passingRefusal(err):
					beats <- err
					return
				}
				pause(ctx, 300*time.Millisecond)
			}
			beats <- nil
		}()
	}
	stalled.Pause()
	pause(t.Context(), stall)
	stalled.Continue()
	c.AwaitState(patience, stalled, "alive")
	pause(t.Context(), 3*time.Second) // a session and more: whoever was to be evicted would be by now
	cancel()
	for range 4 {
		if err := <-beats; err != nil {
			t.Errorf("a member that kept beating: %v", err)
		}
	}
	info, err := hearts[0].Group(t.Context(), "calm", "g")
	if err != nil || len(info.Members) != 4 {
		t.Errorf("%d members, %v", len(info.Members), err)
	}
}

// TestATenthMemberMovesOnlyWhatMustMove has a member join nine that work: partitions that
// stay are delivered on, and one that comes back within its session moves nothing.
func TestATenthMemberMovesOnlyWhatMustMove(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	const partitions = 30
	api.CreateTopic(t, "shares", fmt.Sprintf(`"partitions":%d,"replicas":3`, partitions))
	c.AwaitWhole(patience, "shares")
	if _, err := api.RegisterGroup(t.Context(), "shares", "g", `"lease":"10s","session":"10s"`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	owners := func() map[int]string {
		info, err := api.Group(t.Context(), "shares", "g")
		if err != nil {
			t.Fatal(err)
		}
		all := map[int]string{}
		for _, p := range info.Partitions {
			if p.Member != nil {
				all[p.Partition] = *p.Member
			}
		}
		return all
	}
	balanced := func(members int) map[int]string {
		t.Helper()
		var all map[int]string
		harness.Await(t, patience, fmt.Sprintf("%d members own everything", members), func() bool {
			all = owners()
			count := map[string]int{}
			for _, m := range all {
				count[m]++
			}
			if len(all) != partitions || len(count) != members {
				return false
			}
			for _, n := range count {
				if n < partitions/members || n > (partitions+members-1)/members {
					return false
				}
			}
			return true
		})
		return all
	}
	w := newShareWorkers(t, ctx, c, "shares")
	for i := range 9 {
		w.work(fmt.Sprint("m", i))
	}
	before := balanced(9)
	w.publish(partitions)
	began := time.Now()
	w.awaitEach(20)
	calm := w.pauses(slices.Sorted(maps.Keys(before)), began)
	joined, starved := time.Now(), c.Starved()
	w.work("tenth")
	after := balanced(10)
	moved := 0
	stayed := []int{}
	for p := range partitions {
		if before[p] != after[p] {
			moved++
		} else {
			stayed = append(stayed, p)
		}
	}
	w.awaitEach(20)
	pauses := w.pauses(stayed, joined)
	worst := pauses[len(pauses)-1]
	t.Logf("%d of %d partitions moved; %d pauses of those that stayed: %s; before it joined, of all: %s", moved, partitions, len(pauses), spread(pauses), spread(calm))
	if moved != partitions/10 {
		t.Errorf("%d partitions moved for a tenth member, %d have to", moved, partitions/10)
	}
	if bound := slack(200*time.Millisecond) + starved(); worst > bound {
		t.Errorf("a partition that stayed was not delivered for %s, %s at most is allowed", worst, bound)
	}
	w.rejoin("m3")
	w.awaitEach(20)
	if now := owners(); !slices.Equal(values(now), values(after)) {
		t.Errorf("a member that came back within its session moved partitions: %v, then %v", after, now)
	}
}

func values(of map[int]string) (all []string) {
	for p := range len(of) {
		all = append(all, of[p])
	}
	return all
}
