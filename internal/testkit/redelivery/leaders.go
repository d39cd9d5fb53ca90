package redelivery

import "sync"

// Leaders finds out when partitions got other leaders, from what nodes say of them. It is
// safe for concurrent use.
type Leaders struct {
	mu      sync.Mutex
	latest  map[view]sight
	changes map[change]Span
}

// view is one node's of a partition, and sight is what the node said last.
type view struct {
	node      string
	partition int
}

type sight struct {
	epoch int64
	asked Span
}

// change is that of a partition's leader to one of an epoch.
type change struct {
	partition int
	epoch     int64
}

// See takes in that a node named a leader epoch of a partition in a call. Calls of one node
// follow one another.
func (l *Leaders) See(node string, partition int, epoch int64, call Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		l.latest, l.changes = map[view]sight{}, map[change]Span{}
	}
	v := view{node, partition}
	was, ok := l.latest[v]
	l.latest[v] = sight{epoch, call}
	if !ok || epoch <= was.epoch {
		return
	}
	// Nodes hear of it at different times: it lies between the earliest last sight of the
	// old leader and the earliest first one of the new one.
	c, s := change{partition, epoch}, Span{was.asked.From, call.To}
	if known, ok := l.changes[c]; ok {
		if known.From.Before(s.From) {
			s.From = known.From
		}
		if known.To.Before(s.To) {
			s.To = known.To
		}
	}
	l.changes[c] = s
}

// Lose forgets what a node said that does not answer: others see what changes meanwhile.
func (l *Leaders) Lose(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v := range l.latest {
		if v.node == node {
			delete(l.latest, v)
		}
	}
}

// Changes are those that were seen.
func (l *Leaders) Changes() (all []Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, s := range l.changes {
		all = append(all, Fault{Kind: LeaderChanged, Partition: c.partition, Span: s})
	}
	return all
}
