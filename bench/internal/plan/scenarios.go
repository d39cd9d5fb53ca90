package plan

import (
	"fmt"
	"time"
)

const (
	warmup = 400 * time.Millisecond
	short  = 1500 * time.Millisecond
	usual  = 2 * time.Second
	long   = 3 * time.Second
)

// All is the whole comparison.
func All() []Scenario {
	return []Scenario{
		publish(), replicated(), latency(), fanout(), keys(), idle(), requests(), groups(), catchUp(), storm(), size(),
	}
}

func publish() Scenario {
	s := Scenario{
		Name: "publish", Title: "Durable publish, one node",
		Note: "A connection each; Tidewire over WebSocket with JSON, NATS and Redis over their own protocols. Pipelined is one connection with 1,000 in flight.",
	}
	on := []System{Tidewire, NATSAlways, NATSDefault, RedisAlways}
	for _, bytes := range []int{1024, 128} {
		for _, p := range []struct{ publishers, window int }{{1, 1}, {16, 1}, {256, 1}, {1, 1000}} {
			s.Cases = append(s.Cases, publishCase("publish", on, bytes, p.publishers, p.window, short))
		}
	}
	return s
}

func publishCase(prefix string, on []System, bytes, publishers, window int, d time.Duration) Case {
	name, title := fmt.Sprintf("%s-%d-%d", prefix, bytes, publishers), fmt.Sprintf("%d B, %d publishers", bytes, publishers)
	switch {
	case window > 1:
		name, title = fmt.Sprintf("%s-%d-pipelined", prefix, bytes), fmt.Sprintf("%d B, pipelined", bytes)
	case publishers == 1:
		title = fmt.Sprintf("%d B, 1 publisher", bytes)
	}
	return Case{
		Name: name, Title: title, Kind: Publish, Systems: on, Bytes: bytes, Publishers: publishers, Window: window,
		Partitions: 1, Warmup: warmup, Duration: d,
	}
}

func replicated() Scenario {
	s := Scenario{
		Name: "replicated", Title: "Durable publish, three processes with a copy each",
		Note: "All on this machine and one disk. Publishers connect to the node that leads. Tidewire waits for all three copies to be fsynced, JetStream for two.",
	}
	on := []System{Tidewire3, NATS3Always, NATS3}
	for _, p := range []struct{ publishers, window int }{{1, 1}, {16, 1}, {256, 1}, {1, 1000}} {
		s.Cases = append(s.Cases, publishCase("replicated", on, 1024, p.publishers, p.window, usual))
	}
	return s
}

func latency() Scenario {
	one := Case{Kind: Fanout, Bytes: 256, Subscribers: 1, Partitions: 1, Warmup: warmup}
	a, b, c := one, one, one
	a.Name, a.Title, a.Rate, a.Duration = "latency-1000", "1,000/s, one node", 1000, long
	a.Systems = []System{Tidewire, NATSAlways, NATSDefault, NATSCore, Centrifugo}
	b.Name, b.Title, b.Rate, b.Duration = "latency-10000", "10,000/s, one node", 10_000, usual
	b.Systems = []System{Tidewire, NATSDefault, NATSCore, Centrifugo}
	c.Name, c.Title, c.Rate, c.Duration = "latency-3-1000", "1,000/s, three replicas", 1000, long
	c.Systems = []System{Tidewire3, NATS3Always, NATS3}
	return Scenario{
		Name: "latency", Title: "From publisher to one WebSocket subscriber, 256 B",
		Note:  "Latencies count from when a message was due. JetStream delivers by a push consumer; its publishers and those of core NATS speak TCP, the others WebSocket. JetStream with sync always does not sustain 10,000/s here and is left out there.",
		Cases: []Case{a, b, c},
	}
}

func fanout() Scenario {
	s := Scenario{
		Name: "fanout", Title: "Fan-out to WebSocket subscribers, 256 B",
		Note: "A message is a delivery. The next message leaves when one of those in flight has reached everybody.",
	}
	for _, x := range []struct{ subscribers, window int }{{1000, 1}, {1000, 8}, {1000, 32}, {5000, 1}, {5000, 8}, {10_000, 1}, {10_000, 8}, {10_000, 32}} {
		s.Cases = append(s.Cases, Case{
			Name: fmt.Sprintf("fanout-%d-%d", x.subscribers, x.window), Title: fmt.Sprintf("%d subscribers, %d in flight", x.subscribers, x.window),
			Kind: Fanout, Systems: []System{Tidewire, Centrifugo, NATSCore}, Bytes: 256, Subscribers: x.subscribers, Window: x.window,
			Partitions: 1, Warmup: warmup, Duration: short,
		})
	}
	return s
}

func keys() Scenario {
	return Scenario{
		Name: "keys", Title: "10,000 subscribers with a key each, 256 B",
		Note: "A key is one of a topic for Tidewire, a subject for NATS, a channel for Centrifugo. Each message has one reader.",
		Cases: []Case{{
			Name: "keys-10000", Title: "10,000 keys, 32 in flight", Kind: Fanout, Systems: []System{Tidewire, Centrifugo, NATSCore},
			Bytes: 256, Subscribers: 10_000, Window: 32, OwnKeys: true, Partitions: 1, Warmup: warmup, Duration: short,
		}},
	}
}

// IdleSettle is how long idle connections stand before memory is read: Tidewire gives
// stacks and garbage back after its first ping.
const IdleSettle = 42 * time.Second

func idle() Scenario {
	return Scenario{
		Name: "idle", Title: "Idle WebSocket connections with a subscription each",
		Note: "All systems at once. RSS per connection is growth from when 200 have come and gone to 42 s after the last has come; NATS and Centrifugo are told to collect their garbage and give it back before it is read, Tidewire is told nothing.",
		Cases: []Case{{
			Name: "idle-6000", Title: "6,000 connections", Kind: Idle, Systems: []System{Tidewire, Centrifugo, NATSCore},
			Subscribers: 6000, Partitions: 1, Bytes: 256, Duration: IdleSettle,
		}},
	}
}

func requests() Scenario {
	one := Case{Kind: Requests, Systems: []System{Tidewire, NATSCore}, Bytes: 128, Window: 1, Partitions: 1, Warmup: warmup, Duration: usual}
	a, b := one, one
	a.Name, a.Title, a.Publishers, a.Subscribers = "requests-1", "one at a time, one responder", 1, 1
	b.Name, b.Title, b.Publishers, b.Subscribers = "requests-64", "64 at a time, 4 responders", 64, 4
	return Scenario{
		Name: "requests", Title: "Request and reply over WebSocket, 128 B",
		Note:  "Tidewire keeps and fsyncs each request, leases it to a member of a group, which acknowledges it; core NATS keeps nothing.",
		Cases: []Case{a, b},
	}
}

func groups() Scenario {
	return Scenario{
		Name: "groups", Title: "A consumer group works through a backlog, 128 B",
		Note: "12 members with 256 in hand each; a record counts when its acknowledgement is confirmed. Tidewire (WebSocket, mode shared) keeps acknowledgements in the coordinators' log, fsynced; a JetStream pull consumer has ack_policy explicit and each ack is confirmed, from memory; XACK of Redis is in its append-only file, fsynced.",
		Cases: []Case{{
			Name: "groups-100000", Title: "100,000 records, 12 members", Kind: Groups, Systems: []System{Tidewire, NATSDefault, RedisAlways},
			Bytes: 128, Subscribers: 12, Window: 256, Records: 100_000, Partitions: 1,
		}},
	}
}

func catchUp() Scenario {
	return Scenario{
		Name: "catchup", Title: "One reader catches up with a backlog, 128 B",
		Note: "The backlog is published once, and read again in each repetition. Tidewire: a subscription from the earliest record over WebSocket, JSON; JetStream: a pull consumer without acknowledgements, batches of 5,000, TCP; Redis: XRANGE of 1,000 at a time, from memory.",
		Cases: []Case{{
			Name: "catchup-1000000", Title: "1,000,000 records", Kind: CatchUp, Systems: []System{Tidewire, NATSDefault, RedisAlways},
			Bytes: 128, Records: 1_000_000, Subscribers: 1, Partitions: 1,
		}},
	}
}

func storm() Scenario {
	return Scenario{
		Name: "storm", Title: "10,000 subscribers resume after a gateway was restarted",
		Note: "A gateway of its own process, in front of a node that stays, gets SIGTERM and is started again; 200 publishes a second go to the other gateway meanwhile. Centrifugo and NATS are left out: neither tells its clients when to come back, and what their memory held is gone with the process.",
		Cases: []Case{{
			Name: "storm-10000", Title: "10,000 subscribers", Kind: Storm, Systems: []System{Tidewire},
			Bytes: 256, Subscribers: 10_000, Partitions: 1, Rate: 200, Duration: 10 * time.Second,
		}},
	}
}

func size() Scenario {
	s := Scenario{
		Name: "size", Title: "Cost against the number of partitions",
		Note: "One in flight each, 256 B, 100,000 keys over four topics. 256 publishers share batches of 64 records on 4 partitions, and none on 1,000; 16 publishers share few on either. Three seconds go by before a run: a partition's first record makes its first segment.",
	}
	for _, publishers := range []int{16, 256} {
		for _, n := range []int{1, 250} {
			s.Cases = append(s.Cases, Case{
				Name: fmt.Sprintf("size-%d-%d", 4*n, publishers), Title: fmt.Sprintf("%d partitions, %d publishers", 4*n, publishers), Kind: Publish, Systems: []System{Tidewire},
				Bytes: 256, Publishers: publishers, Window: 1, Keys: 100_000, Topics: 4, Partitions: n, Warmup: long, Duration: long,
			})
		}
	}
	return s
}
