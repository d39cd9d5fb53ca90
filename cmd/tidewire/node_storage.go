package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"tidewire/broker/host"
	"tidewire/broker/storage"
	"tidewire/coordinator"
	"tidewire/coordinator/consensus"
	"tidewire/internal/ident"
	"tidewire/internal/obs"
	"tidewire/internal/vfs"
)

// checkCoordinator reads the coordinator's store before the storage is opened,
// which recovers and writes: where topics and layouts are damaged the node does
// not start, and leaves all as it is.
func (n *node) checkCoordinator(context.Context) error {
	if !n.cfg.Has("coordinator") {
		return nil
	}
	report, err := verifyStore(n.disk, n.cfg.Data)
	n.coordinates = report.Exists
	return err
}

// verifyStore reads the coordinator's store and holds it against what the node
// of this folder has acted on.
func verifyStore(disk vfs.FS, dir string) (consensus.Report, error) {
	values, err := storage.ReadMeta(disk, dir)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return consensus.Report{}, err
	}
	acted, err := actedOn(values[host.MetaIndex])
	if err != nil {
		return consensus.Report{}, err
	}
	return coordinator.Verify(dir, acted)
}

// actedOn is the index that a data folder remembers; 0 where it remembers none.
func actedOn(text string) (index uint64, err error) {
	if text == "" {
		return 0, nil
	}
	if index, err = strconv.ParseUint(text, 10, 64); err != nil {
		return 0, fmt.Errorf("the data folder remembers %s %q, which is no number", host.MetaIndex, text)
	}
	return index, nil
}

// metaNode is the key under which the data folder keeps the node's id.
const metaNode = "node"

func (n *node) openStorage(context.Context) error {
	store, err := storage.Open(storage.Config{
		Dir: n.cfg.Data, FS: n.disk, JournalFileBytes: n.journal, OpenFiles: n.files.LogFiles, MinFreeBytes: n.cfg.MinFreeBytes,
		ScrubBytes: scrubBytes(n.cfg.ScrubRate), ScrubEvery: n.cfg.ScrubEvery,
		Logger: n.log.With(obs.Component, "storage"), Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	n.store = store
	id, err := n.nodeID()
	if err != nil {
		return err
	}
	n.id = id
	return nil
}

// runStorage lets the coordinator write first: on a full disk the segments would
// take the little space that a start needs.
func (n *node) runStorage(ctx context.Context) error {
	select {
	case <-n.registered:
	case <-ctx.Done():
	}
	if err := n.store.Run(ctx); err != nil {
		return &diskFailure{err}
	}
	return nil
}

func (n *node) nodeID() (ident.NodeID, error) {
	if text, ok := n.store.GetMeta(metaNode); ok {
		id, err := uuid.Parse(text)
		if err != nil {
			return ident.NodeID{}, fmt.Errorf("the data folder names node %q, which is no id: %w", text, err)
		}
		return ident.NodeID(id), nil
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return ident.NodeID{}, err
	}
	return ident.NodeID(id), n.store.PutMeta(metaNode, id.String())
}

// scrubBytes is a rate as the storage wants it: there 0 is its default.
func scrubBytes(rate int64) int64 {
	if rate == 0 {
		return -1
	}
	return rate
}
