package seats

import (
	"cmp"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/fault"
)

// Seats bounds the long-lived connections of a node, over all transports: how
// many there are in all and from one address, and how many come in a second. 0 is
// no bound, and none depends on another.
type Seats struct {
	max, maxPerIP int
	refused       *prometheus.CounterVec // reason

	mu     sync.Mutex
	taken  int
	moves  uint64 // connections that have come or gone
	byHost map[string]int
	closed bool

	arrivals arrivals
	parting  *Parting // once the node stops
}

// New makes the bounds. refused counts by reason; nil: its own, unregistered.
func New(most, mostPerIP, mostPerSecond int, refused *prometheus.CounterVec) *Seats {
	refused = cmp.Or(refused, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused"}, []string{"reason"}))
	for _, reason := range []string{"max_connection_rate", "max_connections", "max_connections_per_ip", "draining"} {
		refused.WithLabelValues(reason) // there from the start, so that a rate over them is right
	}
	return &Seats{max: most, maxPerIP: mostPerIP, refused: refused, byHost: map[string]int{}, arrivals: newArrivals(mostPerSecond)}
}

// Admit is asked first, before anything is done for a connection that comes.
func (s *Seats) Admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.arrivals.take(time.Now())
	if wait == 0 {
		return nil
	}
	s.refused.WithLabelValues("max_connection_rate").Inc()
	return fault.New(fault.Limit, "more connections come than the node takes in a second (max_connection_rate); come back after Retry-After, or connect to another").
		With("limit", "max_connection_rate").After(wait).Overload()
}

// Take seats a connection until release is called, once.
func (s *Seats) Take(r *http.Request) (release func(), err error) {
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = r.RemoteAddr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		s.refused.WithLabelValues("draining").Inc()
		return nil, fault.New(fault.Draining, "the node is shutting down; connect to another, or again in a moment")
	case s.max > 0 && s.taken >= s.max:
		s.refused.WithLabelValues("max_connections").Inc()
		return nil, fault.New(fault.Limit, "the node holds its %d connections (max_connections); connect to another, or again later", s.max).
			With("limit", "max_connections").Overload()
	case s.maxPerIP > 0 && s.byHost[host] >= s.maxPerIP:
		s.refused.WithLabelValues("max_connections_per_ip").Inc()
		return nil, fault.New(fault.Limit, "the address %s holds its %d connections (max_connections_per_ip)", host, s.maxPerIP).With("limit", "max_connections_per_ip")
	}
	s.taken++
	s.moves++
	s.byHost[host]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
		s.moves++
		if s.byHost[host]--; s.byHost[host] == 0 {
			delete(s.byHost, host)
		}
	}, nil
}

// Taken is the number of connections that are seated now.
func (s *Seats) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Moves is the number of connections that have come or gone since the start.
func (s *Seats) Moves() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves
}

// Close refuses every further connection: the node is draining.
func (s *Seats) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
