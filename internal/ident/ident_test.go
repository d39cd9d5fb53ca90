package ident

import (
	"errors"
	"strings"
	"testing"
)

// The vectors of e2e/conformance cover more; these are from the algorithm's
// reference implementation.
func TestKeyHashIsMurmur3(t *testing.T) {
	for key, want := range map[string]uint32{
		"":             0,
		"a":            0x3c2569b2,
		"hello":        0x248bfa47,
		"hello, world": 0x149bbb7f,
		"The quick brown fox jumps over the lazy dog": 0x2e4ff723,
	} {
		if got := KeyHash(key); got != want {
			t.Errorf("KeyHash(%q) = %#x, want %#x", key, got, want)
		}
		if got := KeyHash([]byte(key)); got != want {
			t.Errorf("KeyHash of the bytes %q = %#x, want %#x", key, got, want)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for _, good := range []string{"a", "0", "orders.eu-1_x", strings.Repeat("x", MaxNameBytes)} {
		if err := CheckTopicName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".a", "-a", "a/b", "ä", "a b", strings.Repeat("x", MaxNameBytes+1)} {
		if err := CheckTopicName(bad); err == nil || errors.Is(err, ErrReserved) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, reserved := range []string{"_alerts", "repartition", "subscribe"} {
		if err := CheckTopicName(reserved); !errors.Is(err, ErrReserved) {
			t.Errorf("%q: %v", reserved, err)
		}
	}
}

func TestTheClustersOwnProducers(t *testing.T) {
	seen := map[ProducerID]bool{}
	for g := range 20 {
		for p := range 20 {
			id := SystemProducer(GroupID{byte(g)}, Index(p))
			if seen[id] || !id.System() || id != SystemProducer(GroupID{byte(g)}, Index(p)) {
				t.Fatalf("%v of group %d, partition %d", id, g, p)
			}
			seen[id] = true
			if _, err := ParseProducerID(id.String()); err == nil {
				t.Fatalf("a client may be %v", id)
			}
		}
	}
	if id, err := ParseProducerID("0193b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f"); err != nil || id.System() {
		t.Error(err)
	}
}

func TestGroupAndMemberNames(t *testing.T) {
	for _, good := range []string{"a", "repartition", strings.Repeat("x", MaxNameBytes)} {
		if err := CheckGroupName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".a", "a~", strings.Repeat("x", MaxNameBytes+1)} {
		if err := CheckGroupName(bad); err == nil || errors.Is(err, ErrReserved) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, reserved := range []string{"_own", "register", "node"} {
		if err := CheckGroupName(reserved); !errors.Is(err, ErrReserved) {
			t.Errorf("%q: %v", reserved, err)
		}
	}
	for _, good := range []string{"~", "node", "-._~Az09", strings.Repeat("m", MaxMemberBytes)} {
		if err := CheckMember(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a b", "ä", "a/b", strings.Repeat("m", MaxMemberBytes+1)} {
		if err := CheckMember(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
