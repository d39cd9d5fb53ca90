package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// harmJournal changes one byte of a node's journal that was durable: of the last
// checkpoint where it stopped in good order, of some frame where it was killed.
func harmJournal(t *testing.T, m *harness.Member, killed bool) {
	t.Helper()
	folder := filepath.Join(m.Dir(), "journal")
	name, frames := takeImage(t, folder).journalFrames(t)
	at := len(frames) - 3 // before the last frame, which is a mark
	if killed {
		at = len(frames) * 3 / 4
	}
	harness.FlipByte(t, filepath.Join(folder, name), frames[max(at, 0)]+40)
}

// renewals are the folders that a node has set aside as a whole.
func renewals(t *testing.T, m *harness.Member) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(m.Dir(), "quarantine", "before-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestACorruptJournalIsRenewed changes a byte of the journal of a node that is down: it
// is reported, nothing of the folder counts or is served, and everything is fetched again
// from the leaders.
func TestACorruptJournalIsRenewed(t *testing.T) {
	beside(t)
	for _, killed := range []bool{false, true} {
		t.Run(map[bool]string{false: "stopped", true: "killed"}[killed], func(t *testing.T) {
			timed(t)
			c := harness.StartCluster(t, harness.ClusterOptions{})
			o := harmCrew("journal")
			w := startCrew(t, c, o)
			info := c.AwaitSpread(patience, "journal")
			m := c.Others(c.CoordinatorLeader())[0]
			awaitSealed(t, m, info, 0)
			before := isrChanges(c, m)
			s := w.begin("the journal of %s is harmed", m.Name)
			if killed {
				m.Kill()
			} else if err := m.Stop(); err != nil {
				t.Fatal(err)
			}
			harmJournal(t, m, killed)
			if err := m.Begin(); err != nil {
				t.Fatal(err)
			}
			awaitCaughtUpAnew(c, m, info, before)
			s.end(class{"all partitions", anyPartition, lostLeader})
			awaitAlert(t, c, "corrupt-replica", m.Name)
			for metric, want := range map[string]func(float64) bool{
				"storage_corruption_total":       func(v float64) bool { return v > 0 },
				"broker_repaired_replicas_total": func(v float64) bool { return v == float64(len(info.Layout.Partitions)) },
				"broker_read_only":               func(v float64) bool { return v == 0 },
				"broker_damaged_partitions":      func(v float64) bool { return v == 0 },
			} {
				if v := m.Metric(metric); !want(v) {
					t.Errorf("%s is %v", metric, v)
				}
			}
			if all := renewals(t, m); len(all) != 1 || len(harness.Files(t, filepath.Join(all[0], "journal"), ".journal")) == 0 {
				t.Errorf("set aside: %v", all)
			}
			w.finish()
			w.identical()
		})
	}
}

// TestACorruptJournalOfTheOnlyReplicaIsKept changes a byte of the journal of a node that
// alone has a topic: nothing is thrown away before somebody has decided that, and nobody
// counts on what else it has.
func TestACorruptJournalOfTheOnlyReplicaIsKept(t *testing.T) {
	t.Parallel()
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	lone := api.CreateTopic(t, "lone", `"partitions":3,"replicas":1`)
	api.CreateTopic(t, "kept", `"partitions":3,"replicas":3`)
	for i := range 30 {
		for _, topic := range []string{"lone", "kept"} {
			api.Must(t, http.StatusCreated, "POST", fmt.Sprintf("/topics/%s?partition=%d", topic, i%3), "text/plain", fmt.Sprint(topic, i/3))
		}
	}
	m := c.Member(lone.Layout.Partitions[0].Leader)
	api.HTTP.CloseIdleConnections()
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	harmJournal(t, m, false)
	c.Run(m)
	c.AwaitTopic(patience, "kept", "nobody counts on the harmed folder", func(now client.TopicInfo) bool {
		return !slices.ContainsFunc(now.Layout.Partitions, func(p client.PartitionInfo) bool { return slices.Contains(p.ISR, m.Name) })
	})
	if v := m.Metric("broker_read_only"); v != 1 || len(renewals(t, m)) != 0 {
		t.Errorf("read only: %v; set aside: %v", v, renewals(t, m))
	}
	if word := "nobody else has all that this node holds"; !strings.Contains(m.Log(), word) {
		t.Errorf("its log does not say %q", word)
	}
	awaitAlert(t, c, "corrupt-replica", m.Name)

	// Somebody decides that what it alone had is not needed any more.
	api = c.API(m)
	api.Must(t, http.StatusNoContent, "DELETE", "/topics/lone", "", "")
	api.HTTP.CloseIdleConnections()
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Run(m)
	c.AwaitWhole(patience, "kept")
	if v := m.Metric("broker_read_only"); v != 0 || len(renewals(t, m)) != 1 {
		t.Errorf("read only: %v; set aside: %v", v, renewals(t, m))
	}
	for p := range 3 {
		api := client.New(m.URL)
		got := api.ReadAll(t, "kept", p)
		api.HTTP.CloseIdleConnections()
		if len(got) != 10 {
			t.Errorf("partition %d has %d records", p, len(got))
		}
		for i, r := range got {
			if want := fmt.Sprint("kept", i); valueOf(r) != want {
				t.Errorf("partition %d, offset %d holds %q", p, i, valueOf(r))
			}
		}
	}
}
