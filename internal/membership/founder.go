package membership

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"

	"tidewire/internal/ident"
)

// Candidate is a coordinator as the decision to found a cluster sees it.
type Candidate struct {
	ID      ident.NodeID
	Empty   bool            // its folder holds no coordinator's state, and it waits for this decision
	Expect  int             // how many coordinators it was told to wait for; 0: it only joins
	Cluster ident.ClusterID // zero: none yet
	Sees    uint32          // as it told: which others wait with it
}

// Decision is what a coordinator with an empty folder does.
type Decision struct {
	Do  Step
	Why string // for the log
}

// Step of a Decision.
type Step uint8

const (
	Wait  Step = iota // for more to be known
	Found             // this node founds the cluster
	Join              // another one has founded it, or will
)

func (s Step) String() string { return [...]string{"wait", "found", "join"}[min(s, Join)] }

// Founder decides who founds a cluster: once, one node. It is the lowest id of at least
// expect coordinators with empty folders which were all told to wait for so many, and
// which all see exactly one another: each tells whom it sees, so that two that see
// different sets cannot both be sure. Where anybody has a cluster already it is joined.
//
// That nobody answers is never a reason to found: expect alone is, and one that was
// told to expect none only joins.
func Founder(self Candidate, seen []Candidate, expect int) Decision {
	for _, c := range seen {
		if c.ID != self.ID && c.Cluster != (ident.ClusterID{}) {
			return Decision{Join, fmt.Sprintf("coordinator %s has a cluster", c.ID)}
		}
	}
	switch {
	case !self.Empty:
		return Decision{Join, "this node was part of a cluster"}
	case expect <= 0:
		return Decision{Join, "this node only joins"}
	case expect == 1 && len(others(self, seen)) == 0:
		return Decision{Found, "this node is to begin alone"}
	}
	waiting := waiting(self, seen, expect)
	if n := len(waiting) + 1; n < expect {
		return Decision{Wait, fmt.Sprintf("%d of %d coordinators are there", n, expect)}
	}
	mine, lowest := Sees(self, seen, expect), self.ID
	for _, c := range waiting {
		if c.Sees != mine {
			return Decision{Wait, fmt.Sprintf("coordinator %s does not see the same others yet", c.ID)}
		}
		if bytes.Compare(c.ID[:], lowest[:]) < 0 {
			lowest = c.ID
		}
	}
	if lowest == self.ID {
		return Decision{Found, fmt.Sprintf("it has the lowest id of %d coordinators that see one another", len(waiting)+1)}
	}
	return Decision{Wait, fmt.Sprintf("coordinator %s has the lowest id and founds the cluster", lowest)}
}

// Sees is what a coordinator tells of whom it sees: the same number means the same
// coordinators, itself included.
func Sees(self Candidate, seen []Candidate, expect int) uint32 {
	ids := []ident.NodeID{self.ID}
	for _, c := range waiting(self, seen, expect) {
		ids = append(ids, c.ID)
	}
	slices.SortFunc(ids, func(a, b ident.NodeID) int { return bytes.Compare(a[:], b[:]) })
	sum := crc32.NewIEEE()
	for _, id := range ids {
		sum.Write(id[:])
	}
	return sum.Sum32()
}

// waiting are the others that wait for the same.
func waiting(self Candidate, seen []Candidate, expect int) []Candidate {
	return slices.DeleteFunc(others(self, seen), func(c Candidate) bool { return !c.Empty || c.Expect != expect })
}

func others(self Candidate, seen []Candidate) []Candidate {
	return slices.DeleteFunc(slices.Clone(seen), func(c Candidate) bool { return c.ID == self.ID })
}
