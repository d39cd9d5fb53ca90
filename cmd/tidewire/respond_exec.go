package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
	"tidewire/internal/sleep"
	"tidewire/internal/wire"
)

// replier takes replies.
type replier interface {
	Reply(ctx context.Context, inbox string, r client.Reply) error
}

// responder answers requests with what a command says.
type responder struct {
	server      replier
	shell       shell
	contentType string // of the replies; "": by their looks
	err         io.Writer
	note        func(format string, args ...any)
	end         func(error) // ends the work

	mu    sync.Mutex
	count replyCount
}

// replyCount is what became of the messages that came.
type replyCount struct {
	Replied int64 `json:"replied"` // failures included
	Failed  int64 `json:"failed"`
	Late    int64 `json:"late"`    // past their deadline
	Gone    int64 `json:"gone"`    // the requester had left, or had its reply
	Foreign int64 `json:"foreign"` // were no requests
}

func (p *responder) add(to *int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*to++
}

// respond works on one message. Without an error the message is acknowledged; with one it
// comes again.
func (p *responder) respond(ctx context.Context, m client.Leased) error {
	asked, ok := m.Asked()
	switch {
	case !ok:
		p.note("partition %d offset %d is no request: it has no reply-to", m.Partition, m.Offset)
		p.add(&p.count.Foreign)
		return nil
	case !asked.Until.IsZero() && !time.Now().Before(asked.Until):
		p.add(&p.count.Late)
		return nil
	}
	reply, err := p.work(ctx, m, asked)
	switch {
	case errors.Is(err, errTooLate):
		p.add(&p.count.Late)
		return nil
	case err != nil:
		return err
	}
	reply, err = p.reply(ctx, asked, reply)
	var problem *client.Problem
	switch {
	case err == nil:
		p.add(&p.count.Replied)
		if reply.Failed() {
			p.add(&p.count.Failed)
		}
		return nil
	case errors.As(err, &problem) && problem.Code == fault.RequesterGone.Code():
		p.add(&p.count.Gone)
		return nil
	}
	return err
}

// errTooLate is the end of a command that nobody waits for any more.
var errTooLate = errors.New("the deadline of the request is over")

// work runs the command and makes a reply of what it says. A command that hangs ends with its
// request: it is not to keep the next ones waiting.
func (p *responder) work(ctx context.Context, m client.Leased, asked client.Asked) (client.Reply, error) {
	var out capped
	last := &lastLines{}
	deadline := ""
	if !asked.Deadline.IsZero() {
		deadline = asked.Deadline.Format(time.RFC3339Nano)
	}
	running := ctx
	if !asked.Until.IsZero() {
		var cancel context.CancelFunc
		running, cancel = context.WithDeadline(ctx, asked.Until)
		defer cancel()
	}
	err := p.shell.run(running, m, &out, io.MultiWriter(p.err, last), "TIDEWIRE_CORRELATION_ID="+asked.Correlation, "TIDEWIRE_DEADLINE="+deadline)
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return client.Reply{}, context.Cause(ctx) // it was told to stop
	case err != nil && running.Err() != nil:
		p.note("partition %d offset %d: the command is stopped: it runs past the deadline of its request", m.Partition, m.Offset)
		return client.Reply{}, errTooLate
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // something it has started goes on
	case errors.As(err, &ended):
		p.note("partition %d offset %d: the command: %v", m.Partition, m.Offset, err)
		return failure(ended.Error() + "\n" + last.text()), nil
	default:
		return client.Reply{}, fmt.Errorf("the command: %w", err)
	}
	if out.over {
		p.note("partition %d offset %d: the command's output is more than %d bytes", m.Partition, m.Offset, maxReplyBytes)
		return failure(fmt.Sprintf("the reply is longer than %d bytes", maxReplyBytes)), nil
	}
	r := client.Reply{Status: http.StatusOK, ContentType: p.contentType, Value: out.b}
	if r.ContentType == "" {
		r.ContentType = wire.GuessContentType(r.Value)
	}
	return r, nil
}

func failure(text string) client.Reply {
	return client.Reply{Status: http.StatusInternalServerError, ContentType: "text/plain", Value: []byte(text)}
}

const (
	// replyPause is how long a reply waits for another try.
	replyPause = 100 * time.Millisecond
	// replyPatience bounds the tries where a request names no deadline.
	replyPatience = 30 * time.Second
)

// reply gives a reply until it is taken, refused, or nobody waits for it any more. It
// returns the reply that it gave in the end.
func (p *responder) reply(ctx context.Context, asked client.Asked, r client.Reply) (client.Reply, error) {
	until := asked.Until
	if until.IsZero() {
		until = time.Now().Add(replyPatience)
	}
	for {
		err := p.server.Reply(ctx, asked.Inbox, r)
		var problem *client.Problem
		switch isProblem := errors.As(err, &problem); {
		case err == nil, ctx.Err() != nil:
			return r, err
		case isProblem && !problem.Retryable() && !r.Failed() && refusedForItself(problem):
			p.note("the reply is refused: %v", problem)
			r = failure("the reply is refused: " + problem.Error())
			continue
		case isProblem && !problem.Retryable():
			if problem.Code != fault.RequesterGone.Code() {
				p.end(err) // as the next reply would be
			}
			return r, err
		case time.Now().After(until) || !sleep.For(ctx, replyPause):
			return r, err
		}
	}
}

// refusedForItself says that this one reply is refused, not who gives it.
func refusedForItself(p *client.Problem) bool {
	return p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge || p.Status == http.StatusUnsupportedMediaType
}

// print says what became of the requests.
func (p *responder) print(r *remote) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.table() {
		return r.line(p.count)
	}
	_, err := fmt.Fprintf(r.out, "%d replied, %d of them failures; %d came late, %d had no requester any more, %d were no requests\n",
		p.count.Replied, p.count.Failed, p.count.Late, p.count.Gone, p.count.Foreign)
	return err
}

// maxReplyBytes bounds a command's output: no server takes a reply this long.
const maxReplyBytes = maxLineBytes

// capped keeps an output up to maxReplyBytes, and takes the rest.
type capped struct {
	b    []byte
	over bool
}

func (c *capped) Write(b []byte) (int, error) {
	if c.over = c.over || len(c.b)+len(b) > maxReplyBytes; !c.over {
		c.b = append(c.b, b...)
	}
	return len(b), nil
}

// lastBytes and lastCount are how much of a command's standard error its requester gets.
const (
	lastBytes = 4 << 10
	lastCount = 10
)

// lastLines keeps the end of what is written.
type lastLines struct{ b []byte }

func (l *lastLines) Write(b []byte) (int, error) {
	l.b = append(l.b, b...)
	if n := len(l.b) - lastBytes; n > 0 {
		l.b = append(l.b[:0], l.b[n:]...)
	}
	return len(b), nil
}

func (l *lastLines) text() string {
	lines := bytes.Split(bytes.TrimRight(l.b, "\n"), []byte("\n"))
	if len(lines) > lastCount {
		lines = lines[len(lines)-lastCount:]
	}
	return string(bytes.ToValidUTF8(bytes.Join(lines, []byte("\n")), []byte("\uFFFD")))
}
