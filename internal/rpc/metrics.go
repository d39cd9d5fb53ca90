package rpc

import (
	"context"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Metrics is the table of everything that is counted of calls between nodes, at both
// ends of them. One is made for a node and given to its Server and its Peers.
type Metrics struct {
	calls          *prometheus.CounterVec
	streams        *prometheus.GaugeVec
	sent, received prometheus.Counter
}

// The ends of a call.
const (
	caller = "caller"
	callee = "callee"
)

// NewMetrics registers the metrics; nil: they are counted for nobody.
func NewMetrics(r prometheus.Registerer) *Metrics {
	bytes := func(direction, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "rpc_" + direction + "_bytes_total", Help: help})
	}
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rpc_calls_total",
			Help: "Calls between nodes that have ended, by the end that counts, method, and the code of the answer: ok where it is none, lost where it did not come.",
		}, []string{"end", "method", "code"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rpc_streams",
			Help: "Open streams between nodes, by the end that counts and method.",
		}, []string{"end", "method"}),
		sent:     bytes("sent", "Bytes written to connections between nodes."),
		received: bytes("received", "Bytes read from connections between nodes."),
	}
	if r != nil {
		r.MustRegister(m.calls, m.streams, m.sent, m.received)
	}
	return m
}

// method is Broker/Read for /tidewire.Broker/Read.
func method(full string) string {
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		return full[i+1:]
	}
	return strings.TrimPrefix(full, "/")
}

// done counts a call that has ended, by what its end says.
func (m *Metrics) done(end, full string, err error) {
	code := "ok"
	if err != nil {
		code = "lost"
		if f, _ := reply(err); f != nil {
			code = f.Kind.Code()
		}
	}
	m.calls.WithLabelValues(end, method(full), code).Inc()
}

// opened counts a stream on a connection of its own, at the end that opened it.
func (m *Metrics) opened(method string, f *framed, err error) {
	if err != nil {
		m.done(caller, method, err)
		return
	}
	count := m.streams.WithLabelValues(caller, method)
	count.Inc()
	context.AfterFunc(f.ctx, count.Dec)
}

// carried counts one at the other end, until it calls what it gets with its end.
func (m *Metrics) carried(method string) func(*ending) {
	count := m.streams.WithLabelValues(callee, method)
	count.Inc()
	return func(end *ending) {
		count.Dec()
		m.ended(method, end)
	}
}

// ended counts the end of a stream at the end that gives it.
func (m *Metrics) ended(method string, end *ending) {
	if end.problem == nil {
		m.done(callee, method, nil)
		return
	}
	m.done(callee, method, end)
}

// serving counts what a server answers.
func (m *Metrics) serving() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			a, err := handle(ctx, q)
			m.done(callee, info.FullMethod, err)
			return a, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			open := m.streams.WithLabelValues(callee, method(info.FullMethod))
			open.Inc()
			defer open.Dec()
			err := handle(srv, s)
			m.done(callee, info.FullMethod, err)
			return err
		}),
	}
}

// calling counts what a peer is asked. How a stream ends its reader hears alone: the
// other end counts it.
func (m *Metrics) calling() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, full string, q, a any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, full, q, a, c, opts...)
			m.done(caller, full, err)
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, full string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, d, c, full, opts...)
			if err != nil {
				m.done(caller, full, err)
				return s, err
			}
			count := m.streams.WithLabelValues(caller, method(full))
			count.Inc()
			context.AfterFunc(s.Context(), count.Dec) // it ends with the stream
			return s, nil
		}),
	}
}

// weighed is a connection whose bytes are counted.
type weighed struct {
	net.Conn
	m *Metrics
}

func (w *weighed) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.m.received.Add(float64(n))
	return n, err
}

func (w *weighed) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.m.sent.Add(float64(n))
	return n, err
}
