package groups

import (
	"context"
	"sync"
	"time"

	"tidewire/broker/lease"
	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
)

const (
	// letterPause is how long it waits after a letter that could not be appended, at first;
	// it doubles up to maxLetterPause. One that the topic cannot take as it is waits for
	// slowLetterPause: somebody has to act.
	letterPause     = 50 * time.Millisecond
	maxLetterPause  = 5 * time.Second
	slowLetterPause = 30 * time.Second
	// letterLimit bounds one try.
	letterLimit = 10 * time.Second
	// mostTries are under way at once, and mostTriesOf of them for one unit: those that
	// hang do not hold up those of others.
	mostTries   = 256
	mostTriesOf = 32
)

// undertaker brings dead letters to their topics. Each has a time of its own.
type undertaker struct {
	g      *Groups
	times  schedule[*letter]
	slots  chan struct{} // tries under way
	making chan struct{} // one at a time makes a topic

	mu      sync.Mutex
	letters map[letterKey]*letter
	tries   map[*unit]int       // under way
	told    map[*unit]time.Time // when somebody was last told that he has to act
}

type letterKey struct {
	of     *lease.Machine
	offset ident.Offset
}

// letter is a record on its way to a dead-letter topic. Its intent is committed.
type letter struct {
	cluster.Intent
	unit  *unit
	of    *lease.Machine
	due   due[*letter]
	pause time.Duration
}

func newUndertaker(g *Groups) undertaker {
	return undertaker{
		g: g, times: newSchedule[*letter](), slots: make(chan struct{}, mostTries), making: make(chan struct{}, 1),
		letters: map[letterKey]*letter{}, tries: map[*unit]int{}, told: map[*unit]time.Time{},
	}
}

// add takes letters of a unit's machine, those that are new.
func (t *undertaker) add(u *unit, of *lease.Machine, all []cluster.Intent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range all {
		key := letterKey{of, i.Offset}
		if t.letters[key] != nil {
			continue
		}
		l := &letter{Intent: i, unit: u, of: of, pause: letterPause}
		l.due.of = l
		t.letters[key] = l
		t.times.set(&l.due, time.Now())
	}
}

func (t *undertaker) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.letters)
}

func (t *undertaker) run(ctx context.Context) error {
	var tries sync.WaitGroup
	defer tries.Wait()
	return t.times.run(ctx, func(l *letter) {
		if !t.begin(l) {
			return
		}
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		tries.Go(func() {
			t.finish(l, t.try(ctx, l))
			<-t.slots
		})
	})
}

// begin says whether a letter is to be tried now.
func (t *undertaker) begin(l *letter) bool {
	gone := l.unit.machine() != l.of // the next one begins with what is committed
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case gone:
		delete(t.letters, letterKey{l.of, l.Offset})
		return false
	case t.tries[l.unit] >= mostTriesOf:
		t.times.set(&l.due, time.Now().Add(letterPause))
		return false
	}
	t.tries[l.unit]++
	return true
}

// finish ends a try.
func (t *undertaker) finish(l *letter, err error) {
	t.mu.Lock()
	if t.tries[l.unit]--; t.tries[l.unit] == 0 {
		delete(t.tries, l.unit)
	}
	if err == nil {
		delete(t.letters, letterKey{l.of, l.Offset})
	} else {
		pause := l.pause
		l.pause = min(2*l.pause, maxLetterPause)
		if slow(err) {
			pause = slowLetterPause
		}
		t.times.set(&l.due, time.Now().Add(pause))
	}
	t.mu.Unlock()
	if err == nil {
		t.g.metrics.dead.Inc()
		_ = l.unit.with(func(m *lease.Machine, _ time.Time) { // of one that is over the next one repeats it
			if m == l.of {
				m.Published(l.Offset)
			}
		})
		return
	}
	t.g.metrics.undead.Inc()
	if slow(err) && t.tells(l.unit) {
		t.g.cfg.Logger.Error("a dead record cannot be appended to its dead-letter topic; it is tried again, and so are others of its group", "group", l.unit.name,
			"topic_id", l.unit.post.ref.Topic, "partition", l.unit.post.ref.Index, "offset", l.Offset, "err", err)
	}
}

// tells says that it is time to tell again of a unit's letters that cannot be appended.
func (t *undertaker) tells(u *unit) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for other, at := range t.told {
		if now.Sub(at) >= slowLetterPause {
			delete(t.told, other)
		}
	}
	if _, ok := t.told[u]; ok {
		return false
	}
	t.told[u] = now
	return true
}

// slow says that trying again soon does not help.
func slow(err error) bool {
	f := fault.As(err)
	return f.Lasting || !f.Kind.Retryable() && f.Kind != fault.TopicNotFound && f.Kind != fault.PartitionNotFound && f.Kind != fault.Fenced
}

// try appends a letter to its topic.
func (t *undertaker) try(ctx context.Context, l *letter) error {
	ctx, cancel := context.WithTimeout(ctx, letterLimit)
	defer cancel()
	u := l.unit
	u.mu.Lock()
	group := u.group
	u.mu.Unlock()
	source := t.g.known().ByID[u.post.ref.Topic]
	if source == nil {
		return fault.New(fault.TopicNotFound, "the topic was deleted")
	}
	topic, err := t.topic(ctx, group.Settings.DeadLetter, source)
	if err != nil {
		return err
	}
	r, err := exhume(ctx, u.post, l.Offset)
	if err != nil {
		return err
	}
	part, err := placeOf(topic, r, l.Intent.Partition)
	if err != nil {
		return err
	}
	address(r, source.Name, group, u.post.ref.Index, &l.Intent)
	var b record.Builder
	b.Add(r)
	answer := make(chan rpc.Appended, 1)
	t.g.cfg.Network.Append(part.Leader, rpc.Append{Partition: topic.Ref(part.Index), Batch: b.Seal(), Acks: rpc.AcksAll}, func(a rpc.Appended) { answer <- a })
	select {
	case a := <-answer:
		if a.Err == nil {
			a.Err = a.Records[0].Err
		}
		return a.Err
	case <-ctx.Done():
		return fault.New(fault.UnknownOutcome, "topic %q did not answer in time", topic.Name)
	}
}

// topic finds the dead-letter topic, or makes it.
func (t *undertaker) topic(ctx context.Context, name string, source *cluster.Topic) (*cluster.Topic, error) {
	if topic, ok := t.g.known().Topic(name); ok {
		return topic, nil
	}
	if err := ident.CheckTopicName(name); err != nil {
		return nil, fault.New(fault.Invalid, "the dead-letter topic %q cannot be made: %w", name, err)
	}
	select {
	case t.making <- struct{}{}:
		defer func() { <-t.making }()
	case <-ctx.Done():
		return nil, fault.New(fault.LeaderUnavailable, "another dead-letter topic is being made")
	}
	if topic, ok := t.g.known().Topic(name); ok {
		return topic, nil
	}
	answer, err := t.create(ctx, name, source)
	if err != nil {
		return nil, err
	}
	if err := t.g.reached(ctx, answer.Index); err != nil {
		return nil, err
	}
	if topic, ok := t.g.known().Topic(name); ok {
		return topic, nil
	}
	return nil, fault.New(fault.TopicNotFound, "the dead-letter topic %q was deleted", name)
}
