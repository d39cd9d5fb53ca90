package producer

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/fault"
)

// server is a small, exact model of what the servers promise a producer: the
// next number is kept, an earlier one is a duplicate, a later one is refused.
type server struct {
	mu    sync.Mutex
	logs  map[uint32][]string         // values by partition
	next  map[string]map[uint32]int64 // by producer and partition
	first map[string]map[int64]int64  // producer/partition → sequence → offset, -1 for a refused one
	tries int
	// mischief decides what goes wrong with a try; nil: nothing.
	mischief func(try int, b client.Batch) mischief
}

type mischief struct {
	before error // answered instead of doing anything
	after  error // the answer is lost after doing all of it
	cut    int   // with after: so many results still come
	moment int   // 1-based line that is throttled; 0: none
	forget bool  // the producers are forgotten first
}

func newServer() *server {
	return &server{logs: map[uint32][]string{}, next: map[string]map[uint32]int64{}, first: map[string]map[int64]int64{}}
}

func problem(k fault.Kind) *client.Problem {
	return &client.Problem{Status: k.Status(), Code: k.Code(), Title: k.Title()}
}

var (
	errRefused = &client.Unreachable{Err: syscall.ECONNREFUSED}
	errBroken  = &client.Unreachable{Err: errors.New("connection reset")}
)

func (s *server) Publish(ctx context.Context, b client.Batch) ([]client.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	var m mischief
	if s.mischief != nil {
		m = s.mischief(s.tries, b)
	}
	if m.forget {
		clear(s.next)
		clear(s.first)
	}
	if m.before != nil {
		return nil, m.before
	}
	var results []client.Result
	for i, line := range bytes.SplitAfter(b.Lines, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if m.moment == i+1 {
			results = append(results, client.Result{Problem: problem(fault.Throttled)})
			continue
		}
		results = append(results, s.keep(b, b.Sequence+int64(i), string(bytes.TrimSpace(line))))
	}
	if m.after != nil {
		return results[:min(m.cut, len(results))], m.after
	}
	return results, nil
}

func (s *server) keep(b client.Batch, seq int64, value string) client.Result {
	who := b.Producer + "/" + string(rune('0'+b.Partition))
	if b.Producer != "" {
		if s.next[b.Producer] == nil {
			s.next[b.Producer] = map[uint32]int64{}
		}
		if s.first[who] == nil {
			s.first[who] = map[int64]int64{}
		}
		switch next := s.next[b.Producer][b.Partition]; {
		case seq < next:
			if s.first[who][seq] < 0 {
				return client.Result{Problem: problem(fault.Invalid)}
			}
			return client.Result{Partition: b.Partition, Offset: s.first[who][seq], Duplicate: true}
		case seq > next:
			p := problem(fault.OutOfOrderSequence)
			p.Expected = &next
			if next == 0 {
				p = problem(fault.UnknownProducer)
			}
			return client.Result{Problem: p}
		}
		s.next[b.Producer][b.Partition] = seq + 1
	}
	if value == "bad" {
		if b.Producer != "" {
			s.first[who][seq] = -1
		}
		return client.Result{Problem: problem(fault.Invalid)}
	}
	offset := int64(len(s.logs[b.Partition]))
	s.logs[b.Partition] = append(s.logs[b.Partition], value)
	if b.Producer != "" {
		s.first[who][seq] = offset
	}
	return client.Result{Partition: b.Partition, Offset: offset}
}

// layout is n open partitions of equal shares.
func layout(n int) []client.Partition {
	var all []client.Partition
	for i := range n {
		all = append(all, client.Partition{ID: uint32(i), Lo: uint64(i) << 32 / uint64(n), Hi: uint64(i+1) << 32 / uint64(n), State: "open"})
	}
	return all
}

// publish runs a producer over lines, all there at once, and returns their outcomes.
func publish(cfg Config, lines []Record) (map[int]Outcome, error) {
	outcomes := map[int]Outcome{}
	var twice error
	cfg.Outcome = func(r Record, o Outcome) {
		if _, ok := outcomes[r.Line]; ok {
			twice = errors.New("a line had two outcomes")
		}
		outcomes[r.Line] = o
	}
	cfg.Topic = "t"
	p, err := New(cfg)
	if err != nil {
		return nil, err
	}
	in := make(chan Record)
	go func() {
		defer close(in)
		for _, r := range lines {
			select {
			case in <- r:
			case <-time.After(time.Hour): // the producer has given up
				return
			}
		}
	}()
	err = p.Run(context.Background(), in)
	return outcomes, errors.Join(err, twice)
}
