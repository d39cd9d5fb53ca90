package deliver

import (
	"context"

	"tidewire/internal/ident"
	"tidewire/internal/rpc"
)

// Source reads committed records of partitions, wherever their leader is. All
// of it may be called concurrently. A partition that is not, not yet or no
// longer served answers fault.LeaderUnavailable.
type Source interface {
	// Read gives whole committed batches; see rpc.ReadResult. Where it gives none,
	// the leader had none.
	Read(ctx context.Context, r rpc.Read) (rpc.ReadResult, error)
	// Tail is Read for who goes on with Wait: where it gives nothing, there may
	// be something at the leader that Wait will tell of.
	Tail(ctx context.Context, r rpc.Read) (rpc.ReadResult, error)
	// Bounds gives the partition's readable offsets and its leader epoch.
	Bounds(ctx context.Context, p ident.Partition) (rpc.Bounds, error)
	// OffsetAt is the first offset at or after a moment (ms since 1970); the
	// high watermark where there is none.
	OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error)
	// EpochEnd is the offset where a leader epoch ended, the high watermark for
	// the current one: what a reader of that epoch saw below it still holds.
	EpochEnd(ctx context.Context, p ident.Partition, e ident.Epoch) (ident.Offset, error)
	// Wait gives a channel that closes once the high watermark is above after,
	// or the partition is no longer served. It may close too early, never too late.
	Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error)
}
