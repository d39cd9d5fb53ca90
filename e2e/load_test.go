package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// load is 16 publishers and some readers of one topic whose node comes and
// goes, and the history of what they were told.
type load struct {
	t     *testing.T
	node  *harness.Node
	addr  string
	url   string
	topic client.TopicInfo
	rec   *check.Recorder

	ctx      context.Context // of everything
	cancel   context.CancelFunc
	stopping atomic.Bool // publishers begin nothing new
	acked    atomic.Int64
	retried  atomic.Int64

	unexpected atomic.Bool // something was refused that should not be
	answers    answerCounts

	publishing sync.WaitGroup
	reading    sync.WaitGroup
	finished   atomic.Bool // readers have read everything
	readers    []*loadReader
}

// answerCounts counts refusals by their code.
type answerCounts struct {
	mu sync.Mutex
	of map[string]int
}

func (a *answerCounts) add(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]int{}
	}
	a.of[code]++
}

func (a *answerCounts) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, code := range slices.Sorted(maps.Keys(a.of)) {
		all = append(all, fmt.Sprintf("%s %d", code, a.of[code]))
	}
	return strings.Join(all, ", ")
}

// definite says that a refusal promises that nothing was kept.
func definite(code string) bool { return code != "unknown-outcome" && code != "internal" }

// startLoad makes the topic and starts everybody. bound is how long all of it may take.
func startLoad(t *testing.T, node *harness.Node, name string, bound time.Duration) *load {
	t.Helper()
	api := client.New(node.URL)
	info := api.CreateTopic(t, name, `"partitions":4,"idempotency_window":"1h"`)
	ctx, cancel := context.WithTimeoutCause(t.Context(), bound, fmt.Errorf("not done within %s", bound))
	l := &load{t: t, node: node, addr: node.Addr, url: node.URL, topic: info, rec: check.NewRecorder(), ctx: ctx, cancel: cancel}
	t.Cleanup(func() {
		l.cancel()
		l.publishing.Wait()
		l.reading.Wait()
	})
	for i := range 16 {
		p := &publisher{load: l, id: fmt.Sprintf("p%02d", i), partition: i % 4, producer: uuid.NewString()}
		p.keys = []string{info.KeyFor(p.partition, p.id+"-a"), info.KeyFor(p.partition, p.id+"-b"), info.KeyFor(p.partition, p.id+"-c")}
		run := map[string]func(){
			"ws idempotent": func() { p.webSocket(8, true) }, "ws plain": func() { p.webSocket(4, false) },
			"http sequence": p.single, "http lines sequence": func() { p.lines(true) }, "http key": p.idempotencyKey,
			"http plain": p.plain, "http lines plain": func() { p.lines(false) },
		}[[]string{
			"ws idempotent", "ws idempotent", "ws idempotent", "ws idempotent", "ws plain", "ws plain", "ws plain", "ws plain",
			"http sequence", "http sequence", "http lines sequence", "http lines sequence", "http key", "http key", "http plain", "http lines plain",
		}[i]]
		l.publishing.Go(run)
	}
	return l
}

// loadReader is one reader of the load.
type loadReader struct {
	name string
	*ledger
	follower
	tape *check.Tape

	mu sync.Mutex
	at map[int]int64 // next offset by partition
}

// read starts a reader of the whole topic: "ws" or "sse", through a proxy or not.
func (l *load) read(name, kind, addr string) *loadReader {
	from := map[int]int64{}
	for _, p := range l.topic.Layout.Partitions {
		from[p.ID] = 0
	}
	guarantee := check.ExactlyOnce
	if kind == "sse" {
		guarantee = check.AtLeastOnce
	}
	x := &loadReader{name: name, ledger: newLedger(kind == "sse"), at: map[int]int64{}}
	x.tape = l.rec.Reader(check.Reader{ID: name, Topic: l.topic.Name, Guarantee: guarantee, From: from})
	x.follower = follower{
		addr: addr, topic: l.topic.Name,
		note: func(m client.Message) error {
			x.tape.Message(m.Partition, m.Offset, m.KeyText(), string(m.Bytes()))
			x.mu.Lock()
			x.at[m.Partition] = max(x.at[m.Partition], m.Offset+1)
			x.mu.Unlock()
			return x.ledger.note(m)
		},
		resumed: func() {
			x.tape.Resume()
			x.ledger.resume()
		},
		placed: x.ledger.placed,
		more:   func() bool { return !l.finished.Load() },
	}
	l.readers = append(l.readers, x)
	run := x.webSocket
	if kind == "sse" {
		run = x.events
	}
	l.reading.Go(func() {
		if err := run(l.ctx); err != nil && !l.finished.Load() {
			l.t.Errorf("reader %s: %v", name, err)
		}
	})
	return x
}

// behind says where a reader has not reached the ends yet.
func (x *loadReader) behind(ends map[int]int64) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p, end := range ends {
		if x.at[p] < end {
			return fmt.Sprintf("%s is at %d of %d in partition %d", x.name, x.at[p], end, p)
		}
	}
	return ""
}

// await waits until so many records were acknowledged since before.
func (l *load) await(before, n int64) {
	l.t.Helper()
	harness.Await(l.t, patience, fmt.Sprintf("%d more acknowledgements after %d (refused: %s)", n, before, &l.answers), func() bool {
		return l.acked.Load() >= before+n || l.ctx.Err() != nil || l.t.Failed()
	})
	if l.ctx.Err() != nil {
		l.t.Fatal(context.Cause(l.ctx))
	}
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// finish lets the publishers end what they began and the readers read to the
// end, then judges the history.
func (l *load) finish() {
	l.t.Helper()
	l.stopping.Store(true)
	l.publishing.Wait()
	api := client.New(l.url)
	ends := map[int]int64{}
	for _, p := range api.Topic(l.t, l.topic.Name).Layout.Partitions {
		log := check.Log{Topic: l.topic.Name, Partition: p.ID, Start: p.Earliest, End: p.HW}
		for _, m := range api.ReadAll(l.t, l.topic.Name, p.ID) {
			log.Records = append(log.Records, check.Record{Offset: m.Offset, Key: m.KeyText(), Value: string(m.Bytes())})
		}
		ends[p.ID] = p.HW
		l.rec.Log(log)
	}
	for _, x := range l.readers {
		harness.Await(l.t, patience, "readers at the end", func() bool { return x.behind(ends) == "" || l.t.Failed() })
		if why := x.behind(ends); why != "" {
			l.t.Errorf("not read to the end: %s", why)
		}
		x.tape.Complete()
	}
	l.finished.Store(true)
	l.cancel()
	l.reading.Wait()
	history := l.rec.History()
	report := history.Check()
	l.t.Logf("history:\n%s", report)
	l.t.Logf("repeats sent after an open end: %d; refused: %s", l.retried.Load(), &l.answers)
	if l.unexpected.Load() {
		l.t.Errorf("refused without a reason: %s", &l.answers)
	}
	for _, x := range l.readers {
		l.t.Logf("reader %s: %d records, %d connections, %d repeats, at most %d in a row without an id, %d cursor pushes, %d closing, close codes %v",
			x.name, x.total, x.connections, x.repeats, x.longest, x.cursors, x.closings, x.codes)
	}
	if !report.OK() {
		path := filepath.Join(os.TempDir(), strings.ReplaceAll(l.t.Name(), "/", "-")+".history.json")
		l.t.Errorf("promises broken; the history is in %s (%v)", path, history.Save(path))
	}
}

// publisher is one of the 16.
type publisher struct {
	*load
	id        string
	partition int
	producer  string
	keys      []string
	sent      int64 // records so far: the number of the next one, and its sequence
}

// record is one record of a publisher, sent until its fate is known if it can be.
type record struct {
	key, value string
	number     int64
	pending    *check.Pending
}

// next makes the next record; its value says whose it is.
func (p *publisher) next() *record {
	n := p.sent
	p.sent++
	return &record{
		key:    p.keys[n%int64(len(p.keys))],
		value:  fmt.Sprintf("%s-%d %s", p.id, n, strings.Repeat("x", int(n*37%200))),
		number: n,
	}
}

// invoke notes an attempt.
func (p *publisher) invoke(r *record, idempotent, sequenced bool) {
	op := check.Op{Process: p.id, Topic: p.topic.Name, Key: r.key, Value: r.value, Idempotent: idempotent}
	if sequenced {
		op.Producer, op.Sequence = p.producer, r.number
	}
	r.pending = p.rec.Invoke(op)
}

func (p *publisher) ok(r *record, partition int, offset *int64, duplicate bool) {
	at := check.NoOffset
	if offset != nil {
		at = *offset
	}
	r.pending.OK(partition, at, duplicate)
	p.acked.Add(1)
}

// refused notes a refusal and says whether the record may be sent again.
func (p *publisher) refused(r *record, code, detail string) bool {
	p.answers.add(code)
	if definite(code) {
		r.pending.Fail(code)
	} else {
		r.pending.Unknown(code)
	}
	switch code {
	case "leader-unavailable", "draining", "unknown-outcome", "throttled":
		return true
	case "disk-full":
		p.unexpected.Store(true) // there is room: said at the end, so that the rest is seen too
		return true
	}
	p.t.Errorf("publisher %s, record %d: refused as %s: %s", p.id, r.number, code, detail)
	return false
}

// alive says that the publisher may begin something.
func (p *publisher) alive() bool { return !p.stopping.Load() && p.ctx.Err() == nil && !p.t.Failed() }

// urgent says that what was begun may be tried again.
func (p *publisher) urgent() bool {
	if p.ctx.Err() != nil {
		p.t.Errorf("publisher %s: %v", p.id, context.Cause(p.ctx))
		return false
	}
	return !p.t.Failed()
}

// webSocket publishes over WebSocket, window records under way at once. An
// idempotent publisher sends what has no answer again on the next connection,
// in its order.
func (p *publisher) webSocket(window int, idempotent bool) {
	var open []*record // without an answer, in order
	for p.alive() || len(open) > 0 {
		if !p.urgent() {
			return
		}
		w, err := client.DialWS(p.ctx, p.addr, "")
		if err != nil {
			pause(p.ctx, betweenTries)
			continue
		}
		err = p.onConnection(w, window, idempotent, &open)
		w.Drop()
		for _, r := range open {
			if r.pending != nil {
				r.pending.Unknown(err.Error())
				r.pending = nil
			}
		}
		if !idempotent {
			open = nil // the next connection sends others: a repeat could double them
		}
	}
}

var errDone = errors.New("done")

// onConnection publishes until the connection ends or nothing is left to do.
func (p *publisher) onConnection(w *client.WS, window int, idempotent bool, open *[]*record) error {
	send := func(r *record) error {
		p.invoke(r, idempotent, idempotent)
		frame := map[string]any{"op": "publish", "id": r.number + 1, "topic": p.topic.Name, "key": r.key, "value": r.value, "content_type": "text/plain"}
		if idempotent {
			frame["producer"], frame["sequence"], frame["partition"] = p.producer, r.number, p.partition
		}
		return w.Send(p.ctx, frame)
	}
	for _, r := range *open {
		p.retried.Add(1)
		if err := send(r); err != nil {
			return err
		}
	}
	for {
		for len(*open) < window && p.alive() {
			r := p.next()
			*open = append(*open, r)
			if err := send(r); err != nil {
				return err
			}
		}
		if len(*open) == 0 {
			return errDone
		}
		x, err := w.Next(p.ctx)
		if err != nil {
			return err
		}
		if x.Op == "closing" || x.Op == "cursor" {
			continue
		}
		i := slices.IndexFunc(*open, func(r *record) bool { return r.number+1 == x.ID })
		if i < 0 {
			p.t.Errorf("publisher %s: an answer to nothing: %s", p.id, x.Raw)
			return errDone
		}
		r := (*open)[i]
		switch x.Op {
		case "published":
			p.ok(r, x.Partition, x.Offset, x.Duplicate)
			r.pending = nil
			*open = slices.Delete(*open, i, i+1)
		case "error":
			if !p.refused(r, x.Code, x.Detail) {
				*open = nil
				return errDone
			}
			r.pending = nil
			if !idempotent {
				*open = slices.Delete(*open, i, i+1)
				continue
			}
			pause(p.ctx, betweenTries)
			return fmt.Errorf("refused as %s: all that is open goes out again, in order", x.Code)
		default:
			p.t.Errorf("publisher %s: an unexpected line: %s", p.id, x.Raw)
			return errDone
		}
	}
}

// errNotRead is for lines behind the one that says that the node drains.
var errNotRead = errors.New("never read")

// neverSent says that an error came before the request could leave.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, errNotRead)
}

// broken notes an attempt without an answer.
func (r *record) broken(err error) {
	if neverSent(err) {
		r.pending.Fail("never sent")
	} else {
		r.pending.Unknown(err.Error())
	}
}

// post sends one record by POST until its fate is known, if again is true.
func (p *publisher) post(api *client.API, r *record, query url.Values, idempotent, sequenced bool, headers ...string) {
	for tries := 0; ; tries++ {
		if tries > 0 {
			p.retried.Add(1)
			pause(p.ctx, betweenTries)
			if !p.urgent() {
				return
			}
		}
		p.invoke(r, idempotent, sequenced)
		ans, err := api.Do(p.ctx, http.MethodPost, "/topics/"+p.topic.Name+"?"+query.Encode(), "text/plain", r.value, headers...)
		if err != nil {
			never := neverSent(err)
			r.broken(err)
			if idempotent {
				continue
			}
			if never {
				pause(p.ctx, betweenTries)
			}
			return
		}
		if ans.Status == http.StatusCreated || ans.Status == http.StatusOK {
			place, err := ans.Place()
			if err != nil || place.Duplicate == nil || *place.Duplicate != (ans.Status == http.StatusOK) {
				p.t.Errorf("publisher %s: status %d: %v: %s", p.id, ans.Status, err, ans.Body)
				return
			}
			p.ok(r, place.Partition, place.Offset, *place.Duplicate)
			return
		}
		problem, err := ans.Problem()
		if err != nil {
			p.t.Errorf("publisher %s: %v", p.id, err)
			return
		}
		if !p.refused(r, problem.Code, problem.Detail) || !idempotent {
			pause(p.ctx, betweenTries)
			return
		}
	}
}

// single publishes by POST with producer and sequence.
func (p *publisher) single() {
	api := client.New(p.url)
	for p.alive() {
		r := p.next()
		query := url.Values{"partition": {strconv.Itoa(p.partition)}, "key": {r.key}}
		p.post(api, r, query, true, true, "Tidewire-Producer", p.producer, "Tidewire-Sequence", strconv.FormatInt(r.number, 10))
	}
}

// idempotencyKey publishes by POST with an Idempotency-Key, every other record
// without a key, so that the Idempotency-Key routes it.
func (p *publisher) idempotencyKey() {
	api := client.New(p.url)
	for p.alive() {
		r := p.next()
		query := url.Values{}
		if r.number%2 == 0 {
			r.key = ""
		} else {
			query.Set("key", r.key)
		}
		p.post(api, r, query, true, false, "Idempotency-Key", p.producer+strconv.FormatInt(r.number, 10))
	}
}

// plain publishes by POST without idempotence; what has no answer is not sent again.
func (p *publisher) plain() {
	api := client.New(p.url)
	for p.alive() {
		r := p.next()
		p.post(api, r, url.Values{"key": {r.key}}, false, false)
	}
}

// lines publishes batches of ndjson, with or without producer and sequence.
func (p *publisher) lines(sequenced bool) {
	api := client.New(p.url)
	for p.alive() {
		var batch []*record
		for range 1 + int(p.sent%40) {
			batch = append(batch, p.next())
		}
		for batch = p.sendLines(api, batch, sequenced); len(batch) > 0; batch = p.sendLines(api, batch, sequenced) {
			pause(p.ctx, betweenTries)
			if !sequenced || !p.urgent() {
				break
			}
			p.retried.Add(int64(len(batch)))
		}
	}
}

// sendLines sends a batch once and returns what is to be sent again, in order.
func (p *publisher) sendLines(api *client.API, batch []*record, sequenced bool) []*record {
	var body bytes.Buffer
	for _, r := range batch {
		p.invoke(r, sequenced, sequenced)
		line, err := json.Marshal(map[string]any{"key": r.key, "value": r.value, "content_type": "text/plain"})
		if err != nil {
			panic(err)
		}
		body.Write(line)
		body.WriteByte('\n')
	}
	path := "/topics/" + p.topic.Name
	var headers []string
	if sequenced {
		path += "?partition=" + strconv.Itoa(p.partition)
		headers = []string{"Tidewire-Producer", p.producer, "Tidewire-Sequence", strconv.FormatInt(batch[0].number, 10)}
	}
	ans, err := api.Do(p.ctx, http.MethodPost, path, "application/x-ndjson", body.String(), headers...)
	if err == nil && ans.Status >= 400 {
		problem, err := ans.Problem()
		if err != nil {
			p.t.Errorf("publisher %s: %v", p.id, err)
			return nil
		}
		again := true
		for _, r := range batch {
			again = p.refused(r, problem.Code, problem.Detail) && again
		}
		if !again {
			return nil
		}
		return batch
	}
	answered, cut := 0, false
	for text := range strings.Lines(ans.Body) {
		if !strings.HasSuffix(text, "\n") && err != nil {
			break // cut short: no answer
		}
		var x struct {
			client.Place
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		if answered == len(batch) || json.Unmarshal([]byte(text), &x) != nil {
			p.t.Errorf("publisher %s: answer %d of %d is not as expected: %q", p.id, answered, len(batch), text)
			return nil
		}
		r := batch[answered]
		answered++
		cut = x.Code == "draining" // nothing from this line on was read
		switch {
		case x.Code == "out-of-order-sequence" && sequenced && answered > 1:
			// A line before was refused for the moment, so this one must be.
			p.answers.add(x.Code)
			r.pending.Fail(x.Code)
		case x.Code != "":
			if !p.refused(r, x.Code, x.Detail) {
				return nil
			}
		default:
			p.ok(r, x.Partition, x.Offset, x.Duplicate != nil && *x.Duplicate)
			r.pending = nil
		}
	}
	if err == nil && answered != len(batch) {
		if !cut {
			p.t.Errorf("publisher %s: %d answers to %d lines: %s", p.id, answered, len(batch), ans.Body)
			return nil
		}
		err = errNotRead
	}
	for _, r := range batch[answered:] {
		r.broken(err)
	}
	// What is kept is sent again too: numbers have no gaps, and a repeat is harmless.
	for i, r := range batch {
		if r.pending != nil {
			return batch[i:]
		}
	}
	return nil
}
