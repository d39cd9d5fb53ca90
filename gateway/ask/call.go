package ask

import (
	"sync"
	"time"

	"tidewire/gateway/publish"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
	"tidewire/internal/wire"
)

// Client is told what becomes of a request. It is called by whoever knows, and does not
// wait.
type Client interface {
	// Accepted says that the request is kept: at most once, and before Answered.
	Accepted(Accepted)
	// Answered is the end of it, and comes once unless the client leaves. The reply is only
	// lent: who wants it for longer clones it.
	Answered(r *inbox.Reply, err error)
}

// Accepted is where a request is kept.
type Accepted struct {
	Partition   ident.Index
	Offset      ident.Offset
	Correlation string
	Duplicate   bool // it was kept before
}

// Call is a client that waits for a reply.
type Call struct {
	ask         *Ask
	client      Client
	caller      inbox.Caller
	timeout     time.Duration
	correlation string
	proxy       bool // it waits for a client of another gateway's

	mu    sync.Mutex
	told  bool // that the request is kept; until then what comes waits
	over  bool
	early *ending
}

// ending is how a call ends.
type ending struct {
	reply *inbox.Reply
	err   error
}

// published is what became of the record of a call that nobody shares.
func (c *Call) published(res publish.Result) {
	if res.Err != nil {
		c.failed(res.Err)
		return
	}
	c.accepted(Accepted{Partition: res.Partition, Offset: res.Offset, Correlation: c.correlation})
}

// accepted tells the client that its request is kept, and then what came before that.
func (c *Call) accepted(a Accepted) {
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if over {
		return
	}
	c.client.Accepted(a)
	c.mu.Lock()
	c.told = true
	early := c.early
	if c.over {
		early = nil
	}
	c.over = c.over || early != nil
	c.mu.Unlock()
	if early != nil {
		c.end(early.reply, early.err)
	}
}

// failed ends a call whose request was not kept, as far as anybody knows. Where there is a
// reply all the same, it was.
func (c *Call) failed(err error) {
	c.leave()
	c.mu.Lock()
	early, over := c.early, c.over
	c.over = true
	c.mu.Unlock()
	switch {
	case over:
	case early != nil && early.reply != nil:
		c.end(early.reply, nil)
	default:
		c.end(nil, err)
	}
}

// answered ends a call. A reply may be quicker than the news that its request is kept: it
// waits for that.
func (c *Call) answered(r *inbox.Reply, err error) {
	c.mu.Lock()
	switch {
	case c.over:
		c.mu.Unlock()
		return
	case !c.told:
		if c.early == nil {
			if r != nil {
				r = r.Clone()
			}
			c.early = &ending{r, err}
		}
		c.mu.Unlock()
		return
	}
	c.over = true
	c.mu.Unlock()
	c.end(r, err)
}

func (c *Call) end(r *inbox.Reply, err error) {
	switch {
	case c.proxy:
	case err != nil:
		c.ask.metrics.ended(err)
	default:
		c.ask.metrics.replied(r)
	}
	c.client.Answered(r, err)
}

// Leave is for a client that does not want to hear of its request any more. Where nobody
// can repeat it, its reply has nowhere to go from then on.
func (c *Call) Leave() {
	c.mu.Lock()
	over := c.over
	c.over = true
	c.mu.Unlock()
	c.leave()
	if !over && !c.proxy {
		c.ask.metrics.left()
	}
}

func (c *Call) leave() {
	c.ask.mu.Lock()
	defer c.ask.mu.Unlock()
	c.ask.box.Leave(&c.caller)
}

// Correlation is the request's correlation id.
func (c *Call) Correlation() string { return c.correlation }

// late is the end of a call whose time is up.
func (c *Call) late() error {
	return fault.New(fault.ReplyTimeout, "no reply came within %s; the request was kept, and a responder may still act on it", wire.ShortDuration(c.timeout))
}
