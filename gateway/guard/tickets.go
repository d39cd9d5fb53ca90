package guard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"tidewire/gateway/access"
	"tidewire/internal/fault"
)

const (
	// TicketTime is how long a ticket waits to be used.
	TicketTime = 30 * time.Second
	// maxTickets bounds those of the node, maxTicketsEach those of one principal,
	// so that none of them can take all.
	maxTickets     = 1 << 16
	maxTicketsEach = 1 << 14
)

// digest stands for a ticket: the node keeps nothing that could be used.
type digest [sha256.Size]byte

type ticket struct {
	grant *access.Grant
	until time.Time
}

// tickets are those of this node that are still good.
type tickets struct {
	mu    sync.Mutex
	live  map[digest]ticket
	each  map[string]int // by principal
	order []issued       // oldest first, used ones included
}

type issued struct {
	digest digest
	until  time.Time
}

func newTickets() *tickets {
	return &tickets{live: map[digest]ticket{}, each: map[string]int{}}
}

// count is how many are live.
func (t *tickets) count() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(time.Now())
	return float64(len(t.live))
}

// Ticket turns a grant into a ticket: it gives the same, once, soon.
func (g *Guard) Ticket(grant *access.Grant) (text string, until time.Time, err error) {
	now := time.Now()
	until = now.Add(TicketTime)
	if e := grant.Expires; !e.IsZero() && e.Before(until) {
		until = e
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	text = base64.RawURLEncoding.EncodeToString(secret[:])

	t := g.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(now)
	switch {
	case len(t.live) >= maxTickets:
		return "", until, tooMany("the node holds %d tickets that nobody has used yet", maxTickets)
	case t.each[grant.Principal] >= maxTicketsEach:
		return "", until, tooMany("the principal holds %d tickets that nobody has used yet", maxTicketsEach)
	}
	d := digest(sha256.Sum256([]byte(text)))
	t.live[d] = ticket{grant, until}
	t.each[grant.Principal]++
	// All live equally long, but for those of a token that ends sooner; these are
	// found out when they are used and forgotten a little late.
	t.order = append(t.order, issued{d, now.Add(TicketTime)})
	return text, until, nil
}

func tooMany(format string, n int) error {
	return fault.New(fault.Limit, format+"; a ticket is good for %s", n, TicketTime).With("limit", "tickets")
}

// Redeem uses a ticket up.
func (g *Guard) Redeem(text string) (*access.Grant, error) {
	if g.Open() {
		return nil, fault.New(fault.Invalid, "this node takes no tickets: it has no auth_key_file; leave the ticket out").With("field", "ticket")
	}
	now := time.Now()
	t := g.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	d := digest(sha256.Sum256([]byte(text)))
	one, ok := t.live[d]
	if ok {
		t.dropLocked(d, one)
	}
	if !ok || !now.Before(one.until) {
		return nil, access.Refuse(access.BadTicket, "the ticket is unknown here, used already, or older than %s: get a new one by POST /tickets", TicketTime)
	}
	return one.grant, nil
}

// forgetLocked drops those whose time is over.
func (t *tickets) forgetLocked(now time.Time) {
	n := 0
	for _, i := range t.order {
		if now.Before(i.until) {
			break
		}
		if one, ok := t.live[i.digest]; ok {
			t.dropLocked(i.digest, one)
		}
		n++
	}
	if t.order = t.order[n:]; len(t.order) == 0 {
		t.order = nil
	}
}

func (t *tickets) dropLocked(d digest, one ticket) {
	delete(t.live, d)
	if p := one.grant.Principal; t.each[p] > 1 {
		t.each[p]--
	} else {
		delete(t.each, p)
	}
}
