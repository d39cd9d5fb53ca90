package plan

// Metric is one figure of a run.
type Metric string

// The metrics.
const (
	Rate     Metric = "messages a second"
	P50      Metric = "p50"
	P99      Metric = "p99"
	CPU      Metric = "server CPU a message"
	RSS      Metric = "RSS a connection"
	Lost     Metric = "lost"
	AllBack  Metric = "seconds from when it serves again until all are back"
	Signal   Metric = "seconds from SIGTERM until all are back"
	NotTold  Metric = "subscribers that were not told when to come back, or did not"
	Crowding Metric = "fullest 100 ms, times the mean of the window that was announced"
	Growth   Metric = "growth of the other gateway's publish p99"
)

// Of is a metric of a case as one system has it.
type Of struct {
	Case   string
	System System
	Metric Metric
}

// Bar is what has to hold: ours, divided by theirs where there is a theirs, is at least,
// or at most, a limit.
type Bar struct {
	Title   string
	Ours    Of
	Theirs  Of // of no case: ours itself is held to the limit
	AtLeast bool
	Limit   float64
}

// Bars are those of the acceptance table.
func Bars() []Bar {
	against := func(title, name string, m Metric, ours, theirs System, atLeast bool, limit float64) Bar {
		return Bar{title, Of{name, ours, m}, Of{name, theirs, m}, atLeast, limit}
	}
	alone := func(title, name string, m Metric, limit float64) Bar {
		return Bar{Title: title, Ours: Of{name, Tidewire, m}, Limit: limit}
	}
	all := []Bar{
		against("durable publish, 1 KiB, 256 publishers", "publish-1024-256", Rate, Tidewire, NATSAlways, true, 6),
		against("durable publish, 1 KiB, 256 publishers", "publish-1024-256", Rate, Tidewire, RedisAlways, true, 1),
		against("durable publish, 1 KiB, 256 publishers", "publish-1024-256", Rate, Tidewire, NATSDefault, true, 1.2),
		against("pipelined, 1 KiB, one connection", "publish-1024-pipelined", Rate, Tidewire, NATSAlways, true, 10),
		against("pipelined, 1 KiB, one connection", "publish-1024-pipelined", Rate, Tidewire, RedisAlways, true, 1.5),
		against("pipelined, 1 KiB, one connection", "publish-1024-pipelined", Rate, Tidewire, NATSDefault, true, 1),
		against("replicated, 1 KiB, 256 publishers", "replicated-1024-256", Rate, Tidewire3, NATS3Always, true, 2),
		against("replicated, 1 KiB, pipelined", "replicated-1024-pipelined", Rate, Tidewire3, NATS3Always, true, 1.5),
		against("end to end at 1,000/s, fsynced", "latency-1000", P50, Tidewire, NATSAlways, false, 0.7),
		against("end to end at 1,000/s, fsynced", "latency-1000", P99, Tidewire, NATSAlways, false, 0.7),
		against("end to end at 1,000/s, against memory", "latency-1000", P50, Tidewire, Centrifugo, false, 1.6),
		against("end to end at 1,000/s, three replicas", "latency-3-1000", P50, Tidewire3, NATS3Always, false, 0.6),
		against("end to end at 1,000/s, three replicas", "latency-3-1000", P99, Tidewire3, NATS3Always, false, 0.6),
	}
	for _, x := range []struct {
		name  string
		limit float64
	}{{"fanout-10000-1", 0.65}, {"fanout-10000-8", 0.17}, {"fanout-1000-32", 0.25}} {
		all = append(all, against("fan-out, a delivery", x.name, CPU, Tidewire, Centrifugo, false, x.limit), alone("fan-out, deliveries", x.name, Lost, 0))
	}
	return append(all,
		against("idle connection with a subscription", "idle-6000", RSS, Tidewire, Centrifugo, false, 0.25),
		against("idle connection with a subscription", "idle-6000", RSS, Tidewire, NATSCore, false, 0.4),
		against("request and reply, 64 at a time", "requests-64", Rate, Tidewire, NATSCore, true, 0.4),
		against("request and reply, one", "requests-1", P50, Tidewire, NATSCore, false, 3),
		alone("restart of a gateway, 10,000 subscribers", "storm-10000", AllBack, 10),
		alone("restart of a gateway, 10,000 subscribers", "storm-10000", NotTold, 0),
		alone("restart of a gateway, 10,000 subscribers", "storm-10000", Lost, 0),
		alone("restart of a gateway, spread as announced", "storm-10000", Crowding, 3),
		alone("restart of a gateway, a second one", "storm-10000", Growth, 1.25),
		Bar{"publish at 1,000 partitions against 4, 16 publishers", Of{"size-1000-16", Tidewire, CPU}, Of{"size-4-16", Tidewire, CPU}, false, 1.5},
		Bar{"publish at 1,000 partitions against 4, 256 publishers", Of{"size-1000-256", Tidewire, CPU}, Of{"size-4-256", Tidewire, CPU}, false, 1.5},
		Bar{"delivery to 10,000 subscribers against 1,000", Of{"fanout-10000-1", Tidewire, CPU}, Of{"fanout-1000-1", Tidewire, CPU}, false, 1.35},
	)
}
