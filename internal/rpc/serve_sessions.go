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

func (c coordinatorService) Touch(ctx context.Context, r *tidewirepb.TouchRequest) (*tidewirepb.TouchResponse, error) {
	b, err := c.backend()
	if err != nil {
		return nil, err
	}
	if len(r.Signs) > cluster.MaxSigns {
		return nil, refuse(fault.New(fault.Invalid, "%d signs of life; one call takes %d", len(r.Signs), cluster.MaxSigns))
	}
	signs := make([]cluster.SignOfLife, len(r.Signs))
	for i, s := range r.Signs {
		group, err := id16[ident.GroupID](s.GetGroup())
		if err != nil {
			return nil, refuse(fault.As(err))
		}
		signs[i] = cluster.SignOfLife{
			MemberLife: cluster.MemberLife{Group: group, Member: s.Member, Epoch: ident.MemberEpoch(s.Epoch)}, Ago: time.Duration(s.AgoNs),
		}
	}
	got, err := b.ServeTouch(ctx, signs)
	if err != nil {
		return nil, statusOf(err)
	}
	a := &tidewirepb.TouchResponse{}
	for _, i := range got.Lives {
		a.Lost = append(a.Lost, uint32(i))
	}
	return a, nil
}

// progressEachBytes is about how much goes into one message of an answer with the
// progress of groups. Each is a few dozen bytes as a rule, and may be a few megabytes.
const progressEachBytes = 128 << 10

// progressBytes is at most how long a group's progress is in JSON.
func progressBytes(p *cluster.GroupProgress) int {
	n := 300 + 64*(len(p.Done)+len(p.Counts)+len(p.Dead)+len(p.Skipped)+len(p.Expired))
	for i := range p.Intents {
		n += 150 + 6*len(p.Intents[i].Reason)
	}
	return n
}

func (c coordinatorService) Progress(r *tidewirepb.ProgressRequest, stream grpc.ServerStreamingServer[tidewirepb.ProgressResponse]) error {
	b, err := c.backend()
	if err != nil {
		return err
	}
	if len(r.Groups) > cluster.MaxProgress {
		return refuse(fault.New(fault.Invalid, "the progress of %d groups; one call takes %d", len(r.Groups), cluster.MaxProgress))
	}
	of := cluster.ProgressOf{After: r.After, Dying: r.Dying}
	if len(r.Beyond) > 0 {
		if of.Beyond, err = id16[ident.GroupID](r.Beyond); err != nil {
			return refuse(fault.As(err))
		}
	}
	if of.Partition, err = partitionOf(r.Partition); err != nil {
		return refuse(fault.As(err))
	}
	for _, g := range r.Groups {
		id, err := id16[ident.GroupID](g)
		if err != nil {
			return refuse(fault.As(err))
		}
		of.Groups = append(of.Groups, id)
	}
	return statusOf(c.s.streaming(stream.Context(), watchMoment, nil, func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, MaxWait)
		defer cancel()
		all, err := b.ServeProgress(limited, of)
		for len(all) > 0 && err == nil {
			n := 1
			for bytes := progressBytes(&all[0]); n < len(all) && bytes < progressEachBytes; n++ {
				bytes += progressBytes(&all[n])
			}
			var doc *tidewirepb.Document
			if doc, err = document(all[:n]); err == nil {
				err = stream.Send(&tidewirepb.ProgressResponse{Progress: doc})
			}
			all = all[n:]
		}
		return err
	}))
}
