package control

import (
	"context"

	"github.com/google/uuid"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// Proposer asks for changes.
type Proposer interface {
	Propose(ctx context.Context, change cluster.Change) (cluster.Answer, error)
}

// CreateTopic makes a topic. The same again finds it (false); a setting that
// was given and differs is fault.TopicExists.
func CreateTopic(ctx context.Context, p Proposer, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	a, err := p.Propose(ctx, cluster.Change{Create: &cluster.Create{ID: ident.TopicID(uuid.New()), Spec: spec}})
	if err != nil {
		return nil, false, err
	}
	if a.Topic == nil { // made by an earlier try of this call, and deleted since
		return nil, false, fault.New(fault.TopicNotFound, "topic %s was created and has been deleted again", spec.Name)
	}
	return a.Topic, a.Created, nil
}

// AlterTopic changes the settings that are given.
func AlterTopic(ctx context.Context, p Proposer, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	a, err := p.Propose(ctx, cluster.Change{Alter: &cluster.Alter{Name: name, Patch: patch}})
	if err != nil {
		return nil, err
	}
	if a.Topic == nil {
		return nil, fault.New(fault.TopicNotFound, "topic %s has been deleted", name)
	}
	return a.Topic, nil
}

// DeleteTopic ends a topic's life.
func DeleteTopic(ctx context.Context, p Proposer, name string) error {
	_, err := p.Propose(ctx, cluster.Change{Delete: &cluster.Delete{Name: name}})
	return err
}

// Director is a Remote that speaks of topics as well.
type Director struct{ *Remote }

// CreateTopic is the function of that name.
func (d Director) CreateTopic(ctx context.Context, spec cluster.TopicSpec) (*cluster.Topic, bool, error) {
	return CreateTopic(ctx, d, spec)
}

// AlterTopic is the function of that name.
func (d Director) AlterTopic(ctx context.Context, name string, patch cluster.SettingsPatch) (*cluster.Topic, error) {
	return AlterTopic(ctx, d, name, patch)
}

// DeleteTopic is the function of that name.
func (d Director) DeleteTopic(ctx context.Context, name string) error {
	return DeleteTopic(ctx, d, name)
}
