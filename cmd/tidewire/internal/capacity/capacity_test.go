package capacity

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// measured are round figures.
func measured() Figures {
	return Figures{
		Publish: &Work{CPU: 20, Bytes: 256, Copies: 1}, Replicated: &Work{CPU: 80, Bytes: 256, Copies: 3}, Delivery: &Work{CPU: 10, Bytes: 256},
		Ack: &Work{CPU: 15}, Idle: &Idle{Memory: 10_000, Base: 50 << 20, Cores: 5e-6, Connect: 200, Connections: 5000}, Disk: &Disk{Bytes: 100e6, Sync: 100},
	}
}

// plain is a load that one node of eight processors carries with ease.
func plain() Case {
	return Case{
		Rate: 1000, Peak: 1, Bytes: 936, Replicas: 1, Retention: time.Hour, Load: 0.5,
		Cores: 8, Memory: 32 << 30, Disk: 1 << 40, Network: 10e9, Admitted: 2000,
	}
}

func with(change func(c *Case)) Case {
	c := plain()
	change(&c)
	return c
}

func TestSizing(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(c *Case)
		nodes   int
		binding string
	}{
		"one node, for the record has to be somewhere": {func(*Case) {}, 1, Copies},
		"as many as keep a record":                     {func(c *Case) { c.Replicas = 3 }, 3, Copies},
		"as many as leave a majority":                  {func(c *Case) { c.Replicas, c.Deaths = 2, 1 }, 3, Majority},
		// 400,000 × 20 µs = 8 cores, of 4 that may be used in each.
		"processors": {func(c *Case) { c.Rate, c.Bytes, c.Retention = 400_000, 1, 0 }, 2, Processor},
		// 100,000 × 20 µs + 100,000 × 2 × 30 µs = 8 cores.
		"processors of copies": {func(c *Case) { c.Rate, c.Bytes, c.Retention, c.Replicas, c.Deaths = 100_000, 1, 0, 3, 2 }, 5, Majority},
		// 1,000 × 1,600 × 10 µs = 16 cores, and a bit for publishing.
		"deliveries":           {func(c *Case) { c.Readers = 1600 }, 5, Processor},
		"and one that may die": {func(c *Case) { c.Readers, c.Replicas, c.Deaths = 1600, 3, 1 }, 6, Processor},
		// 1,000,000 × 15 µs = 15 cores.
		"acknowledgements": {func(c *Case) { c.Rate, c.Bytes, c.Retention, c.Groups = 50_000, 1, 0, 20 }, 4, Processor},
		// 10 million × 10,000 B of (32 GiB - 100 MiB) × 0.5.
		"memory": {func(c *Case) { c.Users, c.Online, c.Cores = 1e7, 1, 64 }, 6, Memory},
		// 1,000 × 1,000 B × 30 days = 2.6 TB of 550 GB each.
		"disk space": {func(c *Case) { c.Retention = 720 * time.Hour }, 5, DiskSpace},
		// 60,000 × 1,000 B × 2 = 120 MB/s of 50.
		"disk writes": {func(c *Case) { c.Rate, c.Retention = 60_000, 0 }, 3, DiskWrite},
		// 1,000 × 1,000 × (936 + 250) B of 62.5 MB/s.
		"network":                {func(c *Case) { c.Readers, c.Network, c.Cores = 1000, 1e9, 64 }, 19, Wire},
		"the peak, not the mean": {func(c *Case) { c.Rate, c.Peak, c.Bytes, c.Retention = 100_000, 4, 1, 0 }, 2, Processor},
		"users that publish":     {func(c *Case) { c.Rate, c.Users, c.Messages, c.Bytes, c.Retention = 0, 86_400, 400_000, 1, 0 }, 2, Processor},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Size(with(c.change), measured())
			if err != nil || s.Nodes != c.nodes || s.Binding != c.binding {
				t.Fatalf("%d nodes for the %s, want %d for the %s (%v): %+v", s.Nodes, s.Binding, c.nodes, c.binding, err, s.Needs)
			}
		})
	}
}

func TestWhatCannotBeSized(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *Case)
		lack   func(f *Figures)
		want   string
	}{
		"no load":                     {func(c *Case) { c.Rate = 0 }, nil, "there is no load"},
		"no number":                   {func(c *Case) { c.Rate = math.NaN() }, nil, "--rate: NaN"},
		"all replicas die":            {func(c *Case) { c.Deaths = 1 }, nil, "give more --replicas"},
		"too small a node":            {func(c *Case) { c.Disk = 1 << 30 }, nil, "disk space: a node of this size has none left"},
		"more nodes than anybody has": {func(c *Case) { c.Rate, c.Retention = 1e9, 0 }, nil, "more than the 10000"},
		"nothing of replicas":         {func(c *Case) { c.Replicas = 3 }, func(f *Figures) { f.Replicated = nil }, "--nodes 3 --partitions 6"},
		"nothing of readers":          {func(c *Case) { c.Readers = 1 }, func(f *Figures) { f.Delivery = nil }, "bench fanout"},
		"nothing of groups":           {func(c *Case) { c.Groups = 1 }, func(f *Figures) { f.Ack = nil }, "bench groups"},
		"nothing of connections":      {func(c *Case) { c.Users, c.Online = 1, 1 }, func(f *Figures) { f.Idle = nil }, "bench connections"},
		"nothing at all":              {func(*Case) {}, func(f *Figures) { *f = Figures{} }, "bench publish"},
		"a record for nothing":        {func(*Case) {}, func(f *Figures) { f.Publish.CPU = 0 }, "is not believed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := measured()
			if c.lack != nil {
				c.lack(&f)
			}
			if _, err := Size(with(c.change), f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func drawn(t *rapid.T) Case {
	f := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
	c := Case{
		Users: f("users", 0, 1e6), Online: f("online", 0, 1), Messages: f("messages", 0, 100), Rate: f("rate", 1, 1e5), Peak: f("peak", 1, 5),
		Bytes: rapid.IntRange(1, 4096).Draw(t, "bytes"), Readers: f("readers", 0, 50), Groups: rapid.IntRange(0, 3).Draw(t, "groups"),
		Replicas: rapid.IntRange(1, 5).Draw(t, "replicas"), Retention: time.Duration(rapid.IntRange(0, 1000).Draw(t, "hours")) * time.Hour,
		Load: f("load", 0.1, 1), Cores: f("cores", 1, 64), Memory: 32 << 30, Disk: 1 << 42, Network: 10e9, Admitted: 2000,
	}
	c.Deaths = rapid.IntRange(0, c.Replicas-1).Draw(t, "deaths")
	return c
}

// A larger load takes no fewer nodes, and a larger node no more of them.
func TestALargerLoadTakesNoFewerNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		f := measured()
		before, err := Size(c, f)
		if err != nil {
			return // too many nodes, or a node that has nothing left
		}
		grow := rapid.Float64Range(1, 3).Draw(t, "by")
		more, less := c, c
		for name, change := range map[string]func(){
			"users": func() { more.Users *= grow }, "messages": func() { more.Messages *= grow }, "rate": func() { more.Rate *= grow },
			"peak": func() { more.Peak *= grow }, "readers": func() { more.Readers *= grow }, "online": func() { more.Online = min(1, more.Online*grow) },
			"bytes": func() { more.Bytes = int(float64(more.Bytes) * grow) }, "groups": func() { more.Groups++ }, "replicas": func() { more.Replicas++ },
			"retention": func() { more.Retention = time.Duration(float64(more.Retention) * grow) },
			"headroom":  func() { more.Load /= grow }, "smaller nodes": func() { more.Cores /= grow; more.Network /= grow; more.Disk /= grow },
			"deaths": func() { more.Deaths = min(more.Deaths+1, more.Replicas-1) },
		} {
			more = c
			change()
			after, err := Size(more, f)
			if err != nil { // too many for anybody
				continue
			}
			if after.Nodes < before.Nodes {
				t.Fatalf("more %s: %d nodes in place of %d", name, after.Nodes, before.Nodes)
			}
		}
		less.Cores, less.Memory, less.Disk, less.Network = c.Cores*grow, c.Memory*grow, c.Disk*grow, c.Network*grow
		if after, err := Size(less, f); err != nil || after.Nodes > before.Nodes {
			t.Fatalf("larger nodes: %d in place of %d (%v)", after.Nodes, before.Nodes, err)
		}
	})
}

// Whatever is sized, nothing is used beyond its share, also after the deaths, and one node
// less would not do.
func TestASizingHoldsItsShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		s, err := Size(c, measured())
		if err != nil {
			return // too many nodes, or a node that has nothing left
		}
		tight := s.Nodes <= max(c.Replicas, 2*c.Deaths+1) || s.Nodes-c.Deaths <= 1
		for _, n := range s.Needs {
			if n.Survived > c.Load*(1+1e-9) || n.Used > n.Survived {
				t.Fatalf("%s: used %v, %v after the deaths, of %v", n.Resource, n.Used, n.Survived, c.Load)
			}
			tight = tight || n.Demand/(n.Node*float64(s.Nodes-c.Deaths-1)) > c.Load*(1-1e-9)
		}
		if !tight {
			t.Fatalf("%d nodes are more than needed: %+v", s.Nodes, s.Needs)
		}
		if s.CeilingDead < 1-1e-9 || s.Ceiling < s.CeilingDead {
			t.Fatalf("room for %v and %v", s.Ceiling, s.CeilingDead)
		}
		if s.Wave.Seconds < 0 || math.IsNaN(s.Wave.Seconds) || s.Copying != nil && !(*s.Copying >= 0) {
			t.Fatalf("%+v %v", s.Wave, s.Copying)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		for _, a := range append(Arithmetic(c, measured(), s), Assumptions(c, measured(), s)...) {
			if strings.Contains(a.Is, "%!") || strings.Contains(a.Is, "NaN") {
				t.Fatal(a)
			}
		}
	})
}

const lines = `{"kind":"floor","floor":"write + fdatasync","bytes":256,"per_second":1000,"latency_us":{"p50":197}}
{"kind":"floor","floor":"the same, 64 records at once","bytes":16384,"per_second":100000,"latency_us":{"p50":206}}
{"kind":"floor","floor":"websocket echo","connections":64,"bytes":256,"per_second":47360,"server":{"cpu_us":12}}
{"kind":"run","bench":"publish","load":{"acks":"all","bytes":256,"nodes":1},"best":true,"per_second":5,"server":{"cpu_us":20}}
{"kind":"run","bench":"publish","load":{"acks":"all","bytes":256,"nodes":1},"best":false,"per_second":4,"server":{"cpu_us":90}}
{"kind":"run","bench":"publish","load":{"acks":"none","bytes":256,"nodes":1},"best":true,"per_second":9,"server":{"cpu_us":99}}
{"kind":"summary","bench":"publish"}

{"kind":"floor","floor":"write + fdatasync","bytes":100,"per_second":1000,"latency_us":{"p50":150}}
{"kind":"floor","floor":"the same, 3 files at once","bytes":100,"per_second":999,"latency_us":{"p50":580}}
{"kind":"floor","floor":"the same, 64 records at once","bytes":6400,"per_second":900000,"latency_us":{"p50":563}}
{"kind":"run","bench":"publish","load":{"acks":"all","bytes":256,"nodes":5},"best":true,"per_second":3,"server":{"cpu_us":80}}
{"kind":"run","bench":"fanout","load":{"acks":"all","bytes":250,"nodes":1},"best":true,"per_second":7,"server":{"cpu_us":9}}
{"kind":"run","bench":"fanout","load":{"acks":"all","bytes":251,"nodes":1},"best":true,"per_second":6,"server":{"cpu_us":11}}
{"kind":"run","bench":"latency","load":{},"best":true,"per_second":6,"server":{"cpu_us":110}}
{"kind":"run","bench":"groups","load":{"bytes":100,"nodes":1},"best":true,"per_second":8,"server":{"cpu_us":12}}
{"kind":"connections","connections":100,"connect_cpu_us":188,"rss_bytes_each":null}
{"kind":"connections","connections":5000,"connect_cpu_us":188,"rss_bytes_each":10000,"idle_cores":0.05,"snapshots":[{"rss_bytes":35000000}]}
`

func TestFiguresAreTheDearestOfTheBestRuns(t *testing.T) {
	var f Figures
	if err := f.Read(strings.NewReader(lines)); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(f)
	want := `{"publish":{"cpu_us":20,"bytes":256,"copies":1,"per_second":5},"replicated":{"cpu_us":80,"bytes":256,"copies":3,"per_second":3},` +
		`"delivery":{"cpu_us":11,"bytes":251,"copies":1,"per_second":6},"ack":{"cpu_us":12,"bytes":100,"copies":1,"per_second":8},` +
		`"idle":{"memory_bytes":10000,"base_memory_bytes":35000000,"cores":0.00001,"connect_cpu_us":188,"measured_with":5000},"disk":{"bytes_per_second":25600000,"sync_p50_us":197}}`
	if string(got) != want || err != nil {
		t.Errorf("%s\nwant %s", got, want)
	}
	if f.copy() != 30 {
		t.Errorf("a copy costs %v", f.copy())
	}
}

func TestLinesThatAreNotOfABenchmark(t *testing.T) {
	for text, want := range map[string]string{
		"{}\nPER SECOND": "line 2 is no JSON of a benchmark",
		`{"kind":"run","bench":"publish","load":{"bytes":1},"best":true,"server":{"cpu_us":1}}`: "an older version printed it",
		`{"kind":"run","bench":"fanout","load":{"nodes":1},"best":true,"server":null}`:          "did not know the server's process",
	} {
		var f Figures
		if err := f.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func played(t *testing.T, c Case, p Play) (Sizing, Simulated) {
	t.Helper()
	s, err := Size(c, measured())
	if err != nil {
		t.Fatal(err)
	}
	out, err := Simulate(c, measured(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return s, out
}

// Without bursts and deaths what is played is what was reckoned.
func TestWhatIsPlayedIsWhatWasReckoned(t *testing.T) {
	c := with(func(c *Case) {
		c.Users, c.Online, c.Rate, c.Readers, c.Groups, c.Replicas, c.Deaths, c.Cores = 100_000, 1, 5000, 100, 2, 3, 0, 4
	})
	s, out := played(t, c, Play{Seed: 1, Seconds: 300, Burst: 1})
	for name, p := range map[string]Phase{"before": out.Before, "after": out.After} {
		if math.Abs(p.Mean/s.Needs[0].Used-1) > 0.02 {
			t.Errorf("%s: %.3f of the processors are used, reckoned were %.3f", name, p.Mean, s.Needs[0].Used)
		}
		if p.P99 < p.Mean || p.P99 > 1.2*p.Mean || p.Behind > 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if out.Wave.Seconds != 0 || out.Clients != 0 || out.All != -1 {
		t.Errorf("nobody died: %+v", out)
	}
}

// A death: all clients come back, no sooner than was reckoned; the others carry the load.
func TestClientsComeBackFromTheDead(t *testing.T) {
	c := with(func(c *Case) {
		c.Users, c.Online, c.Rate, c.Readers, c.Replicas, c.Deaths, c.Admitted = 200_000, 1, 500, 100, 3, 1, 1000
	})
	for seed := range uint64(5) {
		s, out := played(t, c, Play{Seed: seed, Seconds: 600, Burst: 1})
		if out.All < s.Wave.Seconds-1 || out.All > s.Wave.Seconds+3*mostBackoff || out.Half > out.All || out.Refused == 0 || out.Attempts != out.Clients+out.Refused {
			t.Errorf("seed %d: reckoned %.1f s, played %+v", seed, s.Wave.Seconds, out)
		}
		if math.Abs(out.After.Mean/s.Needs[0].Survived-1) > 0.03 {
			t.Errorf("seed %d: %.3f of the processors are used after it, reckoned were %.3f", seed, out.After.Mean, s.Needs[0].Survived)
		}
		if _, again := played(t, c, Play{Seed: seed, Seconds: 600, Burst: 1}); fmt.Sprint(again) != fmt.Sprint(out) {
			t.Errorf("seed %d is played otherwise the second time", seed)
		}
	}
}

// Bursts beyond what there is are worked off.
func TestBurstsAreWorkedOff(t *testing.T) {
	c := with(func(c *Case) { c.Readers, c.Load = 1500, 0.7 })
	_, quiet := played(t, c, Play{Seed: 3, Seconds: 3000, Burst: 1})
	_, loud := played(t, c, Play{Seed: 3, Seconds: 3000, Burst: 3})
	if quiet.Before.Behind > 0.5 || loud.Before.Behind < 1 || loud.Before.P99 != 1 || loud.Before.Behind > 60 {
		t.Errorf("%+v\n%+v", quiet.Before, loud.Before)
	}
}

func TestWhatIsNotPlayed(t *testing.T) {
	s, err := Size(plain(), measured())
	if err != nil {
		t.Fatal(err)
	}
	huge := s
	huge.Wave.Connections = 2 * mostClients
	for _, c := range []struct {
		Sizing
		Play
	}{{s, Play{Seconds: 29, Burst: 1}}, {s, Play{Seconds: 100_000, Burst: 1}}, {s, Play{Seconds: 60}}, {s, Play{Seconds: 60, Burst: math.NaN()}}, {huge, Play{Seconds: 60, Burst: 1}}} {
		if _, err := Simulate(plain(), measured(), c.Sizing, c.Play); err == nil {
			t.Errorf("%+v is played", c.Play)
		}
	}
}
