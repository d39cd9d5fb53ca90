package rpc

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/metric"
)

// countedCalls is what a registry tells of one method, by end and code.
func countedCalls(t *testing.T, reg *prometheus.Registry, name, of string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["method"] == of {
				out[labels["end"]+" "+labels["code"]] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func TestCallsAreCountedAtBothEnds(t *testing.T) {
	reg := prometheus.NewRegistry()
	counts := NewMetrics(reg)
	watching, watched := make(chan struct{}), make(chan struct{})
	s := serve(t, ServerConfig{Metrics: counts}, "127.0.0.1:0")
	answers := []error{nil, nil, fault.New(fault.LeaderUnavailable, "not here")}
	s.Broker(&broker{
		life: cluster.Life{Node: nodeB, Epoch: 4},
		bounds: func(ident.Partition) (Bounds, error) {
			err := answers[0]
			answers = answers[1:]
			return Bounds{HW: 1}, err
		},
	})
	s.Coordinator(&coordinator{watch: func(ctx context.Context, _ uint64, send func(cluster.Message) error) error {
		if err := send(cluster.Message{Index: 1}); err != nil {
			return err
		}
		<-watching
		return errors.New("enough")
	}})
	p := NewPeers(PeersConfig{
		Self: func() cluster.Life { return cluster.Life{Node: nodeA, Epoch: 2} }, Cluster: func() ident.ClusterID { return theirs },
		Address: func(ident.NodeID) string { return s.Addr() }, Dialer: &Dialer{Self: nodeA}, Metrics: counts,
	})
	r := toB(t, p)
	for i := range 3 {
		if _, err := r.Bounds(t.Context(), topic, -1, 0); (err != nil) != (i == 2) {
			t.Fatal(err)
		}
	}
	if got := countedCalls(t, reg, "rpc_calls_total", "Broker/Bounds"); got["caller ok"] < 2 || got["callee ok"] != got["caller ok"] {
		t.Errorf("%v", got)
	}
	go func() {
		defer close(watched)
		_ = r.Watch(t.Context(), 0, func(cluster.Message) error { // the test ends it
			if got := countedCalls(t, reg, "rpc_streams", "Coordinator/Watch"); got["caller "] != 1 || got["callee "] != 1 {
				t.Errorf("%v", got)
			}
			close(watching)
			return nil
		})
	}()
	<-watched
	p.Close()
	s.stop()
	if got := countedCalls(t, reg, "rpc_streams", "Coordinator/Watch"); got["caller "] != 0 || got["callee "] != 0 {
		t.Errorf("%v are open when all is over", got)
	}
	if got := countedCalls(t, reg, "rpc_calls_total", "Coordinator/Watch"); got["callee internal"] != 1 {
		t.Errorf("%v", got)
	}
	sent, received := metric.Sum(t, reg, "rpc_sent_bytes_total"), metric.Sum(t, reg, "rpc_received_bytes_total")
	if sent < 100 || received < 100 || received > sent {
		t.Errorf("%v bytes sent, %v received", sent, received)
	}
	// Nobody is there any more.
	gone := NewPeers(PeersConfig{
		Self: func() cluster.Life { return cluster.Life{Node: nodeA, Epoch: 2} }, Cluster: func() ident.ClusterID { return theirs },
		Address: func(ident.NodeID) string { return s.Addr() }, Dialer: &Dialer{Self: nodeA}, Metrics: counts,
	})
	defer gone.Close()
	if _, err := toB(t, gone).Figures(t.Context()); err == nil {
		t.Error("a node that has gone answers")
	}
	if got := countedCalls(t, reg, "rpc_calls_total", "Node/Figures"); got["caller lost"] != 1 {
		t.Errorf("%v", got)
	}
}
