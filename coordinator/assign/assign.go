package assign

import (
	"cmp"
	"slices"
)

// Partition is who owns a partition and who is to own it next; empty: nobody. One who
// is no member counts as nobody.
type Partition struct{ Owner, Next string }

// Spread says who is to own each partition; nobody, where there is no member. Members
// are in ascending order, each once.
func Spread(of []Partition, members []string) []string {
	s := spread{of: of, members: members, to: make([]string, len(of)), place: make(map[string]int, len(members)), has: make([]int, len(members))}
	if len(members) == 0 {
		return s.to
	}
	for i, m := range members {
		s.place[m] = i
	}
	s.share()
	s.keep()
	s.give()
	return s.to
}

type spread struct {
	of      []Partition
	members []string
	to      []string
	place   map[string]int // of a member; only ever asked, never gone through
	has     []int          // partitions of each member, so far
	quota   []int          // what each may have
}

// share gives everybody the same number of partitions, and one more first to those who
// own as many: so the fewest have to give one up. Among equals it goes to whom the most
// were to go to before, so that nobody's mind changes on the way there.
func (s *spread) share() {
	owns, due := make([]int, len(s.members)), make([]int, len(s.members))
	for _, p := range s.of {
		if i, ok := s.place[p.Owner]; ok {
			owns[i]++
		}
		if i, ok := s.place[cmp.Or(p.Next, p.Owner)]; ok {
			due[i]++
		}
	}
	each := len(s.of) / len(s.members)
	order := make([]int, len(s.members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		more := func(i int) int { return max(min(owns[i]-each, 1), 0) } // 1: owns more than its share
		return cmp.Or(more(b)-more(a), due[b]-due[a])
	})
	s.quota = make([]int, len(s.members))
	for rank, i := range order {
		s.quota[i] = each
		if rank < len(s.of)%len(s.members) {
			s.quota[i]++
		}
	}
}

// keep leaves partitions with their owners as far as these may have them. What an owner
// is to give up already goes before the rest, and of both the last ones.
func (s *spread) keep() {
	for _, pending := range []bool{false, true} {
		for i, p := range s.of {
			if (p.Next != "" && p.Next != p.Owner) == pending {
				s.offer(i, p.Owner)
			}
		}
	}
}

// give hands out what nobody has: to whom it was to go, else to who has the least.
func (s *spread) give() {
	for i, p := range s.of {
		if s.to[i] == "" {
			s.offer(i, p.Next)
		}
	}
	for i := range s.of {
		if s.to[i] != "" {
			continue
		}
		least := -1
		for m := range s.members {
			if s.has[m] < s.quota[m] && (least < 0 || s.has[m] < s.has[least]) {
				least = m
			}
		}
		s.offer(i, s.members[least]) // there is one: the quotas add up to the partitions
	}
}

// offer gives a partition to a member who may have one more.
func (s *spread) offer(i int, member string) {
	if m, ok := s.place[member]; ok && s.has[m] < s.quota[m] {
		s.to[i] = member
		s.has[m]++
	}
}
