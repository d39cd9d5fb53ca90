package groups

import (
	"context"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/sleep"
)

// inherit carries out what a former leader has left to do of groups without members: letters
// whose intents are committed. Only a leader that has read a group's progress knows of them,
// and nobody makes it read that of a group without members; so a new leader asks once which
// ones they are. Others of this one cannot come to have any: a unit stays until its letters
// are in their topic.
func (p *post) inherit(ctx context.Context) {
	pause := retryPause
	for beyond, more := (ident.GroupID{}), true; more && !p.isOver(); {
		some, err := p.dying(ctx, beyond)
		if err != nil {
			p.g.cfg.Logger.Debug("it cannot be asked yet which groups have dead letters left", "topic_id", p.ref.Topic, "partition", p.ref.Index, "err", err)
			if !sleep.For(ctx, pause) {
				return
			}
			pause = min(2*pause, maxPause)
			continue
		}
		for _, group := range p.g.named(p.ref.Topic, some) {
			p.attend(group)
		}
		if more = len(some) == cluster.MaxProgress; more {
			beyond = some[len(some)-1]
		}
	}
}

// dying are groups with letters on their way, by id, as of a snapshot that names this leader.
func (p *post) dying(ctx context.Context, beyond ident.GroupID) ([]ident.GroupID, error) {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	all, err := p.g.cfg.Coordinator.Progress(ctx, cluster.ProgressOf{Partition: p.ref, After: p.g.known().Index, Dying: true, Beyond: beyond})
	ids := make([]ident.GroupID, len(all))
	for i := range all {
		ids[i] = all[i].Group
	}
	return ids, err
}

func (p *post) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}
