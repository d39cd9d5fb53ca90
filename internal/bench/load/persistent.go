package load

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"tidewire/internal/bench/message"
)

// persistent is a publisher that repeats each message until it is kept, by its
// sequence: each stands in the log once, in the order of its numbers.
type persistent struct {
	http    *http.Client
	target  Target
	url     string
	id      string
	every   time.Duration
	stencil message.Stencil
	kept    int64 // once run has returned
}

// repeatAfter is how long it waits before it tries again.
const repeatAfter = 100 * time.Millisecond

func newPersistent(w Restart) *persistent {
	at := w.Target
	if w.Publisher.Host != "" {
		at = w.Publisher
	}
	return &persistent{
		http:   &http.Client{Transport: &http.Transport{}, Timeout: handshakeTimeout},
		target: at, url: "http://" + at.Host + "/topics/" + url.PathEscape(w.Topic) + "?partition=0",
		id: uuid.NewString(), every: time.Duration(float64(time.Second) / w.Rate), stencil: message.NewStencil(message.Value(w.Bytes)),
	}
}

// run publishes until ctx ends, and ends with a message that is kept.
func (p *persistent) run(ctx context.Context) {
	defer p.http.CloseIdleConnections()
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		for late := time.Now().Add(returnTimeout); !p.publish(p.kept); {
			if time.Now().After(late) {
				return // what is missing tells
			}
			pause := time.NewTimer(repeatAfter)
			<-pause.C
		}
		p.kept++
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// publish reports whether the message is kept. It is not cut short: what became of
// the message has to be known.
func (p *persistent) publish(n int64) bool {
	req, err := http.NewRequest(http.MethodPost, p.url, bytes.NewReader(p.stencil.Append(nil, n)))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Tidewire-Producer", p.id)
	req.Header.Set("Tidewire-Sequence", strconv.FormatInt(n, 10))
	p.target.authorize(req)
	resp, err := p.http.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK
}
