package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/rpc/tidewirepb"
)

func (c coordinatorService) backend() (CoordinatorBackend, error) {
	if b := c.s.coordinator.Load(); b != nil {
		return *b, nil
	}
	return nil, absent(fault.CoordinatorUnavailable, "coordinator")
}

func (c coordinatorService) Propose(ctx context.Context, r *tidewirepb.ProposeRequest) (*tidewirepb.ProposeResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	request, err := id16[cluster.RequestID](r.Request)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	change, err := openChange(r.Change)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	answer, err := b.ServePropose(ctx, request, change)
	if err != nil {
		return nil, statusOf(err)
	}
	doc, err := document(answer)
	return &tidewirepb.ProposeResponse{Answer: doc}, statusOf(err)
}

func (c coordinatorService) Renew(ctx context.Context, r *tidewirepb.RenewRequest) (*tidewirepb.RenewResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	life, err := lifeOf(r.Life)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	lease, err := b.ServeRenew(ctx, cluster.Renewal{Life: life, Full: r.Full})
	if err != nil {
		return nil, statusOf(err)
	}
	doc, err := document(lease)
	return &tidewirepb.RenewResponse{Lease: doc}, statusOf(err)
}

func (c coordinatorService) Report(ctx context.Context, r *tidewirepb.ReportRequest) (*tidewirepb.ReportResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	from, err := id16[ident.NodeID](r.From)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	life, err := lifeOf(r.Life)
	if err != nil {
		return nil, refuse(fault.As(err))
	}
	return &tidewirepb.ReportResponse{}, statusOf(b.ServeReport(ctx, cluster.Suspicion{From: from, Life: life, Refused: r.Refused}))
}

func (c coordinatorService) Decided(ctx context.Context, _ *tidewirepb.DecidedRequest) (*tidewirepb.DecidedResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	index, err := b.ServeDecided(ctx)
	return &tidewirepb.DecidedResponse{Index: index}, statusOf(err)
}

func (c coordinatorService) Join(ctx context.Context, r *tidewirepb.JoinRequest) (*tidewirepb.JoinResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	var join cluster.Join
	if err := openDocument(r.Join, &join); err != nil {
		return nil, refuse(fault.As(err))
	}
	joined, err := b.ServeJoin(ctx, join)
	if err != nil {
		return nil, statusOf(err)
	}
	doc, err := document(joined)
	return &tidewirepb.JoinResponse{Joined: doc}, statusOf(err)
}

// watchMoment is how long a watch has to end by itself when the server stops: it
// waits for nobody.
const watchMoment = time.Second

func (c coordinatorService) Watch(r *tidewirepb.WatchRequest, stream grpc.ServerStreamingServer[tidewirepb.WatchResponse]) error {
	b, err := c.backend()
	if err != nil {
		return err
	}
	return statusOf(c.s.streaming(stream.Context(), watchMoment, nil, func(ctx context.Context) error {
		return b.ServeWatch(ctx, r.From, func(m cluster.Message) error {
			doc, err := document(m)
			if err != nil {
				return err
			}
			return stream.Send(&tidewirepb.WatchResponse{Message: doc})
		})
	}))
}
