package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/e2e/client"
)

// patience bounds what a test waits for; only a fault takes so long.
const patience = 90 * time.Second

// random is a source whose seed is printed, and can be given again.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TEST_TIDEWIRE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("seed: TEST_TIDEWIRE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// pause waits a moment of a schedule, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// between tries is how long a reader waits before it dials again.
const betweenTries = 20 * time.Millisecond

// follower reads a whole topic over all its connections. note is called for
// each message, resumed for each connection after the first, gap where the
// server says that something is missing; more says whether to read on.
type follower struct {
	addr    string        // host:port to dial
	pick    func() string // the same, for each connection anew; nil: addr
	topic   string
	only    *int // partition; nil: all
	note    func(client.Message) error
	resumed func()
	placed  func() // an event stream gave an id behind the last message
	gap     func(raw []byte) error
	more    func() bool
	leave   func(client.Frame) bool // drop a WebSocket after this line

	opened      atomic.Int64 // connections so far that read the topic
	connections int          // the same, and polls
	closings    int          // "closing" pushes or events
	cursors     int          // "cursor" pushes
	codes       map[int]int
	retryAfter  []string
}

// webSocket follows over WebSocket: the last cursor, refined by the last
// offsets seen, is where each connection goes on.
func (f *follower) webSocket(ctx context.Context) error {
	f.codes = map[int]int{}
	cursor, after := "", map[string]int64{}
	for f.more() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("gave up: %w", context.Cause(ctx))
		}
		addr := f.addr
		if f.pick != nil {
			addr = f.pick()
		}
		w, err := client.DialWS(ctx, addr, "")
		if err != nil {
			pause(ctx, betweenTries)
			continue
		}
		subscribe := map[string]any{"op": "subscribe", "id": 1, "topic": f.topic}
		if f.only != nil {
			subscribe["partition"] = *f.only
		}
		if cursor == "" {
			subscribe["from"] = "earliest"
		} else {
			subscribe["cursor"] = cursor
			if len(after) > 0 {
				subscribe["after"] = after
			}
		}
		answer, err := w.Call(ctx, 1, subscribe)
		if err != nil {
			w.Drop()
			continue
		}
		switch {
		case answer.Op != "subscribed":
			w.Drop()
			if answer.Code == "draining" || answer.Code == "leader-unavailable" {
				pause(ctx, betweenTries)
				continue
			}
			return fmt.Errorf("subscribe: %s", answer.Raw)
		case answer.Cursor == "" || answer.Sub == "":
			w.Drop()
			return fmt.Errorf("subscribed without cursor or sub: %s", answer.Raw)
		case answer.Recovered != (cursor != ""):
			w.Drop()
			return fmt.Errorf("recovered is %t with cursor %q: %s", answer.Recovered, cursor, answer.Raw)
		}
		f.opened.Add(1)
		if f.connections++; f.connections > 1 && f.resumed != nil {
			f.resumed()
		}
		cursor = answer.Cursor
		err = f.readWebSocket(ctx, w, &cursor, after)
		w.Drop()
		if err != nil {
			return err
		}
	}
	return nil
}

// readWebSocket reads one connection to its end. An error is a broken promise.
func (f *follower) readWebSocket(ctx context.Context, w *client.WS, cursor *string, after map[string]int64) error {
	for f.more() {
		x, err := w.Next(ctx)
		if err != nil {
			f.codes[client.CloseCode(err)]++
			return nil
		}
		switch x.Op {
		case "message":
			if err := f.note(x.Message); err != nil {
				return err
			}
			after[strconv.Itoa(x.Message.Partition)] = x.Message.Offset
		case "cursor":
			f.cursors++
			*cursor = x.Cursor
		case "closing":
			f.closings++
			f.retryAfter = append(f.retryAfter, x.RetryIn)
		case "gap":
			if f.gap == nil {
				return fmt.Errorf("a gap: %s", x.Raw)
			}
			if err := f.gap(x.Raw); err != nil {
				return err
			}
			*cursor = x.Cursor
			clear(after)
		default:
			return fmt.Errorf("an unexpected line: %s", x.Raw)
		}
		if f.leave != nil && f.leave(x) {
			return nil
		}
	}
	return nil
}

// events follows over server-sent events with Last-Event-ID alone.
func (f *follower) events(ctx context.Context) error {
	f.codes = map[int]int{}
	last := ""
	for f.more() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("gave up: %w", context.Cause(ctx))
		}
		s, err := client.OpenSSE(ctx, "http://"+f.addr+"/topics/"+f.topic+"/events?from=earliest", last)
		if err != nil {
			if refusal, ok := err.(*client.Refusal); ok && refusal.Code != "draining" && refusal.Code != "leader-unavailable" {
				return refusal
			}
			pause(ctx, betweenTries)
			continue
		}
		f.opened.Add(1)
		if f.connections++; f.connections > 1 && f.resumed != nil {
			f.resumed()
		}
		err = f.readEvents(s)
		last = s.LastID
		s.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) readEvents(s *client.SSE) error {
	for f.more() {
		before := s.LastID
		e, m, err := s.NextMessage()
		if err != nil {
			f.codes[-1]++
			return nil
		}
		if f.placed != nil && e.ID == "" && s.LastID != before {
			f.placed() // by an id that came alone
		}
		switch e.Name {
		case "message":
			if err := f.note(m); err != nil {
				return err
			}
			if f.placed != nil && e.ID != "" {
				f.placed()
			}
		case "closing":
			f.closings++
		case "gap":
			if f.gap == nil {
				return fmt.Errorf("a gap: %s", e.Data)
			}
			if err := f.gap(e.Data); err != nil {
				return err
			}
		default:
			return fmt.Errorf("an unexpected event %q: %s", e.Name, e.Data)
		}
	}
	return nil
}

// longPoll follows by polls that wait, from cursor to cursor.
func (f *follower) longPoll(ctx context.Context, limit int) error {
	api := client.New("http://" + f.addr)
	where := url.Values{"from": {"earliest"}}
	for f.more() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("gave up: %w", context.Cause(ctx))
		}
		p, err := api.Poll(ctx, f.topic, firstName(where), firstValue(where), "wait", "5s", "limit", strconv.Itoa(limit))
		if err != nil {
			pause(ctx, betweenTries)
			continue
		}
		if p.Status != 200 {
			if p.Problem.Code == "draining" || p.Problem.Code == "leader-unavailable" {
				pause(ctx, betweenTries)
				continue
			}
			return fmt.Errorf("long poll: %d %s", p.Status, p.Body)
		}
		f.connections++
		for i := range p.Messages {
			if err := f.note(p.Messages[i]); err != nil {
				return err
			}
		}
		where = url.Values{"cursor": {p.Cursor}}
	}
	return nil
}

func firstName(v url.Values) string {
	for name := range v {
		return name
	}
	return ""
}

func firstValue(v url.Values) string { return v.Get(firstName(v)) }

// ledger is what a reader has seen of a topic, judged as it comes: every
// offset of a partition, one after the other. An event stream may repeat after
// a resume what came behind the last id.
type ledger struct {
	partitions map[int]*page
	byKey      map[string][]string // values of first sight, in order
	total      int                 // first sights
	resumes    int
	repeats    int

	stream  bool          // repeats are allowed at all
	unsaid  []spot        // behind the last id of this connection
	longest int           // most messages in a row without an id
	owed    map[spot]bool // behind the last id of an earlier connection
}

// page is one partition of a ledger.
type page struct {
	values    []string // by offset
	next      int64    // that is due
	mayGoBack bool     // after a resume
	timestamp string
}

type spot struct {
	partition int
	offset    int64
}

func newLedger(stream bool) *ledger {
	return &ledger{stream: stream, partitions: map[int]*page{}, byKey: map[string][]string{}, owed: map[spot]bool{}}
}

// resume is a new connection.
func (l *ledger) resume() {
	l.resumes++
	for _, s := range l.unsaid {
		l.owed[s] = true
	}
	l.unsaid = l.unsaid[:0]
	for _, p := range l.partitions {
		p.mayGoBack = l.stream
	}
}

// placed is an id behind the last message.
func (l *ledger) placed() { l.unsaid = l.unsaid[:0] }

func (l *ledger) note(m client.Message) error {
	p := l.partitions[m.Partition]
	if p == nil {
		p = &page{}
		l.partitions[m.Partition] = p
	}
	if m.Offset != p.next && !(p.mayGoBack && m.Offset < p.next) {
		return fmt.Errorf("offset %d of partition %d where %d is due (resume %d)", m.Offset, m.Partition, p.next, l.resumes)
	}
	p.mayGoBack = false
	p.next = m.Offset + 1
	at := spot{m.Partition, m.Offset}
	if l.stream {
		l.unsaid = append(l.unsaid, at)
		l.longest = max(l.longest, len(l.unsaid)-1)
		if len(l.unsaid) > maxUnsaid {
			return fmt.Errorf("%d messages came without an id", len(l.unsaid))
		}
	}
	value := string(m.Bytes())
	if m.Offset < int64(len(p.values)) {
		if p.values[m.Offset] != value {
			return fmt.Errorf("offset %d of partition %d was %q and is now %q", m.Offset, m.Partition, p.values[m.Offset], value)
		}
		if !l.owed[at] {
			return fmt.Errorf("offset %d of partition %d comes again, and an id had come behind it", m.Offset, m.Partition)
		}
		delete(l.owed, at)
		l.repeats++
		return nil
	}
	if m.Timestamp < p.timestamp {
		return fmt.Errorf("offset %d of partition %d has the time %s after %s", m.Offset, m.Partition, m.Timestamp, p.timestamp)
	}
	p.timestamp = m.Timestamp
	p.values = append(p.values, value)
	l.byKey[m.KeyText()] = append(l.byKey[m.KeyText()], value)
	l.total++
	return nil
}

// maxUnsaid is how many messages an event stream of several partitions may
// send before one has an id: the 64th has.
const maxUnsaid = 64

// compare wants every key's values to be those expected, in their order: none
// missing, none twice.
func (l *ledger) compare(want map[string][]string) error {
	if len(l.byKey) != len(want) {
		return fmt.Errorf("%d keys, want %d", len(l.byKey), len(want))
	}
	for key, values := range want {
		got := l.byKey[key]
		if slices.Equal(got, values) {
			continue
		}
		for i := range min(len(got), len(values)) {
			if got[i] != values[i] {
				return fmt.Errorf("key %q: value %d is %s, want %s", key, i, got[i], values[i])
			}
		}
		return fmt.Errorf("key %q has %d values, want %d", key, len(got), len(values))
	}
	return nil
}

// parse reads JSON that must be as expected.
func parse(t testing.TB, text string, into any) bool {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Errorf("%v: %.300s", err, text)
		return false
	}
	return true
}
