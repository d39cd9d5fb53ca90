package rpc

import (
	"context"
	"errors"
	"io"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// Touch tells the leading coordinator of signs of life, at most cluster.MaxSigns.
func (r *Peer) Touch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error) {
	q := &tidewirepb.TouchRequest{Signs: make([]*tidewirepb.TouchRequest_Sign, len(signs))}
	for i := range signs {
		s := &signs[i]
		q.Signs[i] = &tidewirepb.TouchRequest_Sign{Group: s.Group[:], Member: s.Member, Epoch: uint64(s.Epoch), AgoNs: int64(s.Ago)}
	}
	a, err := call(ctx, r, fault.CoordinatorUnavailable, asks, r.coordinator.Touch, q)
	if err != nil {
		return cluster.Lost{}, err
	}
	var lost cluster.Lost
	for _, i := range a.Lost {
		if int(i) >= len(signs) {
			return cluster.Lost{}, fault.New(fault.CoordinatorUnavailable, "%s answers of sign %d among %d", r.name(), i, len(signs))
		}
		lost.Lives = append(lost.Lives, int(i))
	}
	return lost, nil
}

// Progress asks a coordinator how far groups have come on a partition, at most
// cluster.MaxProgress of them. It waits until ctx ends for the index that is asked for, or
// for MaxWait.
func (r *Peer) Progress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error) {
	ctx, end := context.WithCancel(r.outgoing(ctx))
	defer end()
	q := &tidewirepb.ProgressRequest{Partition: partitionMessage(of.Partition), After: of.After, Dying: of.Dying}
	most := len(of.Groups)
	if of.Dying {
		q.Beyond, most = of.Beyond[:], cluster.MaxProgress
	}
	for i := range of.Groups {
		q.Groups = append(q.Groups, of.Groups[i][:])
	}
	stream, err := r.coordinator.Progress(ctx, q)
	var all []cluster.GroupProgress
	for err == nil {
		var a *tidewirepb.ProgressResponse
		if a, err = stream.Recv(); err != nil {
			break
		}
		var part []cluster.GroupProgress
		if err := openDocument(a.Progress, &part); err != nil {
			return nil, err
		}
		if all = append(all, part...); len(all) > most {
			return nil, fault.New(fault.CoordinatorUnavailable, "%s answers of more groups than it was asked for", r.name())
		}
	}
	if errors.Is(err, io.EOF) {
		return all, nil
	}
	if f, _ := reply(err); f != nil {
		return nil, f
	}
	return nil, lost(fault.CoordinatorUnavailable, r.name(), err)
}
