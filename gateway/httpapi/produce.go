package httpapi

import (
	"errors"
	"net/http"
	"sync"

	"tidewire/gateway/budget"
	"tidewire/gateway/publish"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// produce is POST /topics/{topic}: the body is one record's value, or one
// record a line.
func (a *API) produce(w http.ResponseWriter, r *http.Request) error {
	c, err := a.readProduceCall(r)
	if err != nil {
		return err
	}
	if c.lines() {
		return a.produceLines(w, r, &c)
	}
	if err := a.cfg.Quota.Take(c.client); err != nil {
		return err
	}
	u := underway.Get().(*publishing)
	res, err := a.produceOne(w, r, &c, u)
	if err == nil {
		err = res.Err
	}
	if err == nil {
		err = sendJSON(w, resultStatus(&res, c.acks), appendResult(u.body[:0], &res, c.acks))
	}
	u.result = publish.Result{}
	underway.Put(u) // not after a panic: a result might be on its way still
	return err
}

// publishing is what a call needs to publish a record, whatever its size: room
// for a small body, and later for the answer, and where the result goes.
type publishing struct {
	body   []byte
	done   func(publish.Result)
	result publish.Result
	came   chan struct{} // of one call: closed when there is a result
}

// bodyRoom has room for most bodies, and so little that it can be kept.
const bodyRoom = 4 << 10

var underway = sync.Pool{New: func() any {
	u := &publishing{body: make([]byte, 0, bodyRoom)}
	u.done = func(res publish.Result) {
		u.result = res
		close(u.came)
	}
	return u
}}

// produceOne publishes one record and waits for what becomes of it. An error
// says that it was not published.
func (a *API) produceOne(w http.ResponseWriter, r *http.Request, c *produceCall, u *publishing) (res publish.Result, err error) {
	share := a.cfg.Held.Share()
	defer share.Close()
	rec, refusal, err := readRecord(w, r, c, u.body, share)
	if err != nil {
		return res, err
	}
	u.came = make(chan struct{})
	if refusal != nil {
		a.refuse(c, c.sequence, refusal, u.done)
	} else {
		a.cfg.Publisher.Publish(c.request(rec), u.done)
	}
	share.Close() // the publisher has a copy, and counts it
	// Also for a client that seems to have left: one that only closed its sending
	// side still reads, and an empty 200 would tell it that the record is kept.
	// Every publish ends by its own deadline.
	<-u.came
	return u.result, nil
}

// readRecord reads the body. refusal: the record is refused for what it is;
// err: it did not arrive.
func readRecord(w http.ResponseWriter, r *http.Request, c *produceCall, into []byte, share *budget.Share) (rec record.Record, refusal, err error) {
	head, refusal := c.recordHead()
	if refusal != nil {
		return head, refusal, nil
	}
	room := c.mostBytes() - head.Bytes()
	if room < 0 {
		return head, c.tooLarge("key and headers alone are more"), nil
	}
	body, err := readBounded(w, r, into, room, share)
	if errors.Is(err, errTooMuch) {
		return head, c.tooLarge("the body is larger"), nil
	}
	if err != nil {
		return head, nil, err
	}
	rec, refusal = c.record(body)
	return rec, refusal, nil
}

// refuse answers a record that is refused for what it is. A sequenced one uses
// its number up first, or its producer could never go on.
func (a *API) refuse(c *produceCall, sequence int64, refusal error, done func(publish.Result)) {
	if !c.sequenced {
		done(publish.Result{Err: refusal})
		return
	}
	a.cfg.Publisher.Publish(c.void(sequence), func(res publish.Result) {
		if res.Err == nil {
			res.Err = refusal
		}
		done(res)
	})
}

func resultStatus(res *publish.Result, acks rpc.Acks) int {
	switch {
	case acks == rpc.AcksNone:
		return http.StatusAccepted
	case res.Duplicate:
		return http.StatusOK
	}
	return http.StatusCreated
}

// appendResult writes where a record is. What is not known is left out: the
// offset of one that nobody waits for, or of a duplicate older than the window.
func appendResult(b []byte, res *publish.Result, acks rpc.Acks) []byte {
	l := wire.Begin(b).Str("topic", res.Topic).Int("partition", int64(res.Partition))
	if acks == rpc.AcksNone {
		return l.Close()
	}
	if res.Offset >= 0 {
		l.Int("offset", int64(res.Offset))
	}
	if res.Timestamp != 0 {
		l.Time("timestamp", res.Timestamp)
	}
	return l.Bool("duplicate", res.Duplicate).Close()
}

// record makes the record of a body. Its errors are refusals of the record for
// what it is: they use its sequence number up.
func (c *produceCall) record(body []byte) (record.Record, error) {
	rec, err := c.recordHead()
	if err != nil {
		return rec, err
	}
	rec.Value = body
	switch {
	case c.tombstone:
		if len(body) > 0 {
			return rec, invalid("Tidewire-Tombstone", "takes no body: a tombstone has no value")
		}
		if err := wire.Tombstone(&rec); err != nil {
			return rec, err
		}
	case c.mediaType == "" || c.mediaType == formType:
		rec.ContentType = wire.GuessContentType(body)
	default:
		if err := wire.CheckContentType(c.contentType); err != nil {
			return rec, err
		}
		rec.ContentType = c.contentType
		if err := wire.CheckValue(&rec); err != nil {
			return rec, err
		}
	}
	if rec.Idempotency != nil {
		rec.Idempotency.Hash = record.ContentHash(&rec)
	}
	return rec, nil
}

// recordHead is the record without its value.
func (c *produceCall) recordHead() (rec record.Record, err error) {
	if c.key != nil {
		if rec.Key, err = wire.Key(*c.key); err != nil {
			return rec, err
		}
	}
	for _, h := range c.headers {
		if rec.Headers, err = wire.AddHeader(rec.Headers, h.name, h.value); err != nil {
			return rec, err
		}
	}
	if c.sequenced {
		rec.Producer, rec.Sequence = c.producer, c.sequence
	}
	if c.idempotencyKey != "" {
		rec.Idempotency = &record.Idempotency{Principal: c.principal, Key: c.idempotencyKey}
	}
	return rec, nil
}

// request asks the publisher for one record.
func (c *produceCall) request(rec record.Record) publish.Request {
	return publish.Request{Topic: c.topic.Name, Partition: c.partition, Acks: c.acks, Timeout: c.timeout, Record: rec}
}

// void asks the publisher to use a sequence number up.
func (c *produceCall) void(sequence int64) publish.Request {
	req := c.request(record.Record{Producer: c.producer, Sequence: sequence})
	req.Void = true
	return req
}

// mostBytes is the size of the largest record that goes on to its leader. One
// that may be a repeat goes there whatever its topic takes by now: the leader
// alone knows whether it was kept when the topic took more.
func (c *produceCall) mostBytes() int {
	if c.sequenced || c.idempotencyKey != "" {
		return max(cluster.MaxMessageBytes, c.topic.Settings.MaxMessageBytes)
	}
	return c.topic.Settings.MaxMessageBytes
}

// tooLarge is the refusal of a record that is known to be over its topic's limit.
func (c *produceCall) tooLarge(what string) error {
	most := c.topic.Settings.MaxMessageBytes
	return fault.New(fault.MessageTooLarge, "%s; a record of topic %q takes at most %d bytes of key, headers and value together (max_message_bytes)", what, c.topic.Name, most).
		With("max_message_bytes", most)
}
