package rpc

import (
	"context"
	"errors"
	"io"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/rpc/tidewirepb"
)

// Propose asks a coordinator for a change. The same request may be asked again, of
// any of them, when its outcome is not known.
func (r *Peer) Propose(ctx context.Context, request cluster.RequestID, change cluster.Change) (cluster.Answer, error) {
	doc, err := document(change)
	if err != nil {
		return cluster.Answer{}, err
	}
	a, err := call(ctx, r, fault.CoordinatorUnavailable, changes, r.coordinator.Propose, &tidewirepb.ProposeRequest{Request: request[:], Change: doc})
	if err != nil {
		return cluster.Answer{}, err
	}
	var answer cluster.Answer
	if err := openDocument(a.Answer, &answer); err != nil {
		return cluster.Answer{}, fault.New(fault.UnknownOutcome, "the answer of %s: %w", r.name(), err)
	}
	return answer, nil
}

// Renew asks the leading coordinator for a lease. It counts from before the call.
func (r *Peer) Renew(ctx context.Context, q cluster.Renewal) (cluster.Lease, error) {
	a, err := call(ctx, r, fault.CoordinatorUnavailable, asks, r.coordinator.Renew, &tidewirepb.RenewRequest{Life: lifeMessage(q.Life), Full: q.Full})
	if err != nil {
		return cluster.Lease{}, err
	}
	var lease cluster.Lease
	return lease, openDocument(a.Lease, &lease)
}

// Report tells the leading coordinator that a node may be dead.
func (r *Peer) Report(ctx context.Context, s cluster.Suspicion) error {
	_, err := call(ctx, r, fault.CoordinatorUnavailable, asks, r.coordinator.Report, &tidewirepb.ReportRequest{From: s.From[:], Life: lifeMessage(s.Life), Refused: s.Refused})
	return err
}

// Decided asks the leading coordinator for the index of the latest change of a snapshot
// that anybody can have had an answer to before the call.
func (r *Peer) Decided(ctx context.Context) (uint64, error) {
	a, err := call(ctx, r, fault.CoordinatorUnavailable, asks, r.coordinator.Decided, &tidewirepb.DecidedRequest{})
	if err != nil {
		return 0, err
	}
	return a.Index, nil
}

// Join asks the leading coordinator to take a node among the coordinators. It may be
// asked again at any time.
func (r *Peer) Join(ctx context.Context, j cluster.Join) (cluster.Joined, error) {
	doc, err := document(j)
	if err != nil {
		return cluster.Joined{}, err
	}
	a, err := call(ctx, r, fault.CoordinatorUnavailable, asks, r.coordinator.Join, &tidewirepb.JoinRequest{Join: doc})
	if err != nil {
		return cluster.Joined{}, err
	}
	var joined cluster.Joined
	return joined, openDocument(a.Joined, &joined)
}

// Watch follows what a coordinator holds from an index on: each is called with every
// message, until it fails, the stream ends or ctx does. The error is never nil. Whoever
// misses messages ends it by ctx: a coordinator says at least every so often that it lives.
func (r *Peer) Watch(ctx context.Context, from uint64, each func(cluster.Message) error) error {
	ctx, end := context.WithCancel(r.outgoing(ctx))
	defer end()
	stream, err := r.coordinator.Watch(ctx, &tidewirepb.WatchRequest{From: from})
	for err == nil {
		var w *tidewirepb.WatchResponse
		if w, err = stream.Recv(); err != nil {
			break
		}
		var m cluster.Message
		if err := openDocument(w.Message, &m); err != nil {
			return err
		}
		if err := each(m); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return fault.New(fault.CoordinatorUnavailable, "%s ended the watch", r.name())
	}
	if f, _ := reply(err); f != nil {
		return f
	}
	return lost(fault.CoordinatorUnavailable, r.name(), err)
}
