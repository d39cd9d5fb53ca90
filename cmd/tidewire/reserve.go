package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"tidewire/internal/obs"
	"tidewire/internal/vfs"
)

// A node that starts has to write a little before it can serve a single read:
// a term and its registration. On a disk without a free byte it would wait for
// space, and nobody could read. So some space is kept in a file while there is
// plenty, and given up at a start that finds none.
const (
	reserveName  = "reserve"
	reserveBytes = 4 << 20
	reserveEvery = 5 * time.Second
)

func (n *node) reservePath() string { return filepath.Join(n.cfg.Data, reserveName) }

// freeReserve gives the space up where the disk is full.
func (n *node) freeReserve(context.Context) error {
	free, err := n.disk.Free(n.cfg.Data)
	if err != nil || free >= reserveBytes {
		return nil // a folder that is not there yet has no reserve
	}
	err = n.disk.Remove(n.reservePath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		n.log.Warn("the disk is full: the space that was kept for a start is given up", "free", free, "bytes", reserveBytes)
	}
	return err
}

// keepReserve makes the file again whenever it is missing and there is space.
func (n *node) keepReserve(ctx context.Context) error {
	tick := time.NewTicker(reserveEvery)
	defer tick.Stop()
	for {
		if _, err := n.disk.Stat(n.reservePath()); errors.Is(err, fs.ErrNotExist) {
			n.makeReserve()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (n *node) makeReserve() {
	if free, err := n.disk.Free(n.cfg.Data); err != nil || free < n.cfg.MinFreeBytes+2*reserveBytes {
		return
	}
	b := make([]byte, reserveBytes)
	_, _ = rand.Read(b) // never fails; zeros would take no space on some file systems
	if err := vfs.WriteAtomic(n.disk, n.reservePath(), b); err != nil {
		n.log.Warn("no space could be kept for a start on a full disk; it is tried again", obs.Err, err)
	}
}
