package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// producer publishes to one partition with acks=all, one record after the other.
type producer struct {
	*crew
	id         string
	partition  int
	kind       string // ws, http, key
	idempotent bool
	producer   string
	keys       []string
	dialled    int
	home       *gateway // the one that it keeps to; nil: any
	sent       int64
	waits      waits

	api  map[string]*client.API // by gateway
	line *line                  // of a producer over WebSocket
}

// produce starts the i-th producer.
func (w *crew) produce(i int) {
	p := w.newProducer(i, "p")
	w.producers = append(w.producers, p)
	w.publishing.Go(p.run)
}

// inside starts producers that keep to one gateway, whatever becomes of it: what
// they are told goes into the history; how long they wait is not judged, nor is
// what they are refused.
func (w *crew) inside(m *harness.Member, n int) {
	for i := range n {
		p := w.newProducer(i, "inside-"+m.Name+"-")
		p.home = &gateway{m.Name, m.Addr, m.URL}
		w.publishing.Go(p.run)
	}
}

func (w *crew) newProducer(i int, prefix string) *producer {
	kinds := []struct {
		kind       string
		idempotent bool
	}{
		{"ws", true},
		{"ws", false},
		{"http", true},
		{"http", false},
		{"ws", true},
		{"key", true},
		{"http", true},
		{"ws", true},
		{"ws", false},
		{"http", true},
		{"http", false},
		{"ws", false},
	}
	k := kinds[i%len(kinds)]
	partitions := w.topic.Layout.Partitions
	p := &producer{
		crew: w, id: fmt.Sprintf("%s%02d-%s", prefix, i, k.kind), partition: partitions[i%len(partitions)].ID, kind: k.kind, idempotent: k.idempotent,
		producer: uuid.NewString(), dialled: i, api: map[string]*client.API{},
	}
	if !k.idempotent {
		p.id += "-plain"
	}
	for _, x := range []string{"a", "b", "c"} {
		p.keys = append(p.keys, w.topic.KeyFor(p.partition, p.id+"-"+x))
	}
	return p
}

// where is the gateway to call next.
func (p *producer) where() gateway {
	if p.home != nil {
		return *p.home
	}
	return p.gateway(p.dialled)
}

// outcome is what became of an attempt.
type outcome struct {
	kept   bool
	code   string // of a refusal
	detail string
	err    error // no answer
	never  bool  // nor did the record leave
}

func (p *producer) run() {
	defer func() {
		if p.line != nil {
			p.line.close()
		}
		for _, api := range p.api {
			api.HTTP.CloseIdleConnections()
		}
	}()
	begin := time.Now()
	for !p.stopping.Load() && p.ctx.Err() == nil && !p.t.Failed() {
		n := p.sent
		p.sent++
		r := &record{key: p.keys[n%int64(len(p.keys))], value: fmt.Sprintf("%s-%d", p.id, n), number: n}
		if p.deliver(r) {
			p.waits.add(begin, time.Now())
			pause(p.ctx, p.opts.pace)
			begin = time.Now()
		}
	}
}

// deliver sends a record until its fate is known, or nobody can know it.
func (p *producer) deliver(r *record) (kept bool) {
	for tries := 0; ; tries++ {
		if p.ctx.Err() != nil || p.t.Failed() {
			return false
		}
		if tries > 0 {
			p.retried.Add(1)
		}
		op := check.Op{Process: p.id, Topic: p.topic.Name, Key: r.key, Value: r.value, Idempotent: p.idempotent}
		if p.idempotent && p.kind != "key" {
			op.Producer, op.Sequence = p.producer, r.number
		}
		r.pending = p.rec.Invoke(op)
		g := p.where()
		o := p.attempt(g, r)
		switch {
		case o.kept:
			p.acked.Add(1)
			return true
		case o.err != nil:
			p.dialled++ // another gateway
			if p.home != nil {
				pause(p.ctx, betweenTries)
			}
			if o.never {
				r.pending.Fail("never sent")
				pause(p.ctx, 2*time.Millisecond)
				continue
			}
			r.pending.Unknown(o.err.Error())
			if !p.idempotent {
				p.lost.Add(1)
				p.losses.add("%s, record %d, by %s: %v", p.id, r.number, g.name, o.err)
				return false
			}
			continue
		}
		p.answers.add(o.code)
		if definite(o.code) {
			r.pending.Fail(o.code)
		} else {
			r.pending.Unknown(o.code)
		}
		if o.code == "draining" { // nothing was kept, and others take it
			p.dialled++
			pause(p.ctx, 2*time.Millisecond)
			continue
		}
		if p.home == nil && (p.opts.mayRefuse == nil || !p.opts.mayRefuse(o.code, g.name)) {
			p.failures.add("%s, record %d, partition %d, by %s: %s: %s", p.id, r.number, p.partition, g.name, o.code, o.detail)
		}
		pause(p.ctx, betweenTries)
		if !p.idempotent && !definite(o.code) {
			return false
		}
	}
}

// perAttempt bounds the wait for one answer; only a gateway that hangs takes so long.
const perAttempt = 20 * time.Second

func (p *producer) attempt(g gateway, r *record) outcome {
	ctx, cancel := context.WithTimeout(p.ctx, perAttempt)
	defer cancel()
	if p.kind == "ws" {
		return p.overWebSocket(ctx, g, r)
	}
	return p.overHTTP(ctx, g, r)
}

func (p *producer) value(r *record) string {
	if p.opts.pad == 0 {
		return r.value
	}
	return r.value + " " + strings.Repeat("x", p.opts.pad)
}

func (p *producer) overHTTP(ctx context.Context, g gateway, r *record) outcome {
	api := p.api[g.name]
	if api == nil {
		api = client.New(g.url)
		p.api[g.name] = api
	}
	query, headers := url.Values{"key": {r.key}}, []string(nil)
	switch {
	case p.kind == "key":
		headers = []string{"Idempotency-Key", p.producer + strconv.FormatInt(r.number, 10)}
	case p.idempotent:
		query.Set("partition", strconv.Itoa(p.partition))
		headers = []string{"Tidewire-Producer", p.producer, "Tidewire-Sequence", strconv.FormatInt(r.number, 10)}
	}
	ans, err := api.Do(ctx, http.MethodPost, "/topics/"+p.topic.Name+"?"+query.Encode(), "text/plain", p.value(r), headers...)
	if err != nil {
		return outcome{err: err, never: neverSent(err)}
	}
	if ans.Status == http.StatusCreated || ans.Status == http.StatusOK {
		place, err := ans.Place()
		if err != nil {
			p.t.Errorf("%s: %v", p.id, err)
			return outcome{err: err}
		}
		p.noteKept(r, place.Partition, place.Offset, place.Duplicate != nil && *place.Duplicate)
		return outcome{kept: true}
	}
	problem, err := ans.Problem()
	if err != nil {
		p.t.Errorf("%s: %v", p.id, err)
		return outcome{err: err}
	}
	return outcome{code: problem.Code, detail: problem.Detail}
}

func (p *producer) noteKept(r *record, partition int, offset *int64, duplicate bool) {
	at := check.NoOffset
	if offset != nil {
		at = *offset
	}
	r.pending.OK(partition, at, duplicate)
}

func (p *producer) overWebSocket(ctx context.Context, g gateway, r *record) outcome {
	if p.line != nil && (p.line.g != g || p.line.leave()) {
		if p.line.g == g { // it said that it closes: others are there
			p.dialled++
			g = p.where()
		}
		p.line.close()
		p.line = nil
	}
	if p.line == nil {
		ws, err := client.DialWS(ctx, g.addr, "")
		if err != nil {
			return outcome{err: err, never: true}
		}
		p.line = openLine(p.ctx, g, ws)
	}
	frame := map[string]any{"op": "publish", "id": r.number + 1, "topic": p.topic.Name, "key": r.key, "value": p.value(r), "content_type": "text/plain"}
	if p.idempotent {
		frame["producer"], frame["sequence"], frame["partition"] = p.producer, r.number, p.partition
	}
	x, err := p.line.call(ctx, r.number+1, frame)
	if err != nil {
		p.line.close()
		p.line = nil
		return outcome{err: err}
	}
	switch x.Op {
	case "published":
		p.noteKept(r, x.Partition, x.Offset, x.Duplicate)
		return outcome{kept: true}
	case "error":
		return outcome{code: x.Code, detail: x.Detail}
	}
	p.t.Errorf("%s: an unexpected line: %s", p.id, x.Raw)
	return outcome{err: errors.New("an unexpected line")}
}

// line is a WebSocket that is read all the time, as a client does that wants to
// know when its gateway closes.
type line struct {
	g       gateway
	ws      *client.WS
	stop    context.CancelFunc
	answers chan client.Frame
	closing chan struct{} // closed by the word that the gateway closes
	ended   chan struct{} // closed when the connection has ended
	err     error         // why; once ended
}

func openLine(ctx context.Context, g gateway, ws *client.WS) *line {
	ctx, stop := context.WithCancel(ctx)
	l := &line{g: g, ws: ws, stop: stop, answers: make(chan client.Frame, 16), closing: make(chan struct{}), ended: make(chan struct{})}
	go l.read(ctx)
	return l
}

func (l *line) read(ctx context.Context) {
	defer close(l.ended)
	said := false
	for {
		x, err := l.ws.Next(ctx)
		if err != nil {
			l.err = err
			return
		}
		switch {
		case x.Op == "closing" && !said:
			said = true
			close(l.closing)
		case x.ID != 0:
			select {
			case l.answers <- x:
			case <-ctx.Done():
			}
		}
	}
}

// leave says that the line is over, or soon will be.
func (l *line) leave() bool {
	select {
	case <-l.closing:
		return true
	case <-l.ended:
		return true
	default:
		return false
	}
}

func (l *line) call(ctx context.Context, id int64, frame any) (client.Frame, error) {
	if err := l.ws.Send(ctx, frame); err != nil {
		return client.Frame{}, err
	}
	for {
		select {
		case x := <-l.answers:
			if x.ID == id {
				return x, nil
			}
		case <-l.ended:
			select { // the answer may be there already
			case x := <-l.answers:
				if x.ID == id {
					return x, nil
				}
			default:
			}
			return client.Frame{}, l.err
		case <-ctx.Done():
			return client.Frame{}, context.Cause(ctx)
		}
	}
}

func (l *line) close() {
	l.stop()
	l.ws.Drop()
	<-l.ended
}
