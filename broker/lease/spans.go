package lease

import (
	"slices"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// spans is a set of offsets: ascending, apart from one another.
type spans []cluster.Span

// find is the first span that ends behind o.
func (s spans) find(o ident.Offset) int {
	i, _ := slices.BinarySearchFunc(s, o, func(p cluster.Span, o ident.Offset) int {
		if p.To <= o {
			return -1
		}
		return 1
	})
	return i
}

func (s spans) has(o ident.Offset) bool {
	i := s.find(o)
	return i < len(s) && s[i].From <= o
}

// end is the first offset from o on that is not in the set.
func (s spans) end(o ident.Offset) ident.Offset {
	if i := s.find(o); i < len(s) && s[i].From <= o {
		return s[i].To
	}
	return o
}

// add unites the set with a span.
func (s *spans) add(p cluster.Span) {
	if p.From >= p.To {
		return
	}
	i := s.find(p.From - 1) // one that ends where p begins is joined
	j := i
	for j < len(*s) && (*s)[j].From <= p.To {
		p.From, p.To = min(p.From, (*s)[j].From), max(p.To, (*s)[j].To)
		j++
	}
	*s = slices.Replace(*s, i, j, p)
}

// cut forgets what is below o.
func (s *spans) cut(o ident.Offset) {
	i := s.find(o)
	*s = slices.Delete(*s, 0, i)
	if len(*s) > 0 {
		(*s)[0].From = max((*s)[0].From, o)
	}
}

// within counts the offsets of the set from a up to b.
func (s spans) within(a, b ident.Offset) (n int64) {
	for _, p := range s[s.find(a):] {
		if p.From >= b {
			break
		}
		n += int64(min(p.To, b) - max(p.From, a))
	}
	return n
}

// together makes spans of ascending offsets.
func together(offsets []ident.Offset) (s []cluster.Span) {
	for _, o := range offsets {
		if n := len(s); n > 0 && s[n-1].To == o {
			s[n-1].To++
		} else {
			s = append(s, cluster.Span{From: o, To: o + 1})
		}
	}
	return s
}

func one(o ident.Offset) cluster.Span { return cluster.Span{From: o, To: o + 1} }

// remove takes a span out of the set.
func (s *spans) remove(p cluster.Span) {
	var rest spans
	for _, q := range *s {
		if q.To <= p.From || q.From >= p.To {
			rest = append(rest, q)
			continue
		}
		if q.From < p.From {
			rest = append(rest, cluster.Span{From: q.From, To: p.From})
		}
		if q.To > p.To {
			rest = append(rest, cluster.Span{From: p.To, To: q.To})
		}
	}
	*s = rest
}
