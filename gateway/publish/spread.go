package publish

import (
	"time"

	"tidewire/gateway/topology"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

const (
	// stayRecords and stayBytes bound what joins one record at its partition. What is more
	// makes a batch worth its way by itself, and had better go to several leaders at once.
	stayRecords = 64
	stayBytes   = 64 << 10
	// stayTime likewise: a leader that takes longer is slow, or gone.
	stayTime = 50 * time.Millisecond
)

// spread is where the records of a topic go that name no place. Partitions take turns, and
// a record that comes while the one before it is under way goes where that went: there it
// waits for it, together with others, and they are one batch. So the load makes batches, and
// not the number of partitions; and what comes alone goes at once, to the next partition.
//
// Where that has something under way already there is load enough, and each record is a
// turn.
type spread struct {
	topic   *cluster.Topic // as it was when the stay began; nil: none has
	turn    uint64
	index   ident.Index // of the latest turn
	left    uint64      // batches that had left the partition's lane by then
	until   time.Time   // the stay's end
	records int         // that may join yet
	bytes   int
}

// spread picks the partition of a record that names no place.
func (p *Publisher) spread(t *cluster.Topic, bytes int) ident.Index {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spreads[t.ID]
	if s == nil {
		s = &spread{}
		p.spreads[t.ID] = s
	}
	now := time.Now()
	if s.topic != t || s.records <= 0 || s.bytes <= 0 || !now.Before(s.until) || !s.joins(p.lanes[t.Ref(s.index)]) {
		s.index = topology.Spread(t, s.turn).Index
		s.turn++
		s.begin(t, p.lanes[t.Ref(s.index)], now)
	}
	s.records--
	s.bytes -= bytes
	return s.index
}

// begin begins a stay, if nothing is under way in the lane; a lane that is nil had nothing yet.
func (s *spread) begin(t *cluster.Topic, l *lane, now time.Time) {
	s.topic, s.left, s.until, s.records, s.bytes = t, 0, now.Add(stayTime), stayRecords, stayBytes
	if l == nil {
		return
	}
	left, busy := l.progress()
	if s.left = left; busy {
		s.records = 0
	}
}

// joins says whether what the stay began with is under way, or about to be.
func (s *spread) joins(l *lane) bool {
	if l == nil {
		return true
	}
	left, busy := l.progress()
	return left == s.left || left == s.left+1 && busy
}

// progress is how many batches have left, and whether one is under way.
func (l *lane) progress() (left uint64, busy bool) {
	state := l.state.Load()
	return state >> 1, state&1 == 1
}

// leftLocked notes that a batch leaves.
func (l *lane) leftLocked() { l.state.Store((l.state.Load()>>1+1)<<1 | 1) }

// restLocked notes that none is under way.
func (l *lane) restLocked() { l.state.Store(l.state.Load() &^ 1) }
