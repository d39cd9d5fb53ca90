package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// harmCrew writes enough that segments are sealed: they are an eighth of the
// retention.
func harmCrew(topic string) crewOptions {
	return crewOptions{topic: topic, partitions: 3, producers: 6, readers: 10, pad: 8 << 10, pace: 8 * time.Millisecond, settings: `"replicas":3,"retention":{"bytes":33554432}`}
}

// dataFiles are a node's files of one partition with a suffix, the oldest first.
func dataFiles(t *testing.T, m *harness.Member, topic client.TopicInfo, partition int, suffix string) []string {
	t.Helper()
	return harness.Files(t, filepath.Join(m.Dir(), "topics", topic.ID, fmt.Sprint(partition)), suffix)
}

// awaitSealed waits until a node has sealed segments of a partition.
func awaitSealed(t *testing.T, m *harness.Member, topic client.TopicInfo, partition int) (sealed string) {
	t.Helper()
	harness.Await(t, patience, fmt.Sprintf("%s seals a segment of partition %d", m.Name, partition), func() bool {
		if _, err := os.Stat(filepath.Join(m.Dir(), "topics", topic.ID, fmt.Sprint(partition))); err != nil {
			return false
		}
		files := dataFiles(t, m, topic, partition, ".log")
		if len(files) < 2 {
			return false
		}
		sealed = files[len(files)-2]
		return true
	})
	return sealed
}

// awaitAlert waits until a gateway tells of an alert, firing or recent, that names
// some things.
func awaitAlert(t *testing.T, c *harness.Cluster, alert string, names ...string) {
	t.Helper()
	last := ""
	ask := map[string]*client.API{}
	for _, m := range c.Members {
		ask[m.Name] = client.New(m.URL)
		defer ask[m.Name].HTTP.CloseIdleConnections()
	}
	harness.Await(t, patience, "the alert "+alert, func() bool {
		for _, m := range c.Gateways() {
			alerts, raw, err := ask[m.Name].TryAlerts(t.Context())
			if err != nil {
				continue
			}
			last = raw
			if slices.ContainsFunc(alerts, func(a client.Alert) bool { return a.Name == alert }) &&
				!slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(raw, n) }) {
				return true
			}
		}
		return false
	})
	t.Logf("alerts: %.600s", last)
}

// isrChanges are those that all leaders but one node's have made so far.
func isrChanges(c *harness.Cluster, but *harness.Member) (n float64) {
	for _, m := range c.Others(but) {
		n += m.Metric("broker_isr_changes_total")
	}
	return n
}

// awaitCaughtUpAnew waits until a node that was begun with another folder has been out of
// every ISR of a topic and is in sync again; before are the changes that leaders had made
// until then. Where this looks too seldom to see it out, they have let it in again.
func awaitCaughtUpAnew(c *harness.Cluster, m *harness.Member, topic client.TopicInfo, before float64) {
	out := map[int]bool{}
	c.AwaitTopic(patience, topic.Name, m.Name+" has been out of every ISR and is in sync again", func(now client.TopicInfo) bool {
		for _, p := range now.Layout.Partitions {
			if !slices.Contains(p.ISR, m.Name) {
				out[p.ID] = true
			}
		}
		all := len(topic.Layout.Partitions)
		return harness.Whole(now) && (len(out) == all || isrChanges(c, m) >= before+float64(all))
	}, m)
	c.AwaitReady(m)
}

// sameRecords reads a partition by way of one node, and by way of its leader, and wants
// the same of both, as far as both still have it.
func sameRecords(t *testing.T, c *harness.Cluster, m *harness.Member, topic string, partition int) {
	t.Helper()
	read := func(m *harness.Member) []client.Message {
		api := client.New(m.URL)
		defer api.HTTP.CloseIdleConnections()
		return api.ReadAll(t, topic, partition)
	}
	leader := c.Member(harness.Leaders(c.API().Topic(t, topic))[partition])
	want := map[int64]client.Message{}
	for _, x := range read(leader) {
		want[x.Offset] = x
	}
	same := 0
	for _, x := range read(m) {
		y, ok := want[x.Offset]
		if !ok {
			continue // it has been written, or has had its time, between the two
		}
		if x.KeyText() != y.KeyText() || !bytes.Equal(x.Bytes(), y.Bytes()) {
			t.Errorf("%s serves another record at offset %d of partition %d than its leader %s", m.Name, x.Offset, partition, leader.Name)
		}
		same++
	}
	if same == 0 {
		t.Errorf("nothing of partition %d could be compared between %s and %s", partition, m.Name, leader.Name)
	}
	t.Logf("%d records of partition %d are the same by way of %s and of its leader %s", same, partition, m.Name, leader.Name)
}

// TestAHarmedReplicaIsFoundAndRepaired changes a byte of what a follower keeps,
// where it is found by the scrub or by a reader: it is reported, never served, and
// fetched again from the leader.
func TestAHarmedReplicaIsFoundAndRepaired(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		args []string
		harm func(t *testing.T, c *harness.Cluster, m *harness.Member, info client.TopicInfo, partition int)
	}{
		{"sealed segment, by the scrub", []string{"--scrub-rate", "64MiB", "--scrub-every", "2s"}, func(t *testing.T, c *harness.Cluster, m *harness.Member, info client.TopicInfo, partition int) {
			harness.FlipByte(t, awaitSealed(t, m, info, partition), 100_000)
		}},
		{"sealed segment, by a reader", []string{"--scrub-rate", "0"}, func(t *testing.T, c *harness.Cluster, m *harness.Member, info client.TopicInfo, partition int) {
			harness.FlipByte(t, awaitSealed(t, m, info, partition), 100_000)
			sameRecords(t, c, m, info.Name, partition)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			busy(t)
			c := harness.StartCluster(t, harness.ClusterOptions{Args: x.args})
			o := harmCrew("harm")
			o.bound = 10 * time.Minute
			w := startCrew(t, c, o)
			info := c.AwaitSpread(patience, "harm")
			partition := info.Layout.Partitions[0].ID
			follower := c.Others(c.Member(info.Layout.Partitions[0].Leader))[0]
			awaitSealed(t, follower, info, partition)
			x.harm(t, c, follower, info, partition)
			awaitAlert(t, c, "corrupt-replica", follower.Name)
			sameRecords(t, c, follower, info.Name, partition)
			harness.Await(t, patience, "the damage is counted, repaired and gone", func() bool {
				return follower.Metric("storage_corruption_total") > 0 && follower.Metric("broker_repaired_replicas_total") > 0 &&
					follower.Metric("broker_damaged_partitions") == 0
			})
			c.AwaitWhole(patience, "harm")
			sameRecords(t, c, follower, info.Name, partition)
			w.finish()
			w.identical()
		})
	}
}

// TestAnotherFolderIsNoReplica lets a node return with an older copy of its folder,
// and with an empty one, before anybody has noticed that it was gone: it is out of
// every ISR until it has caught up. With an empty folder it is another node, which
// takes over what the lost one had once that is given up.
func TestAnotherFolderIsNoReplica(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{Args: []string{"--replica-replace", "5s"}})
	w := startCrew(t, c, harmCrew("folders"))
	info := c.AwaitSpread(patience, "folders")
	m := c.Others(c.CoordinatorLeader())[0]
	awaitSealed(t, m, info, 0)

	// A copy of the folder as it was some records ago.
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	old := t.TempDir()
	harness.CopyDir(t, m.Dir(), old)
	c.Run(m)
	c.AwaitWhole(patience, "folders")

	for _, x := range []struct {
		name    string
		replace func()
	}{
		{"an older copy", func() { m.Restore(old) }},
		{"an empty folder", m.Wipe},
	} {
		w.awaitEach(50)
		before := isrChanges(c, m)
		s := w.begin("%s of %s", x.name, m.Name)
		m.Kill()
		x.replace()
		if err := m.Begin(); err != nil {
			t.Fatal(err)
		}
		// From here to the moment at which it has caught up it must be in no ISR.
		awaitCaughtUpAnew(c, m, info, before)
		s.end(class{"all partitions", anyPartition, lostLeader})
	}
	w.finish()
	w.identical()
}

// TestAFullDiskOfOneBroker fills the disk of one node of three: what it leads is
// refused clearly or led elsewhere, reading goes on, and all is well once there is
// space.
func TestAFullDiskOfOneBroker(t *testing.T) {
	timed(t)
	disk := smallDisk(t, "256m")
	c := harness.StartCluster(t, harness.ClusterOptions{Dirs: []string{"", "", filepath.Join(disk, "data")}, Args: []string{"--min-free-bytes", "8MiB"}})
	full := c.Members[2]
	o := largeCrew("filling")
	o.readers /= 2
	o.pad = 4 << 10
	o.settings = `"replicas":3,"retention":{"bytes":16777216}`
	o.mayRefuse = func(code, _ string) bool { return code == "disk-full" }
	w := startCrew(t, c, o)
	c.AwaitSpread(patience, "filling")
	led, others := leadBy(full.Name)
	s := w.begin("the disk of %s is full", full.Name)
	foreign := filepath.Join(disk, "foreign")
	hog(t, foreign, 0)
	begin := time.Now()
	harness.Await(t, patience, "partitions that others lead are written to", func() bool {
		w.check()
		for _, p := range w.producers {
			if others(s.led[p.partition]) && len(p.waits.during(begin.Add(3*time.Second), time.Now())) == 0 {
				return false
			}
		}
		return true
	})
	c.AwaitTopic(patience, "filling", "others lead what it led", func(info client.TopicInfo) bool {
		return !slices.Contains(slices.Collect(maps.Values(harness.Leaders(info))), full.Name)
	})
	awaitReadiness(t, full, 200, "takes no records")
	roomy, tight := client.New(c.Members[0].URL), client.New(full.URL) // one connection each, however often they are asked
	for _, p := range w.topic.Layout.Partitions {
		if n := len(tight.ReadAll(t, "filling", p.ID)); n == 0 {
			t.Errorf("nothing can be read of partition %d by the node whose disk is full", p.ID)
		}
	}
	harness.Await(t, patience, "a topic is created meanwhile", func() bool { // by a coordinator that has space
		a, err := roomy.Do(t.Context(), "POST", "/topics/", "application/json", `{"name":"meanwhile","partitions":3}`)
		return err == nil && a.Status < 300
	})
	c.Await(slack(fellSilentLagged), "the node whose disk is full knows what was decided meanwhile", func() bool {
		a, err := tight.Do(t.Context(), "GET", "/topics/meanwhile/metadata", "", "")
		return err == nil && a.Status == 200
	})
	t.Logf("with a full disk: %s; refused: %s", harness.Standing(w.info()), &w.answers)
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	freed := time.Now()
	c.AwaitWhole(patience, "filling")
	s.end(class{"led by it", led, 0}, class{"led by others", others, fellSilentLagged})
	t.Logf("all replicas in sync %s after there was space again", time.Since(freed).Round(time.Millisecond))
	w.finish()
	w.identical()
}
