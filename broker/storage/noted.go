package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"tidewire/internal/ident"
)

// What is known to be damaged is noted beside the folder's id. A node that dies before it
// could tell anybody would not know it in its next life, and would say again that it holds
// all there is. So a start looks at the places that were noted before it goes on.

const (
	metaDamaged = "damaged"
	maxNoted    = 1000 // places; of more the node has to find the rest again
)

// NoteDamage keeps what Damaged says for the next life. It is durable when the call
// returns, which costs nothing where nothing has changed.
func (s *Store) NoteDamage() error {
	logs := s.allLogs()
	slices.SortFunc(logs, func(a, b *Log) int { return comparePartitions(a.part, b.part) })
	var places []string
	for _, l := range logs {
		l.mu.Lock()
		d := l.damage
		l.mu.Unlock()
		if d != nil && len(places) < maxNoted {
			places = append(places, fmt.Sprintf("%s@%d", l.part, d.Offset))
		}
	}
	noted := strings.Join(places, " ")
	if before, _ := s.GetMeta(metaDamaged); before == noted || s.readOnly != nil {
		return nil
	}
	return s.PutMeta(metaDamaged, noted)
}

// lookAgain reads the segments in which a former life found damage. What it finds there is
// known as if it had been found now; what has gone since is forgotten.
func (s *Store) lookAgain() {
	noted, _ := s.GetMeta(metaDamaged)
	for _, place := range strings.Fields(noted) {
		p, at, err := parsePlace(place)
		if err != nil {
			s.log.Warn("what was noted of damage cannot be read; the scrub finds it again", "noted", place, "err", err)
			continue
		}
		s.mu.Lock()
		l := s.logs[p]
		s.mu.Unlock()
		if l == nil {
			continue
		}
		l.mu.Lock()
		i := l.find(at)
		l.mu.Unlock()
		if i >= 0 {
			l.scrubSegment(context.Background(), i, 0)
		}
	}
}

func parsePlace(text string) (p ident.Partition, at ident.Offset, err error) {
	topic, rest, _ := strings.Cut(text, "/")
	id, err := uuid.Parse(topic)
	if err != nil {
		return p, 0, err
	}
	p.Topic = ident.TopicID(id)
	_, err = fmt.Sscanf(rest, "%d@%d", &p.Index, &at)
	return p, at, err
}
