package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/google/uuid"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// lane is the way of one partition.
type lane struct {
	p         *Producer
	partition uint32
	keys      ident.HashRange

	// Of the router:
	pending []Record
	bytes   int
	batches chan []Record

	// Of the lane's own goroutine:
	id   string // the producer's, of its present life
	next int64  // sequence of the next line that has none yet
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// answerGrace is how much longer than the server's own timeout an answer may
	// take before the connection counts as dead.
	answerGrace = 10 * time.Second
)

// hand gives the gathered batch to the lane and waits until it is taken.
func (l *lane) hand() {
	if len(l.pending) > 0 {
		l.batches <- l.pending
		l.pending, l.bytes = nil, 0
	}
}

// offer is hand for a lane that is free; else the batch goes on growing.
func (l *lane) offer() {
	if len(l.pending) == 0 {
		return
	}
	select {
	case l.batches <- l.pending:
		l.pending, l.bytes = nil, 0
	default:
	}
}

// run sends batch after batch. A lane that gave up calls stop, and still takes
// what the router hands it, to report it as not sent.
func (l *lane) run(ctx context.Context, stop func()) error {
	var gaveUp error
	for batch := range l.batches {
		if gaveUp != nil {
			l.reportAll(batch, Unsent, gaveUp)
			continue
		}
		if gaveUp = l.send(ctx, batch); gaveUp != nil {
			stop()
		}
	}
	return gaveUp
}

// send sends a batch until each of its lines has an outcome. An error means
// that the lane gave up.
func (l *lane) send(ctx context.Context, batch []Record) error {
	var (
		deadline = time.Now().Add(l.p.cfg.Timeout)
		pause    = firstPause
		open     = false // an earlier try may have kept what is left
		reborn   = false // since the last progress
	)
	giveUp := func(cause error) error {
		fate := Unsent
		if open {
			fate = Unknown
		}
		l.reportAll(batch, fate, cause)
		return cause
	}
	for {
		settled, cause := l.try(ctx, batch)
		batch = batch[settled:]
		l.next += int64(settled)
		if len(batch) == 0 {
			return nil
		}
		if settled > 0 {
			deadline, pause, reborn = time.Now().Add(l.p.cfg.Timeout), firstPause, false
		}
		verdict, mayBeKept := judge(cause)
		open = open || mayBeKept
		switch {
		case verdict == hopeless:
			return giveUp(cause)
		case open && !l.sequenced():
			l.reportAll(batch, Unknown, cause) // a repeat could double it
			return nil
		case verdict == forgotten:
			// The server does not know the producer's numbers (any more). New
			// numbers are safe only if no try of these lines is in doubt.
			if open || reborn {
				return giveUp(cause)
			}
			l.id, l.next, reborn = uuid.NewString(), 0, true
			continue
		}
		wait := max(rand.N(pause), retryAfter(cause))
		pause = min(2*pause, longestPause)
		if time.Now().Add(wait).After(deadline) {
			return giveUp(fmt.Errorf("gave up after %s without progress: %w", l.p.cfg.Timeout, cause))
		}
		if l.p.cfg.Retry != nil {
			l.p.cfg.Retry(l.partition, cause, wait)
		}
		sleep.For(ctx, wait)
	}
}

func (l *lane) sequenced() bool { return l.p.cfg.Acks != "none" }

// try sends the batch once and reports the lines that are settled, from the
// first on. The cause says why the next one is not.
func (l *lane) try(ctx context.Context, batch []Record) (settled int, cause error) {
	l.p.inFlight <- struct{}{}
	defer func() { <-l.p.inFlight }()
	ctx, cancel := context.WithTimeout(ctx, l.p.cfg.RequestTimeout+answerGrace)
	defer cancel()
	var lines bytes.Buffer
	for _, r := range batch {
		lines.Write(r.JSON)
	}
	b := client.Batch{
		Topic: l.p.cfg.Topic, Partition: l.partition, Lines: lines.Bytes(), Count: len(batch),
		Acks: l.p.cfg.Acks, Timeout: l.p.cfg.RequestTimeout,
	}
	if l.sequenced() {
		b.Producer, b.Sequence = l.id, l.next
	}
	results, err := l.p.cfg.Sender.Publish(ctx, b)
	for i, r := range results[:min(len(results), len(batch))] {
		o := Outcome{Partition: l.partition, Offset: r.Offset}
		switch {
		case r.Problem == nil && !l.sequenced():
			o.Fate = Taken
		case r.Problem == nil && r.Duplicate:
			o.Fate = Duplicate
		case r.Problem == nil:
			o.Fate = Kept
		default:
			// What is refused for what it is has used its number up. A problem
			// of the moment has not: the lines from here on go again.
			if v, _ := judge(r.Problem); v != hopeless {
				return i, r.Problem
			}
			o.Fate, o.Err = Refused, r.Problem
		}
		l.p.report(batch[i], o)
	}
	if len(results) < len(batch) && err == nil {
		err = fmt.Errorf("the server answered %d of %d lines", len(results), len(batch))
	}
	return min(len(results), len(batch)), err
}

func (l *lane) reportAll(batch []Record, fate Fate, cause error) {
	for _, r := range batch {
		l.p.report(r, Outcome{Fate: fate, Partition: l.partition, Offset: -1, Err: cause})
	}
}

// verdict says what to do about a try that failed.
type verdict uint8

const (
	hopeless  verdict = iota // the same again would fail the same way
	again                    // repeat with the same numbers
	forgotten                // the server counts otherwise
)

// judge sorts what made a try fail. mayBeKept: the lines may be in the log.
func judge(cause error) (v verdict, mayBeKept bool) {
	var p *client.Problem
	var gone *client.Unreachable
	switch {
	case errors.As(cause, &p):
		switch {
		case p.Code == fault.OutOfOrderSequence.Code(), p.Code == fault.UnknownProducer.Code():
			return forgotten, false
		case p.Code == fault.UnknownOutcome.Code():
			return again, true
		case p.Retryable():
			// internal, or the answer of some proxy, says nothing of the lines.
			kind, known := fault.ByCode(p.Code)
			return again, !known || kind == fault.Internal
		}
		return hopeless, false
	case errors.As(cause, &gone):
		return again, !errors.Is(gone, syscall.ECONNREFUSED)
	}
	return hopeless, true
}

func retryAfter(cause error) time.Duration {
	var p *client.Problem
	if errors.As(cause, &p) {
		return p.RetryAfter
	}
	return 0
}
