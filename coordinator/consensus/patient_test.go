package consensus

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"tidewire/internal/testkit/memnet"
)

// inMemory is raft's stream layer to one other.
type inMemory struct {
	*memnet.Listener
	other *memnet.Listener
}

func (l inMemory) Dial(_ raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.other.Dial(ctx, "", "")
}

// A pipeline whose answers nobody reads any more, as raft leaves it once it is told of a
// newer term, holds up who sends on it for as long as a peer has to answer, not for ever.
func TestAPipelineThatIsNotReadHoldsUpNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := memnet.Listen()
		transport := func(at *memnet.Listener) *raft.NetworkTransport {
			return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: inMemory{at, there}, MaxPool: 1, Timeout: transportTimeout, Logger: hclog.NewNullLogger()})
		}
		peer, mine := transport(there), transport(memnet.Listen())
		stop := make(chan struct{})
		var answering sync.WaitGroup
		answering.Go(func() {
			for {
				select {
				case call := <-peer.Consumer():
					call.Respond(&raft.AppendEntriesResponse{Term: 9}, nil)
				case <-stop:
					return
				}
			}
		})
		p := newPatient(mine, nil, newStore(nil, nil, nil), stop)
		line, err := p.AppendEntriesPipeline("peer", "peer")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for err == nil { // nobody takes line.Consumer()
			_, err = line.AppendEntries(&raft.AppendEntriesRequest{Term: 1}, &raft.AppendEntriesResponse{})
		}
		if !errors.Is(err, raft.ErrPipelineShutdown) || time.Since(began) > pipelineLimit {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		close(stop)
		answering.Wait()
		for _, c := range []io.Closer{line, mine, peer} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		p.close()
	})
}
