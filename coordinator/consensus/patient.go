package consensus

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// patient mends three habits of raft's replication, lets the witness see its heartbeats
// and the herald what the others have kept.
//
// After a peer has been away, or had no room for entries, raft waits before it tries
// again, up to ten seconds: a peer that is back counts for nothing meanwhile, and the
// next death costs the majority. So such a call is tried again here, at a steady pace,
// and raft hears of it only when it is over: the term, the peer's membership, this node.
//
// A pipeline whose answers raft reads no more, because one told of a newer term, leaves
// whoever sends on it waiting for ever: the routine of a former leader, its heartbeats,
// and in the end raft's own stop. So nobody waits longer there than a peer has to answer.
//
// And a leader whose disk hangs goes on to send heartbeats, so that nobody takes
// over, while its main loop waits for the disk and could not even hand over. So
// nothing is sent while a write has taken longer than stallHandOver: the others
// elect another leader.
type patient struct {
	*raft.NetworkTransport
	raft    func() *raft.Raft
	store   *store
	witness *witness
	herald  *herald
	done    <-chan struct{} // closed when the node stops
	relays  sync.WaitGroup  // of pipelines
}

func newPatient(network *raft.NetworkTransport, of func() *raft.Raft, s *store, done <-chan struct{}) *patient {
	p := &patient{NetworkTransport: network, raft: of, store: s, witness: newWitness(), done: done}
	p.herald = newHerald(p.tell)
	return p
}

const (
	// stallHandOver is how long the log of a leader may hang.
	stallHandOver = 2 * time.Second
	// pipelineLimit is how long a send may wait for the one before it, which has an answer
	// within transportTimeout, or none to come.
	pipelineLimit = transportTimeout + transportTimeout/4
	// againAfter paces the tries to reach a peer.
	againAfter = 50 * time.Millisecond
	// roomAfter paces them where it answers that it kept nothing.
	roomAfter = 250 * time.Millisecond
)

var errStalled = errors.New("this coordinator's disk hangs: it sends nothing, so that another leads")

func (p *patient) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		if p.stalled() {
			return errStalled
		}
		if !isHeartbeat(args) {
			p.herald.sent(id, target, args)
		}
		sent := p.witness.now()
		err := p.NetworkTransport.AppendEntries(id, target, args, resp)
		if err == nil && resp.Success {
			p.witness.agreed(id, sent, args.Term)
			p.herald.answered(id, args, resp)
		}
		pause := againAfter
		if err == nil {
			if !keptNothing(args, resp) {
				return nil
			}
			pause = roomAfter
		}
		if isHeartbeat(args) || !p.wait(id, args.Term, pause) {
			return err
		}
		*resp = raft.AppendEntriesResponse{}
	}
}

// wait rests, and says whether the peer is still to be reached.
func (p *patient) wait(id raft.ServerID, term uint64, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.done:
		return false
	}
	r := p.raft()
	return r != nil && r.State() == raft.Leader && r.CurrentTerm() == term && has(r.GetConfiguration().Configuration(), id)
}

func (p *patient) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	line, err := p.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	x := &pipeline{AppendPipeline: line, of: p, id: id, at: target, answers: make(chan raft.AppendFuture), over: make(chan struct{})}
	p.relays.Go(x.relay)
	return x, nil
}

func (p *patient) stalled() bool { return p.store.stalled(time.Now()) > stallHandOver }

// tell sends what the herald has to say. It is one try: raft says the same a little later.
func (p *patient) tell(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest) bool {
	var resp raft.AppendEntriesResponse
	return !p.stalled() && p.NetworkTransport.AppendEntries(id, target, args, &resp) == nil && resp.Success
}

// close waits for whatever was begun here. raft has ended, or is to end with the process.
func (p *patient) close() {
	p.herald.close()
	p.relays.Wait()
}

// pipeline is one of raft's, whose answers are seen on their way to it.
type pipeline struct {
	raft.AppendPipeline
	of      *patient
	id      raft.ServerID
	at      raft.ServerAddress
	answers chan raft.AppendFuture
	over    chan struct{} // closed with it
	ending  sync.Once
}

// relay hands answers on until the pipeline is closed.
func (p *pipeline) relay() {
	for {
		var f raft.AppendFuture
		select {
		case f = <-p.AppendPipeline.Consumer():
		case <-p.over:
			return
		}
		p.of.herald.answered(p.id, f.Request(), f.Response())
		select {
		case p.answers <- f:
		case <-p.over:
			return
		}
	}
}

// Consumer is where raft takes the answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close ends it; it may be called more than once.
func (p *pipeline) Close() error {
	p.ending.Do(func() { close(p.over) })
	return p.AppendPipeline.Close()
}

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.of.stalled() {
		return nil, errStalled
	}
	p.of.herald.sent(p.id, p.at, args)
	late := time.AfterFunc(pipelineLimit, func() { _ = p.Close() }) // the send says that it was closed
	defer late.Stop()
	return p.AppendPipeline.AppendEntries(args, resp)
}

// isHeartbeat tells raft's heartbeats, which have a loop and a pace of their own.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// keptNothing tells the answer of a peer that could not write. One whose log parts from
// the leader's asks for older entries at once, and one of a later term names that.
func keptNothing(a *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) bool {
	return !r.Success && !r.NoRetryBackoff && r.Term == a.Term && len(a.Entries) > 0
}

func has(c raft.Configuration, id raft.ServerID) bool {
	for _, s := range c.Servers {
		if s.ID == id {
			return true
		}
	}
	return false
}
