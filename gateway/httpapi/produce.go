package httpapi

import (
	"errors"
	"net/http"

	"tidewire/gateway/publish"
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
	rec, refusal, err := readRecord(w, r, &c)
	if err != nil {
		return err
	}
	results := make(chan publish.Result, 1)
	done := func(res publish.Result) { results <- res }
	if refusal != nil {
		a.refuse(&c, c.sequence, refusal, done)
	} else {
		a.cfg.Publisher.Publish(c.request(rec), done)
	}
	select {
	case res := <-results:
		if res.Err != nil {
			return res.Err
		}
		return sendJSON(w, resultStatus(&res, c.acks), appendResult(nil, &res, c.acks))
	case <-r.Context().Done():
		return nil // nobody is there to hear it
	}
}

// readRecord reads the body. refusal: the record is refused for what it is;
// err: it did not arrive.
func readRecord(w http.ResponseWriter, r *http.Request, c *produceCall) (rec record.Record, refusal, err error) {
	head, refusal := c.recordHead()
	if refusal != nil {
		return head, refusal, nil
	}
	room := c.topic.Settings.MaxMessageBytes - head.Bytes()
	if room < 0 {
		return head, c.tooLarge("key and headers alone are more"), nil
	}
	body, err := readBounded(w, r, room)
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
