package census

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tidewire/gateway/connection"
	"tidewire/internal/ident"
)

// Figures are what a node says of itself at one moment.
type Figures struct {
	ID          ident.NodeID
	Started     time.Time
	Connections int // WebSockets and streams of events
	Disk        Disk
	Rates       Rates
	// CoordinatorLeader leads the coordinators, as far as this node knows; zero: nobody.
	CoordinatorLeader ident.NodeID
	// Suspects are the nodes that may be dead, as the leading coordinator has heard;
	// others say nothing.
	Suspects []ident.NodeID `json:",omitempty"`
	// Corrupt are the partitions whose replica on this node is damaged.
	Corrupt []ident.Partition `json:",omitempty"`
}

// Disk of the data folder, in bytes.
type Disk struct {
	Used, Free int64
	// Least is the free space below which the node takes no records; 0: unknown.
	Least int64
}

// Rates over the last seconds, each a second.
type Rates struct{ InRecords, InBytes, OutMessages, OutBytes float64 }

// Backend is what a node answers others who ask about it: rpc.NodeBackend.
type Backend struct {
	Own     func() Figures
	Clients *connection.Set
	// Away sends the node's clients to others, or with cancel stops doing so.
	Away func(cancel bool)
}

// Figures of this node.
func (b *Backend) Figures(context.Context) ([]byte, error) { return json.Marshal(b.Own()) }

// Connections of this node; of one principal, or of all.
func (b *Backend) Connections(_ context.Context, principal string) ([]byte, error) {
	var of *string
	if principal != "" {
		of = &principal
	}
	return json.Marshal(b.Clients.List(of))
}

// Disconnect closes a client's connection; false: there is none of that name.
func (b *Backend) Disconnect(_ context.Context, id string) (bool, error) {
	return b.Clients.Dismiss(id), nil
}

// Depart sends the node's clients away.
func (b *Backend) Depart(_ context.Context, cancel bool) error {
	b.Away(cancel)
	return nil
}

// said reads what another node says of itself.
func said(id ident.NodeID, b []byte, err error) (f Figures, _ error) {
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("figures of node %s: %w", id, err)
	}
	f.ID = id // whatever it calls itself
	return f, nil
}
