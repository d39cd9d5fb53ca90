package rpc

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc/metadata"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// identityKey is the metadata that every call carries, and what every stream opens with:
//
//	<format> <cluster> <caller> <broker epoch of the caller> <node that is meant>
//
// with - for a cluster or node that is not known yet. It is one word, so that it
// takes one byte in the headers of all calls of a connection but the first.
const (
	identityKey = "tidewire"
	format      = "2"
)

// identity is who calls whom.
type identity struct {
	cluster ident.ClusterID
	source  cluster.Life
	target  ident.NodeID // zero: whoever is there
}

func (i identity) String() string {
	return strings.Join([]string{format, word(i.cluster), word(i.source.Node), strconv.FormatUint(uint64(i.source.Epoch), 10), word(i.target)}, " ")
}

func word[T ~[16]byte](id T) string {
	if id == (T{}) {
		return "-"
	}
	return uuid.UUID(id).String()
}

func parseWord(s string) (uuid.UUID, bool) {
	if s == "-" {
		return uuid.Nil, true
	}
	u, err := uuid.Parse(s)
	return u, err == nil && len(s) == 36
}

func parseIdentity(s string) (identity, *fault.Error) {
	words := strings.Split(s, " ")
	if words[0] != format {
		return identity{}, fault.New(fault.LeaderUnavailable, "the caller speaks format %.20q of the calls between nodes, this node %s: they run versions that do not go together", words[0], format)
	}
	if len(words) == 5 {
		c, okC := parseWord(words[1])
		n, okN := parseWord(words[2])
		epoch, err := strconv.ParseUint(words[3], 10, 64)
		t, okT := parseWord(words[4])
		if okC && okN && okT && err == nil {
			return identity{ident.ClusterID(c), cluster.Life{Node: ident.NodeID(n), Epoch: ident.BrokerEpoch(epoch)}, ident.NodeID(t)}, nil
		}
	}
	return identity{}, fault.New(fault.LeaderUnavailable, "a call does not say who calls whom")
}

// readIdentity takes the identity out of a call's metadata.
func readIdentity(md metadata.MD) (identity, *fault.Error) {
	values := md[identityKey]
	if len(values) != 1 {
		return identity{}, fault.New(fault.LeaderUnavailable, "a call does not say who calls whom")
	}
	return parseIdentity(values[0])
}

// meant checks that a call has reached whom it is for. What is not known on either
// side is not compared.
func (i identity) meant(self ident.NodeID, c ident.ClusterID) *fault.Error {
	switch {
	case i.cluster != ident.ClusterID{} && c != ident.ClusterID{} && i.cluster != c:
		return fault.New(fault.LeaderUnavailable, "a call of cluster %s reached a node of cluster %s: one of them has an address of the other", i.cluster, c)
	case i.target != ident.NodeID{} && self != ident.NodeID{} && i.target != self:
		return fault.New(fault.LeaderUnavailable, "a call for node %s reached node %s: its address has gone to another", i.target, self)
	}
	return nil
}

// Caller says who makes the call that a backend serves. The life's epoch is 0
// where the caller has not registered yet.
func Caller(ctx context.Context) cluster.Life {
	md, _ := metadata.FromIncomingContext(ctx)
	i, err := readIdentity(md)
	if err != nil {
		return cluster.Life{}
	}
	return i.source
}
