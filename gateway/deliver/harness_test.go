package deliver_test

import (
	"testing"

	"go.uber.org/goleak"

	"tidewire/gateway/deliver"
	"tidewire/internal/ident"
	"tidewire/internal/testkit/activity"
	"tidewire/internal/testkit/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startHub runs a hub until the test ends.
func startHub(t testing.TB, m *memlog.Broker, cfg deliver.Config) *deliver.Hub {
	t.Helper()
	cfg.Source, cfg.Topology = m, m
	h := deliver.New(cfg)
	activity.Start(t, h.Run)
	return h
}

func resolve(t *testing.T, h *deliver.Hub, q deliver.Request) deliver.Start {
	t.Helper()
	s, err := h.Resolve(t.Context(), q)
	if err != nil {
		t.Fatalf("resolve %+v: %v", q, err)
	}
	return s
}

func at(i ident.Index) *ident.Index { return &i }
