package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"tidewire/broker"
	"tidewire/broker/storage"
	"tidewire/internal/boot"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/obs"
	"tidewire/internal/registration"
	"tidewire/internal/run"
)

// The keys under which the data folder keeps what it belongs to.
const (
	metaCluster = "cluster"
	metaEpoch   = "broker_epoch"
)

// prepare makes what takes part in this node's lives.
func (n *node) prepare(context.Context) error {
	if n.cfg.Has("broker") {
		n.broker = broker.New(broker.Config{
			Node: n.id, Store: n.store, Coordinator: n.director, Network: network{n.peers}, Lease: func(acted uint64) bool { return n.registration.Leads(acted) },
			LeaseFor: n.cfg.BrokerLease,
			Renounce: func(life cluster.Life, why error) { n.registration.Renounce(life, why) },
			Lag:      n.cfg.ReplicaLag, Logger: n.log.With(obs.Component, "broker"), Registerer: n.registry,
		})
	}
	n.registration = registration.New(registration.Config{
		Coordinator: n.director, Notes: notes{n.store}, Node: n.self, Unfit: n.store.Damaged, OnLife: n.live,
		Full:  n.store.Full,
		Lease: n.cfg.BrokerLease, Logger: n.log.With(obs.Component, "registration"),
	})
	n.addresses.registration.Store(n.registration)
	n.rpc.Broker(backend{n})
	return nil
}

func (n *node) runRegistration(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		var disk *noteError
		if errors.As(err, &disk) {
			return &diskFailure{err}
		}
		return err
	}
	return nil
}

// self is this node as it registers.
func (n *node) self() cluster.Node {
	a := cluster.Addresses{RPC: n.rpc.Addr(), Gossip: n.membership.Addr()}
	if n.http != nil {
		a.HTTP = boot.Advertised(n.cfg.AdvertiseHTTP, n.http.Addr().String())
	}
	if n.coordinator != nil {
		a.Raft = n.coordinator.Addr()
	}
	return cluster.Node{
		ID: n.id, Name: n.cfg.Name, Zone: n.cfg.Zone, Roles: n.cfg.Roles, Version: n.build.Version, Storage: n.storageID(),
		Addresses: a, Boot: bootID(run.Backoff{Dir: n.cfg.Data}.Mark()),
	}
}

// bootID names the life of what was written on this machine and not synced: it ends with the
// machine, and as well where the disk failed to sync. Empty where the machine's life has no
// name.
func bootID(failure string) string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(string(b))+"."+failure, ".")
}

// live takes a new life of this node: with the first one the broker opens its logs.
func (n *node) live(ctx context.Context, life cluster.Life, unfit []ident.Partition, s *cluster.Snapshot) error {
	if err := n.renew(); err != nil {
		return err
	}
	select {
	case <-n.registered:
	default:
		close(n.registered)
		if n.broker != nil {
			if err := n.broker.Open(ctx, s); err != nil {
				return err
			}
		}
	}
	if n.broker != nil {
		return n.broker.Live(life, unfit)
	}
	return nil
}

// awaitLife returns once this node counts as alive.
func (n *node) awaitLife(ctx context.Context) error {
	n.start.awaits(func() string { return "it registers with the leading coordinator and opens its logs" })
	select {
	case <-n.registration.Registered():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *node) runBroker(ctx context.Context) error {
	if n.broker == nil {
		<-ctx.Done()
		return nil
	}
	return n.broker.Run(ctx)
}

// notes keep a broker epoch in the data folder.
type notes struct{ *storage.Store }

// Noted is the one that was noted last; 0: none.
func (s notes) Noted() ident.BrokerEpoch {
	text, _ := s.GetMeta(metaEpoch)
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0 // none, or none that the coordinator knows
	}
	return ident.BrokerEpoch(epoch)
}

// Note keeps one for good.
func (s notes) Note(epoch ident.BrokerEpoch) error {
	if err := s.PutMeta(metaEpoch, strconv.FormatUint(uint64(epoch), 10)); err != nil {
		return &noteError{err}
	}
	return nil
}

// noteError is a folder that took no note.
type noteError struct{ err error }

func (e *noteError) Error() string { return e.err.Error() }
func (e *noteError) Unwrap() error { return e.err }
