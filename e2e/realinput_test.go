package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// realCuts is how often each stream is cut.
const realCuts = 20

// realSeconds is how long the publishing of a file takes.
const realSeconds = 5

// TestRealInput publishes tens of thousands of real events with the command
// line and reads them in every way, on connections that are cut in the middle
// of what they carry, while the publishing goes on.
func TestRealInput(t *testing.T) {
	t.Parallel()
	inputs := []struct{ file, field string }{
		{"bus-positions.jsonl", "vehicle"}, // 140 keys of like size
		{"earthquakes.jsonl", "net"},       // 14 keys, one of them with a third of all
	}
	node := harness.Start(t, harness.Options{})
	t.Logf("ready after %s", node.ReadyAfter())
	for _, in := range inputs {
		t.Run(in.file, func(t *testing.T) { realInput(t, node, in.file, in.field) })
	}
}

// realEvents is a file of events by key, in its order.
type realEvents struct {
	path  string
	lines int
	bytes int64
	byKey map[string][]string
}

func readRealEvents(t *testing.T, file, field string) realEvents {
	t.Helper()
	in := realEvents{path: harness.Data(t, file), byKey: map[string][]string{}}
	f, err := os.Open(in.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var event map[string]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		key := event[field].(string)
		in.byKey[key] = append(in.byKey[key], compact.String())
		in.lines++
		in.bytes += int64(compact.Len())
	}
	if err := lines.Err(); err != nil || in.lines == 0 {
		t.Fatalf("%d lines: %v", in.lines, err)
	}
	return in
}

// cutting gives the bytes after which a connection is cut, until so many that
// had begun to read were; the cuts spread over most of the stream.
func (in *realEvents) cutting(r *rand.Rand, opened *atomic.Int64) func(int) int64 {
	const aroundValue = 190 // bytes of a message beside its value, roughly
	all := float64(in.bytes + int64(in.lines)*aroundValue)
	own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	return func(int) int64 {
		if opened.Load() >= realCuts {
			return -1
		}
		return int64((0.4 + own.Float64()) * all / (realCuts + 4))
	}
}

func realInput(t *testing.T, node *harness.Node, file, field string) {
	in := readRealEvents(t, file, field)
	r := random(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("not read within %s", patience))
	defer cancel()
	api := client.New(node.URL)
	topic := strings.TrimSuffix(file, ".jsonl")
	api.CreateTopic(t, topic, `"partitions":4`)

	type reader struct {
		name string
		*ledger
		follower
		run  func(context.Context) error
		err  error
		took time.Duration
	}
	readers := []*reader{
		{name: "WebSocket", ledger: newLedger(false)},
		{name: "WebSocket that leaves", ledger: newLedger(false), follower: follower{addr: node.Addr, leave: leaveAfterCursor(r.IntN)}},
		{name: "SSE", ledger: newLedger(true)},
		{name: "long poll", ledger: newLedger(false), follower: follower{addr: node.Addr}},
	}
	readers[0].run, readers[1].run, readers[2].run = readers[0].webSocket, readers[1].webSocket, readers[2].events
	readers[3].run = func(ctx context.Context) error { return readers[3].longPoll(ctx, 300) }
	socketProxy := client.NewProxy(t, node.Addr, in.cutting(r, &readers[0].opened))
	eventProxy := client.NewProxy(t, node.Addr, in.cutting(r, &readers[2].opened))
	readers[0].addr, readers[2].addr = socketProxy.Addr, eventProxy.Addr
	begin := time.Now()
	var reading sync.WaitGroup
	for _, x := range readers {
		x.topic, x.follower.note, x.resumed = topic, x.ledger.note, x.ledger.resume
		x.follower.placed = x.ledger.placed
		x.more = func() bool { return x.total < in.lines }
		reading.Go(func() {
			x.err = x.run(ctx)
			x.took = time.Since(begin)
		})
	}
	// Spread over some seconds, so that most of it is read live and cursors are pushed on the way.
	rate := strconv.Itoa(in.lines / realSeconds)
	stdout, stderr, code := node.CLI(ctx, nil, "publish", topic, in.path, "--key-field", field, "--rate", rate, "--output", "json")
	took := time.Since(begin)
	if code != 0 {
		cancel()
		reading.Wait()
		t.Fatalf("publish ended with %d: %s%s", code, stdout, stderr)
	}
	t.Logf("%s: %d events, %d bytes, %d keys, published in %s: %s", file, in.lines, in.bytes, len(in.byKey), took.Round(time.Millisecond), strings.TrimSpace(stdout))
	reading.Wait()
	for _, x := range readers {
		if x.err == nil {
			x.err = x.compare(in.byKey)
		}
		if x.err != nil {
			t.Errorf("%s: after %d events on %d connections: %v", x.name, x.total, x.connections, x.err)
		}
		t.Logf("%-21s: %d events, each exactly once in key order, on %d connections; %d resumes, %d repeats, at most %d in a row without an id, %d cursor pushes, done after %s",
			x.name, x.total, x.connections, x.resumes, x.repeats, x.longest, x.cursors, x.took.Round(time.Millisecond))
	}
	if readers[0].resumes != realCuts || readers[2].resumes != realCuts {
		t.Errorf("WebSocket resumed %d times after %d cuts and SSE %d times after %d, want %d", readers[0].resumes, socketProxy.Cuts(), readers[2].resumes, eventProxy.Cuts(), realCuts)
	}
	if left := readers[1]; left.resumes == 0 || left.cursors <= left.resumes-1 {
		t.Errorf("%s: %d resumes after %d cursor pushes", left.name, left.resumes, left.cursors)
	}

	pollLog(t, api, topic, &in)
	pollCursors(t, api, topic, &in)
}

// leaveAfterCursor drops a connection some messages after a cursor was pushed:
// the next one goes on from that cursor and what was seen behind it.
func leaveAfterCursor(random func(n int) int) func(client.Frame) bool {
	left := -1
	return func(x client.Frame) bool {
		if x.Op == "cursor" && left < 0 {
			left = random(100)
			return false
		}
		if x.Op != "message" || left < 0 {
			return false
		}
		left--
		return left < 0
	}
}

// pollLog reads every partition by offset: the log itself.
func pollLog(t *testing.T, api *client.API, topic string, in *realEvents) {
	t.Helper()
	log := newLedger(false)
	var sizes []string
	for _, p := range api.Topic(t, topic).Layout.Partitions {
		all := api.ReadAll(t, topic, p.ID)
		for _, m := range all {
			if err := log.note(m); err != nil {
				t.Fatal(err)
			}
		}
		if int64(len(all)) != p.HW || p.Earliest != 0 {
			t.Errorf("partition %d: %d records, its description says [%d,%d)", p.ID, len(all), p.Earliest, p.HW)
		}
		sizes = append(sizes, strconv.Itoa(len(all)))
	}
	if err := log.compare(in.byKey); err != nil {
		t.Errorf("the log: %v", err)
	}
	t.Logf("log                  : %d records, each event exactly once, in partitions of %s", log.total, strings.Join(sizes, ", "))
}

// pollCursors walks the whole topic from cursor to cursor, and each key alone.
func pollCursors(t *testing.T, api *client.API, topic string, in *realEvents) {
	t.Helper()
	walk := newLedger(false)
	polls := 0
	for where, value := "from", "earliest"; ; {
		p := api.MustPoll(t, topic, where, value, "limit", "487")
		polls++
		for _, m := range p.Messages {
			if err := walk.note(m); err != nil {
				t.Fatal(err)
			}
		}
		if p.End {
			break
		}
		if len(p.Messages) == 0 {
			t.Fatalf("an empty page that is not the end: %s", p.Body)
		}
		where, value = "cursor", p.Cursor
	}
	if err := walk.compare(in.byKey); err != nil {
		t.Errorf("poll: %v", err)
	}
	t.Logf("poll                 : %d events in %d polls", walk.total, polls)

	keyed := 0
	for key, values := range in.byKey {
		if keyed++; keyed > 5 {
			break
		}
		var got []string
		for where, value := "from", "earliest"; ; {
			p := api.MustPoll(t, topic, where, value, "limit", "1000", "key", key)
			for _, m := range p.Messages {
				got = append(got, string(m.Bytes()))
			}
			if p.End {
				break
			}
			where, value = "cursor", p.Cursor
		}
		if strings.Join(got, "\n") != strings.Join(values, "\n") {
			t.Errorf("poll of key %q: %d events, want the file's %d in their order", key, len(got), len(values))
		}
	}
}
