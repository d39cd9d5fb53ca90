package session

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"tidewire/internal/wire"
)

type metrics struct {
	lines         map[string]prometheus.Counter // by op
	badLines      prometheus.Counter
	closes        *prometheus.CounterVec // code
	subscriptions prometheus.Gauge
	inFlight      prometheus.Gauge
	waiting       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) metrics {
	auto := promauto.With(reg)
	byOp := auto.NewCounterVec(prometheus.CounterOpts{Name: "gateway_websocket_lines_total", Help: "Lines that clients sent, by op."}, []string{"op"})
	lines := map[string]prometheus.Counter{}
	for _, op := range wire.Ops {
		lines[op] = byOp.WithLabelValues(op)
	}
	return metrics{
		lines:         lines,
		badLines:      auto.NewCounter(prometheus.CounterOpts{Name: "gateway_websocket_bad_lines_total", Help: "Lines that clients sent and that are none of the protocol."}),
		closes:        auto.NewCounterVec(prometheus.CounterOpts{Name: "gateway_websocket_closes_total", Help: "Connections ended, by close code; 1006 where the client vanished."}, []string{"code"}),
		subscriptions: auto.NewGauge(prometheus.GaugeOpts{Name: "gateway_websocket_subscriptions", Help: "Subscriptions over WebSocket."}),
		inFlight:      auto.NewGauge(prometheus.GaugeOpts{Name: "gateway_websocket_in_flight_publishes", Help: "Publishes over WebSocket that are not answered yet."}),
		waiting:       auto.NewCounter(prometheus.CounterOpts{Name: "gateway_websocket_waiting_writes_total", Help: "Writes that a socket did not take at once, so that a goroutine had to wait for it."}),
	}
}
