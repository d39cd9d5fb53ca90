package link

import (
	"maps"
	"sync"
	"time"

	"tidewire/internal/ident"
)

// unsaidFor is how long what was pushed counts as on its way to the disk. Of a partition that
// is taken from this node meanwhile nothing more is said.
const unsaidFor = time.Second

// unsaid is the partitions of which something was pushed since their leader heard last what
// is on the disk here. How many there are tells load from a lone record.
type unsaid struct {
	mu     sync.Mutex
	of     map[ident.Partition]pushed
	looked time.Time // for those that are over
}

type pushed struct {
	by *upstream
	at time.Time
}

func (s *unsaid) pushed(p ident.Partition, by *upstream, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[p] = pushed{by, now}
	if now.Sub(s.looked) >= unsaidFor {
		s.looked = now
		maps.DeleteFunc(s.of, func(_ ident.Partition, u pushed) bool { return now.Sub(u.at) >= unsaidFor })
	}
}

func (s *unsaid) said(p ident.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, p)
}

func (s *unsaid) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of)
}

// forget lets go of what came over a stream that has ended.
func (s *unsaid) forget(u *upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ ident.Partition, p pushed) bool { return p.by == u })
}
