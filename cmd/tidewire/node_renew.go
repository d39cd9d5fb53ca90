package main

import (
	"context"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

/*
A data folder whose journal is corrupt may lack anything that it acknowledged, of any
partition. Where others have all of it the folder is begun anew, in an order that loses
nothing whatever happens in between:

 1. The node registers with the storage id that its folder would have then. For the
    coordinator that is another folder: in the same command the node leaves every ISR and
    ELR; or the command is refused, because somewhere nobody else has all that is committed.
 2. Accepted: the folder is set aside and begun anew, and fetches everything from the leaders.
    Refused: nothing is touched. The node registers with the folder as it is, serves what is
    proven and takes nothing new, until somebody has decided what becomes of it.
*/

// storageID is the id of the data folder as this node registers it.
func (n *node) storageID() ident.StorageID {
	if n.renews {
		return n.store.NextID()
	}
	return n.store.ID()
}

// register lives this node's lives, with another folder or with the one it has.
func (n *node) register(ctx context.Context) error {
	n.renews = n.store.ReadOnly() != nil
	err := n.registration.Run(ctx)
	if !n.renews || !fault.Is(err, fault.Invalid) {
		return err
	}
	n.renews = false
	n.log.Error("the journal is corrupt, and nobody else has all that this node holds: it serves what is proven and takes nothing new. "+
		"Restore the data folder from a backup; or delete the topics of which this node has the only replica in sync and start it again: then it fetches the rest from the others", "err", err)
	return n.registration.Run(ctx)
}

// renew begins the data folder anew, if the coordinator has agreed to that.
func (n *node) renew() error {
	if !n.renews {
		return nil
	}
	n.renews = false
	if err := n.store.Renew(); err != nil {
		return &diskFailure{err}
	}
	return nil
}
