package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// spent is a topic in whose log a purge ends in the midst of a batch.
const spent = 300

// TestAPurgeOutlivesItsLeader takes records out of a topic and kills its leader the moment
// that is answered. From then on nobody gives any of them to anybody: not the next leader,
// not a follower, not to a group, a cursor or a stream that stands there, and not after
// everything has lost its power. What stays is what it was.
func TestAPurgeOutlivesItsLeader(t *testing.T) {
	timed(t)
	c := harness.StartCluster(t, harness.ClusterOptions{})
	api := c.API()
	api.CreateTopic(t, "spent", `"partitions":1,"replicas":3,"retention":{"age":"0s","bytes":1048576}`)
	c.AwaitWhole(patience, "spent")
	var body strings.Builder
	for i := range int64(spent) {
		fmt.Fprintf(&body, "{\"value\":%q,\"content_type\":\"text/plain\"}\n", retentionValue(i))
	}
	api.Must(t, http.StatusCreated, http.MethodPost, "/topics/spent", "application/x-ndjson", body.String())
	cursor := api.MustPoll(t, "spent", "limit", "10").Cursor
	for _, m := range c.Members { // each has all of it in its memory, for those who follow
		events, err := client.OpenSSE(t.Context(), m.URL+"/topics/spent/events?from=earliest", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Close)
		for range spent {
			if _, _, err := events.NextMessage(); err != nil {
				t.Fatal(err)
			}
		}
	}
	worker := newSpender(t, c)
	worker.takes(0)

	leader := c.Member(api.Topic(t, "spent").Layout.Partitions[0].Leader)
	by := c.Others(leader)[0]
	for body, want := range map[string]string{`{"before":{"0":301}}`: "invalid", `{"before":{"1":0}}`: "partition-not-found"} {
		ans, err := client.New(by.URL).Do(t.Context(), http.MethodPost, "/topics/spent/purge", "application/json", body)
		if p, wrong := ans.Problem(); err != nil || wrong != nil || p.Code != want {
			t.Errorf("purge of %s: %d %s, %v", body, ans.Status, ans.Body, err)
		}
	}
	const first = 137
	got := client.New(by.URL).Must(t, http.StatusOK, http.MethodPost, "/topics/spent/purge", "application/json", `{"before":{"0":137}}`)
	leader.Kill()
	if want := `{"topic":"spent","partitions":[{"partition":0,"earliest":137}]}`; strings.TrimSpace(got.Body) != want {
		t.Errorf("purged: %s", got.Body)
	}
	gone := func(m *harness.Member, o int64) (served bool) {
		t.Helper()
		p, err := client.New(m.URL).Poll(t.Context(), "spent", "partition", "0", "offset", fmt.Sprint(o), "limit", "5")
		if err != nil {
			t.Fatal(err)
		}
		if p.Status == http.StatusOK && p.Messages[0].Offset < first {
			t.Fatalf("%s gives offset %d, which was purged", m.Name, p.Messages[0].Offset)
		}
		return p.Status == http.StatusGone && p.Problem.Code == "offset-expired" && string(p.Problem.Earliest) == fmt.Sprint(first)
	}
	for _, m := range c.Others(leader) {
		harness.Await(t, patience, m.Name+" knows what is gone", func() bool { return gone(m, 0) && gone(m, first-1) })
		all := client.New(m.URL).ReadAll(t, "spent", 0)
		if len(all) != spent-first || all[0].Offset != first {
			t.Fatalf("%s has %d records", m.Name, len(all))
		}
		for _, r := range all {
			if string(r.Bytes()) != retentionValue(r.Offset) {
				t.Fatalf("%s: offset %d is another record", m.Name, r.Offset)
			}
		}
		overtaken(t, m, cursor, first)
	}
	worker.goesOn(first)

	// Whoever comes back has missed the purge, and holds to it. Then all of it goes, and the
	// power with it.
	c.Run(leader)
	c.AwaitWhole(patience, "spent")
	harness.Await(t, patience, "who was away serves no less", func() bool { return gone(leader, 0) })
	if out, errs, code := leader.CLI(t.Context(), nil, "topic", "purge", "spent", "--yes"); code != 0 || !strings.Contains(out, `"earliest":300`) {
		t.Fatalf("purge of all: %d %s %s", code, out, errs)
	}
	c.KillAll()
	c.Run(c.Members...)
	c.AwaitWhole(patience, "spent")
	harness.Await(t, patience, "the partition begins at its end", func() bool {
		p := c.API().Topic(t, "spent").Layout.Partitions[0]
		return p.Earliest == spent && p.HW == spent
	})
	place := c.API().Must(t, http.StatusCreated, http.MethodPost, "/topics/spent", "text/plain", "new")
	if p, err := place.Place(); err != nil || p.Offset == nil || *p.Offset != spent {
		t.Fatalf("the next record: %s, %v", place.Body, err)
	}
	for _, m := range c.Members {
		if all := client.New(m.URL).ReadAll(t, "spent", 0); len(all) != 1 || all[0].Offset != spent {
			t.Errorf("%s has %d records", m.Name, len(all))
		}
		harness.Await(t, patience, "the disk of "+m.Name+" is freed", func() bool {
			return !slices.ContainsFunc(harness.Files(t, m.Dir(), ".log"), func(name string) bool { return strings.HasSuffix(name, "/00000000000000000000.log") })
		})
	}
	c.StopAll()
	harness.SameReplicas(t, harness.Replicas(t, c.Dirs()...))
}

// overtaken reads on from a cursor that stands in what was purged, by a poll and a stream.
func overtaken(t *testing.T, m *harness.Member, cursor string, first int64) {
	t.Helper()
	p, err := client.New(m.URL).Poll(t.Context(), "spent", "cursor", cursor)
	if err != nil || p.Status != http.StatusGone || p.Problem.Code != "cursor-expired" || p.Problem.Reason != "expired" {
		t.Errorf("%s, from a cursor in what is gone: %d %s, %v", m.Name, p.Status, p.Body, err)
	}
	events, err := client.OpenSSE(t.Context(), m.URL+"/topics/spent/events", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	kinds := ""
	for {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		kinds += e.Name + " "
		if e.Name == "message" {
			if r, err := client.ParseMessage([]byte(e.Data)); err != nil || r.Offset != first || !strings.Contains(kinds, "gap ") {
				t.Errorf("%s: a stream goes on with offset %d after %s, %v", m.Name, r.Offset, kinds, err)
			}
			return
		}
	}
}

// spender is a member of a group.
type spender struct {
	t *testing.T
	c *harness.Cluster
	client.Joined
}

func newSpender(t *testing.T, c *harness.Cluster) *spender {
	t.Helper()
	if _, err := c.API().RegisterGroup(t.Context(), "spent", "g", `"session":"1h","lease":"1h"`); err != nil {
		t.Fatal(err)
	}
	s := &spender{t: t, c: c}
	s.join()
	return s
}

func (s *spender) join() {
	s.t.Helper()
	var err error
	harness.Await(s.t, patience, "a member joins", func() bool {
		s.Joined, err = s.c.API().JoinGroup(s.t.Context(), "spent", "g", "w")
		return err == nil
	})
}

// take gets some records, once there are some.
func (s *spender) take() (got []client.Leased) {
	s.t.Helper()
	harness.Await(s.t, patience, "records are leased", func() bool {
		limited, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		got, _ = s.c.API().TakeMessages(limited, "spent", "g", s.Joined, 50, "1s")
		return len(got) > 0
	})
	return got
}

func (s *spender) takes(first int64) {
	s.t.Helper()
	if got := s.take(); got[0].Offset != first {
		s.t.Fatalf("offset %d is leased", got[0].Offset)
	}
}

// goesOn works off what is left. What was in hand is over, and counts as expired.
func (s *spender) goesOn(first int64) {
	s.t.Helper()
	s.join()
	for next := first; next < spent; {
		got := s.take()
		entries := client.Settlement{Member: s.Member, Epoch: s.Epoch}
		for _, r := range got {
			if r.Offset != next || string(r.Bytes()) != retentionValue(next) {
				s.t.Fatalf("offset %d is leased, not %d", r.Offset, next)
			}
			next++
			entries.Ack = append(entries.Ack, client.At{Partition: r.Partition, Offset: r.Offset})
		}
		if stale, err := s.c.API().Settle(s.t.Context(), "spent", "g", entries); err != nil || len(stale) > 0 {
			s.t.Fatalf("settled: %v, %v", stale, err)
		}
	}
	harness.Await(s.t, patience, "the group is done", func() bool {
		g, err := s.c.API().Group(s.t.Context(), "spent", "g")
		p := g.Partitions
		return err == nil && len(p) == 1 && p[0].Lag != nil && *p[0].Lag == 0 && *p[0].Committed == spent && *p[0].Expired == first
	})
	for o, want := range map[int64]string{0: "expired", first - 1: "expired", first: "processed"} {
		if all, err := s.c.API().RecordStatus(s.t.Context(), "spent", 0, o); err != nil || len(all) != 1 || all[0].Status != want {
			s.t.Errorf("offset %d: %+v, %v; want %s", o, all, err, want)
		}
	}
}
