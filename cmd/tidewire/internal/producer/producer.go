package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/internal/ident"
)

// Sender sends one batch and returns a result a line; after an error the
// results that came stand.
type Sender interface {
	Publish(ctx context.Context, b client.Batch) ([]client.Result, error)
}

// Config of a Producer. Sender, Topic and Layout are needed.
type Config struct {
	Sender Sender
	Topic  string
	Layout []client.Partition // of the topic
	Acks   string             // all, leader or none; all
	// Timeout is how long a batch is tried without any progress; 30 s.
	Timeout time.Duration
	// RequestTimeout is how long the server may take for one try; 5 s.
	RequestTimeout time.Duration
	BatchRecords   int           // at most MaxBatchRecords; 500
	Linger         time.Duration // how long a line waits for company; 50 ms
	// Outcome hears of each line once. It is called by one goroutine at a time.
	Outcome func(Record, Outcome)
	// Retry hears why a batch is tried again; may be nil.
	Retry func(partition uint32, cause error, wait time.Duration)
}

const (
	// MaxBatchRecords is what one producer may have in flight for a partition
	// while the servers still know a repeat from a new record.
	MaxBatchRecords = 1000
	maxBatchBytes   = 256 << 10 // a longer line goes alone
	maxInFlight     = 16        // batches of all partitions together
)

// Record is one line to publish.
type Record struct {
	Source    string // where it came from, for reports
	Line      int
	Key       string  // empty: none
	Partition *uint32 // nil: by the key, or spread
	JSON      []byte  // as a line of ndjson, its end included
}

// Fate is what became of a line.
type Fate uint8

const (
	Kept      Fate = iota
	Taken          // in, with acks none: nobody says whether it is kept
	Duplicate      // kept by an earlier try
	Refused        // for what it is; Outcome.Err says why
	Unknown        // it may have been kept
	Unsent         // certainly not kept: the producer gave up before
)

// Outcome of one line.
type Outcome struct {
	Fate      Fate
	Partition uint32
	Offset    int64 // -1: not said
	Err       error
}

// Producer publishes lines. It is used once.
type Producer struct {
	cfg      Config
	lanes    []*lane // by Lo
	byID     map[uint32]*lane
	sticky   int // the lane that lines without key go to until its batch is full
	mu       sync.Mutex
	inFlight chan struct{}
}

// New prepares a producer; it sends nothing.
func New(cfg Config) (*Producer, error) {
	cfg.Acks = cmp.Or(cfg.Acks, "all")
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 5*time.Second)
	cfg.BatchRecords = min(cmp.Or(cfg.BatchRecords, 500), MaxBatchRecords)
	cfg.Linger = cmp.Or(cfg.Linger, 50*time.Millisecond)
	p := &Producer{cfg: cfg, byID: map[uint32]*lane{}, inFlight: make(chan struct{}, maxInFlight)}
	id := uuid.NewString()
	for _, part := range cfg.Layout {
		if part.State != "open" {
			continue
		}
		l := &lane{
			p: p, partition: part.ID, keys: ident.HashRange{Lo: part.Lo, Hi: part.Hi}, id: id,
			batches: make(chan []Record), // unbuffered: one batch under way, one being gathered
		}
		p.lanes = append(p.lanes, l)
		p.byID[part.ID] = l
	}
	if len(p.lanes) == 0 {
		return nil, fmt.Errorf("topic %s has no open partition", cfg.Topic)
	}
	slices.SortFunc(p.lanes, func(a, b *lane) int { return cmp.Compare(a.keys.Lo, b.keys.Lo) })
	return p, nil
}

// Run publishes what comes from in until that is closed or ctx ends; what was
// taken by then is still sent. It returns when every line taken has its outcome,
// with the error that made it give up, if any.
func (p *Producer) Run(ctx context.Context, in <-chan Record) error {
	// A lane that gives up ends the reading; the other lanes finish what they have.
	reading, stop := context.WithCancel(ctx)
	defer stop()
	sending := context.WithoutCancel(ctx)
	var g errgroup.Group
	for _, l := range p.lanes {
		g.Go(func() error { return l.run(sending, stop) })
	}
	g.Go(func() error {
		p.route(reading, in)
		return nil
	})
	return g.Wait()
}

// route gathers lines into batches and hands those to the lanes. A full batch
// waits for its lane: that is the bound of what is held in memory. In the end it
// hands over the rest and closes the lanes.
func (p *Producer) route(ctx context.Context, in <-chan Record) {
	defer func() {
		for _, l := range p.lanes {
			l.hand()
			close(l.batches)
		}
	}()
	linger := time.NewTimer(p.cfg.Linger)
	defer linger.Stop()
	for {
		select {
		case r, ok := <-in:
			if !ok {
				return
			}
			p.add(r)
		case <-linger.C:
			for _, l := range p.lanes {
				l.offer()
			}
			linger.Reset(p.cfg.Linger)
		case <-ctx.Done():
			return
		}
	}
}

func (p *Producer) add(r Record) {
	l, err := p.laneOf(r)
	if err != nil {
		p.report(r, Outcome{Fate: Refused, Offset: -1, Err: err})
		return
	}
	if len(l.pending) > 0 && l.bytes+len(r.JSON) > maxBatchBytes {
		l.hand()
	}
	l.pending, l.bytes = append(l.pending, r), l.bytes+len(r.JSON)
	if len(l.pending) >= p.cfg.BatchRecords {
		l.hand()
		p.sticky = (p.sticky + 1) % len(p.lanes)
	}
}

func (p *Producer) laneOf(r Record) (*lane, error) {
	switch {
	case r.Partition != nil:
		l, ok := p.byID[*r.Partition]
		if !ok {
			return nil, fmt.Errorf("topic %s has no open partition %d", p.cfg.Topic, *r.Partition)
		}
		return l, nil
	case r.Key != "":
		h := ident.KeyHash(r.Key)
		i, _ := slices.BinarySearchFunc(p.lanes, uint64(h), func(l *lane, h uint64) int {
			switch {
			case l.keys.Hi <= h:
				return -1
			case l.keys.Lo > h:
				return 1
			}
			return 0
		})
		if i == len(p.lanes) || !p.lanes[i].keys.Contains(h) {
			return nil, errors.New("no open partition owns the key's hash")
		}
		return p.lanes[i], nil
	}
	return p.lanes[p.sticky], nil
}

func (p *Producer) report(r Record, o Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Outcome(r, o)
}
