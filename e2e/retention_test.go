package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// retentionClients is how many clients poll.
const retentionClients = 50

// retentionOffsets is at how many random offsets each of them polls, twice.
func retentionOffsets() int {
	if harness.Soak() {
		return 200
	}
	return 20
}

// TestRetention polls at random offsets while retention deletes segments. A
// record's value says where it stands, so a wrong one cannot pass; what is gone
// must be said, and where to go on.
func TestRetention(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, retention string }{
		{"bytes", `{"age":"0s","bytes":1048576}`},
		{"age", `{"age":"2s","bytes":0}`},
	} {
		t.Run(c.name, func(t *testing.T) { retention(t, c.retention) })
	}
}

// retentionValue is the value of the record at an offset.
func retentionValue(offset int64) string {
	return fmt.Sprintf("%d %s", offset, strings.Repeat(string(rune('a'+offset%26)), 500+int(offset*31%1000)))
}

func retention(t *testing.T, settings string) {
	r := random(t)
	node := harness.Start(t, harness.Options{})
	api := client.New(node.URL)
	api.CreateTopic(t, "kept", `"partitions":1,"retention":`+settings)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	first := api.MustPoll(t, "kept").Cursor

	// One publisher, so that it knows each offset before it sends.
	var end atomic.Int64
	publish := func(n int64) error {
		var body strings.Builder
		begin := end.Load()
		for i := range n {
			fmt.Fprintf(&body, "{\"value\":%q,\"content_type\":\"text/plain\"}\n", retentionValue(begin+i))
		}
		ans, err := api.Do(ctx, http.MethodPost, "/topics/kept", "application/x-ndjson", body.String())
		if err != nil || ans.Status != http.StatusCreated || !strings.Contains(ans.Body, fmt.Sprintf(`"offset":%d,`, begin+n-1)) {
			return fmt.Errorf("publish at %d: %d %.300s: %w", begin, ans.Status, ans.Body, err)
		}
		end.Store(begin + n)
		return nil
	}
	const batch = 250
	for range 20 {
		if err := publish(batch); err != nil {
			t.Fatal(err)
		}
	}
	var publishing, polling sync.WaitGroup
	polls, stop := make([]pollCounts, retentionClients), make(chan struct{})
	publishing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := publish(batch); err != nil {
				t.Error(err)
				return
			}
			pause(ctx, 50*time.Millisecond) // about 5 MB/s: segments roll and go all the time
		}
	})
	begin := time.Now()
	for i := range polls {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		polling.Go(func() { polls[i].poll(ctx, t, client.New(node.URL), own, &end) })
	}
	polling.Wait()
	took := time.Since(begin)
	// It goes on until retention has deleted something, however fast the polls were.
	harness.Await(t, patience, "retention deletes segments", func() bool {
		return api.Topic(t, "kept").Layout.Partitions[0].Earliest > 20*batch
	})
	for i := range polls {
		polling.Go(func() { polls[i].poll(ctx, t, client.New(node.URL), rand.New(rand.NewPCG(uint64(i), 2)), &end) })
	}
	polling.Wait()
	close(stop)
	publishing.Wait()
	expiredCursor(t, ctx, api, first)

	var all pollCounts
	for i := range polls {
		all.add(&polls[i])
	}
	p := api.Topic(t, "kept").Layout.Partitions[0]
	t.Logf("%d clients at %d offsets each, twice; the first round took %s: %d pages with %d right records, %d empty at the end, %d times 410; the log is [%d,%d) of %d; the longest poll took %s",
		retentionClients, retentionOffsets(), took.Round(time.Millisecond), all.pages, all.records, all.empty, all.expired, p.Earliest, p.HW, end.Load(), all.longest.Round(time.Millisecond))
	if all.pages == 0 || all.expired == 0 {
		t.Error("the polls met no record, or no expired offset")
	}
	if p.HW != end.Load() {
		t.Errorf("the log ends at %d, published were %d", p.HW, end.Load())
	}
}

// expiredCursor reads on from a cursor that retention has overtaken: a poll is
// refused, streams tell of the gap, and all of them go on where they say.
func expiredCursor(t *testing.T, ctx context.Context, api *client.API, cursor string) {
	t.Helper()
	earliest := func(raw string) int64 {
		t.Helper()
		partition, offset, ok := strings.Cut(strings.Trim(raw, `"`), ":")
		n, err := strconv.ParseInt(offset, 10, 64)
		if !ok || partition != "0" || err != nil || n == 0 {
			t.Fatalf("earliest is %s", raw)
		}
		return n
	}
	p, err := api.Poll(ctx, "kept", "cursor", cursor)
	if err != nil || p.Status != http.StatusGone || p.Problem.Code != "cursor-expired" || p.Problem.Reason != "expired" || p.Problem.Cursor == "" {
		t.Fatalf("poll at an expired cursor: %v %d %s", err, p.Status, p.Body)
	}
	if next := api.MustPoll(t, "kept", "cursor", p.Problem.Cursor, "limit", "1"); len(next.Messages) != 1 || next.Messages[0].Offset < earliest(string(p.Problem.Earliest)) {
		t.Errorf("behind the gap of a poll: %s", next.Body)
	}

	w := dialTo(t, ctx, api)
	sub, err := w.Call(ctx, 1, map[string]any{"op": "subscribe", "id": 1, "topic": "kept", "cursor": cursor})
	if err != nil || sub.Op != "subscribed" || sub.Recovered {
		t.Fatalf("subscribe at an expired cursor: %v %s", err, sub.Raw)
	}
	gap, err := w.Next(ctx)
	if err != nil || gap.Op != "gap" || gap.Reason != "expired" || gap.Cursor == "" || gap.Sub != sub.Sub {
		t.Fatalf("a WebSocket at an expired cursor: %v %s", err, gap.Raw)
	}
	if x, err := w.Next(ctx); err != nil || x.Op != "message" && x.Op != "gap" {
		t.Errorf("behind the gap of a WebSocket: %v %s", err, x.Raw)
	} else if x.Op == "message" && (x.Message.Offset != earliest(string(gap.Earliest)) || string(x.Message.Bytes()) != retentionValue(x.Message.Offset)) {
		t.Errorf("behind the gap at %s comes %d", gap.Earliest, x.Message.Offset)
	}

	s, err := client.OpenSSE(ctx, api.URL+"/topics/kept/events", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Next()
	var told struct {
		Reason, Cursor, Earliest string
	}
	if err != nil || e.Name != "gap" || !parse(t, string(e.Data), &told) || told.Reason != "expired" || told.Cursor != e.ID {
		t.Fatalf("an event stream at an expired cursor: %v %s %s", err, e.Name, e.Data)
	}
	if e, m, err := s.NextMessage(); err != nil || e.Name == "message" && m.Offset != earliest(told.Earliest) {
		t.Errorf("behind the gap at %s comes %d, %v", told.Earliest, m.Offset, err)
	}
}

// pollCounts is what one client saw.
type pollCounts struct {
	pages, records, empty, expired int
	longest                        time.Duration
	earliest                       int64 // that was told last
}

func (c *pollCounts) add(o *pollCounts) {
	c.pages += o.pages
	c.records += o.records
	c.empty += o.empty
	c.expired += o.expired
	c.longest = max(c.longest, o.longest)
}

// poll polls at random offsets, now and then a little past the end, and goes on
// by the cursor it gets: of a page or of a refusal.
func (c *pollCounts) poll(ctx context.Context, t *testing.T, api *client.API, r *rand.Rand, end *atomic.Int64) {
	for range retentionOffsets() {
		offset := r.Int64N(end.Load() + 20)
		if r.IntN(2) == 0 { // around the log start, where segments go under the reader
			low := max(0, c.earliest-500)
			offset = low + r.Int64N(end.Load()+20-low)
		}
		begin := time.Now()
		p, err := api.Poll(ctx, "kept", "offset", strconv.FormatInt(offset, 10), "limit", strconv.Itoa(1+r.IntN(40)))
		c.longest = max(c.longest, time.Since(begin))
		if err != nil {
			t.Errorf("poll at %d: %v", offset, err)
			return
		}
		if !c.judge(t, &p, "offset", offset) {
			return
		}
		if t.Failed() {
			return // said once
		}
		next, from, how := p.Cursor, offset+int64(len(p.Messages)), fmt.Sprintf("a page of %d at %d", len(p.Messages), offset)
		if p.Status == http.StatusGone {
			var problem struct {
				Earliest, End *int64
			}
			if !parse(t, p.Body, &problem) || problem.Earliest == nil || problem.End == nil || p.Problem.Cursor == "" {
				t.Errorf("410 at %d without earliest, end and cursor: %s", offset, p.Body)
				return
			}
			if *problem.Earliest <= offset || *problem.End < *problem.Earliest {
				t.Errorf("410 at %d says the log is [%d,%d)", offset, *problem.Earliest, *problem.End)
				return
			}
			c.earliest = *problem.Earliest
			next, from, how = p.Problem.Cursor, *problem.Earliest, fmt.Sprintf("a refusal at %d", offset)
		}
		if r.IntN(4) == 0 {
			p, err = api.Poll(ctx, "kept", "cursor", next, "limit", "5")
			if err != nil {
				t.Errorf("poll at the cursor after %d: %v", offset, err)
				return
			}
			if !c.judge(t, &p, fmt.Sprintf("the cursor behind %s", how), from) {
				return
			}
		}
	}
}

// judge compares a page with what was published.
func (c *pollCounts) judge(t *testing.T, p *client.Page, by string, offset int64) bool {
	switch {
	case p.Status == http.StatusGone:
		if p.Problem.Code != "offset-expired" && p.Problem.Code != "cursor-expired" {
			t.Errorf("410 at %d: %s", offset, p.Body)
			return false
		}
		c.expired++
		return true
	case p.Status != http.StatusOK:
		t.Errorf("poll at %d: %d %s", offset, p.Status, p.Body)
		return false
	case len(p.Messages) == 0:
		if !p.End {
			t.Errorf("an empty page at %d that is not the end", offset)
		}
		c.empty++
		return true
	}
	c.pages++
	for i, m := range p.Messages {
		if want := offset + int64(i); m.Offset != want || string(m.Bytes()) != retentionValue(want) {
			t.Errorf("poll at %d by %s: message %d has offset %d and value %.40q", offset, by, i, m.Offset, m.Bytes())
			return false
		}
		c.records++
	}
	return true
}
