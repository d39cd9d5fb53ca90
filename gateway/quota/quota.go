// Package quota bounds how fast each client publishes, so that none takes what
// all share. A client is a principal, or an address where nobody is asked who
// they are.
package quota

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

const (
	// burst is how much of its rate a client that was quiet may use at once.
	burst = time.Second
	// patience is how long a record waits for its turn: as long as a publish may
	// take when its client names no time.
	patience = 5 * time.Second
	// fewClients are not worth looking for those that are quiet.
	fewClients = 1024
)

// Quota is the bound of a node. It is safe for concurrent use.
type Quota struct {
	rate int
	each time.Duration // a record's share of a second

	mu sync.Mutex
	// due is when a client will have had what it took, at its rate: the whole
	// state of a bucket. One that lies in the past is as good as none.
	due  map[string]time.Time
	most int // clients before the quiet ones are forgotten
}

// New makes a bound of records a second for each client; 0: none.
func New(rate int) *Quota {
	q := &Quota{rate: rate, due: map[string]time.Time{}, most: fewClients}
	if rate > 0 {
		q.each = time.Second / time.Duration(rate)
	}
	return q
}

// Client names who calls, for Take.
func Client(g *access.Grant, address string) string {
	if g.Asked() && g != nil && g.Principal != "" {
		return "principal " + g.Principal
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	return "address " + address
}

// OfRequest is the Client of a request; "" where there is no bound, and so
// nobody to tell from others.
func (q *Quota) OfRequest(r *http.Request) string {
	if q.rate == 0 {
		return ""
	}
	return Client(access.Of(r.Context()), r.RemoteAddr)
}

// Take takes one record's share, or says why not and when to come back.
func (q *Quota) Take(client string) error {
	if wait := q.take(client, time.Now()); wait > 0 {
		return q.over().After(wait)
	}
	return nil
}

// Wait takes one record's share as soon as there is one: whoever reads records
// from its client no faster needs no error. ctx is not done in most cases; its
// end gives the error.
func (q *Quota) Wait(ctx context.Context, client string) error {
	wait := q.take(client, time.Now())
	if wait == 0 {
		return nil
	}
	for until := time.Now().Add(patience); wait > 0; wait = q.take(client, time.Now()) {
		if time.Now().Add(wait).After(until) {
			return q.over().After(wait)
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return q.over().After(wait)
		}
	}
	return nil
}

func (q *Quota) over() *fault.Error {
	return fault.New(fault.Throttled, "a client publishes at most %d records a second here (max_publish_rate); nothing was kept", q.rate).With("limit", "max_publish_rate")
}

// take is how long to wait; 0: it was taken.
func (q *Quota) take(client string, now time.Time) time.Duration {
	if q.rate == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.due[client]
	if due.Before(now) {
		due = now
	}
	due = due.Add(q.each)
	if wait := due.Sub(now) - max(burst, q.each); wait > 0 {
		return wait
	}
	if q.due[client] = due; len(q.due) > q.most {
		q.forgetLocked(now)
	}
	return 0
}

func (q *Quota) forgetLocked(now time.Time) {
	for client, due := range q.due {
		if !due.After(now) {
			delete(q.due, client)
		}
	}
	q.most = max(fewClients, 2*len(q.due))
}
