package rpc

import (
	"context"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/inbox"
)

// CoordinatorBackend is what a coordinator answers other nodes. One that does not
// lead answers what only the leader can with fault.CoordinatorUnavailable and
// cluster.FieldLeader. The caller is Caller(ctx).
type CoordinatorBackend interface {
	// ServePropose makes a change, once however often the request comes.
	ServePropose(ctx context.Context, request cluster.RequestID, change cluster.Change) (cluster.Answer, error)
	ServeRenew(ctx context.Context, r cluster.Renewal) (cluster.Lease, error)
	ServeReport(ctx context.Context, s cluster.Suspicion) error
	ServeJoin(ctx context.Context, j cluster.Join) (cluster.Joined, error)
	// ServeWatch sends what came after an index until ctx ends, send fails, or this
	// coordinator is cut off. It calls send from one goroutine at a time; send
	// returns once the message is on its way, so a slow watcher slows it.
	ServeWatch(ctx context.Context, from uint64, send func(cluster.Message) error) error
	// ServeTouch takes up to cluster.MaxSigns signs of life.
	ServeTouch(ctx context.Context, signs []cluster.SignOfLife) (cluster.Lost, error)
	// ServeProgress answers for up to cluster.MaxProgress groups, from the state at the
	// index that is asked for or a later one: it waits for that until ctx ends. Nothing of
	// what it gives changes afterwards.
	ServeProgress(ctx context.Context, of cluster.ProgressOf) ([]cluster.GroupProgress, error)
	// ServeDecided gives the index of the latest change of a snapshot that anybody can have
	// had an answer to when the call came.
	ServeDecided(ctx context.Context) (uint64, error)
}

// BrokerBackend is what a broker answers other nodes.
type BrokerBackend interface {
	// Append calls done exactly once for each batch, perhaps before it returns. done
	// does not wait.
	Append(req Append, done func(Appended))
	Read(ctx context.Context, r Read) (ReadResult, error)
	Bounds(p ident.Partition) (Bounds, error)
	OffsetAt(ctx context.Context, p ident.Partition, ms int64) (ident.Offset, error)
	EpochEnd(p ident.Partition, e ident.Epoch) (ident.Offset, error)
	Wait(p ident.Partition, after ident.Offset) (<-chan struct{}, error)
	// ServeFollow is one follower's stream. It returns when the stream ends or
	// one of both lives is over; then the stream is cut.
	ServeFollow(ctx context.Context, f Follow, s FollowerStream) error
	// Take waits by itself for what there is to take, and leases nothing once ctx has ended.
	// The batches of an answer have at most MaxSendBytes together.
	Take(ctx context.Context, t Take) (Taken, error)
	Settle(ctx context.Context, s Settle) (Settled, error)
	Standings(ctx context.Context, s StandingsOf) ([]GroupStanding, error)
	RecordStatus(ctx context.Context, s RecordStatusOf) ([]RecordStatus, error)
	// KeepReply keeps the reply to a request whose gateway is gone, at the leader of its
	// partition: it says so itself (gone), or the cluster does. KeptReply waits so long for
	// one, or until the request's deadline, in ms since 1970 by this node's clock.
	KeepReply(ctx context.Context, to string, r *inbox.Reply, gone bool) (Handed, error)
	KeptReply(ctx context.Context, to string, until int64, wait time.Duration) (Collected, error)
	// Original finds the record that an idempotency key brought, and waits until it is
	// committed. Another content under the key is an error.
	Original(ctx context.Context, s Sought) (Original, error)
	// Probe says which life this node is in.
	Probe(ctx context.Context) (cluster.Life, error)
}

// FollowerStream is the leader's end of a Follow. Recv may be called beside the others,
// which are called by one goroutine at a time. Send keeps nothing but the batches, which
// never change. What Recv fills in is overwritten by the next call. Any error says that the
// stream has ended.
type FollowerStream interface {
	Send(m *FromLeader) error
	// Post is Send that waits for nobody. It may be called once Ready has said so.
	Post(m *FromLeader) error
	Ready() bool
	Recv(m *FromFollower) error
	// End ends the stream: calls that wait return. The end of a context alone does not.
	End()
}

// NodeBackend is what every node answers others.
type NodeBackend interface {
	Figures(ctx context.Context) ([]byte, error) // JSON
	// Connections lists this node's client connections as JSON; of one principal, or of all.
	Connections(ctx context.Context, principal string) ([]byte, error)
	// Disconnect closes a client connection; false: there is none of that name.
	Disconnect(ctx context.Context, connection string) (bool, error)
	// HandReply takes the reply to a request of this gateway; CollectReply waits so long for
	// one, with whoever asked.
	HandReply(ctx context.Context, to string, r *inbox.Reply) (Handed, error)
	CollectReply(ctx context.Context, to string, wait time.Duration) (Collected, error)
}
