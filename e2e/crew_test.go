package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// crew is producers and subscribers of one topic of a cluster whose nodes come and
// go, spread over its gateways, and the history of what they were told. A
// producer waits for each answer before it sends the next record, and keeps to one
// partition, so that how long it waits says how long that partition did not take
// records.
type crew struct {
	t       *testing.T
	cluster *harness.Cluster
	opts    crewOptions
	topic   client.TopicInfo
	rec     *check.Recorder
	ctx     context.Context // of everything
	cancel  context.CancelFunc

	mu       sync.Mutex
	gateways []gateway

	stopping atomic.Bool // producers begin nothing new
	finished atomic.Bool // readers have read everything
	acked    atomic.Int64
	retried  atomic.Int64
	lost     atomic.Int64 // not idempotent, and under way when a connection ended
	answers  answerCounts // refusals
	failures failures
	losses   failures // words for the lost
	late     failures // what took longer than its bound
	waited   waited

	publishing sync.WaitGroup
	reading    sync.WaitGroup
	producers  []*producer
	readers    []*crewReader
	before     map[string]traces // of the nodes, when nobody was there
}

// gateway is where clients dial.
type gateway struct{ name, addr, url string }

// crewOptions say how large a crew is.
type crewOptions struct {
	topic      string
	settings   string // of the topic; "": 6 partitions of 3 replicas
	partitions int    // 0: 6
	producers  int    // 0: 12
	readers    int    // each tenth reads all partitions, the others one
	pace       time.Duration
	pad        int                               // bytes of each value besides
	at         func(g *harness.Member) bool      // gateways that clients use; nil: all
	mayRefuse  func(code string, by string) bool // refusals by a gateway that are no failure; nil: none
	bound      time.Duration                     // of everything; 0: 5m
}

// failures are writes that were refused although they should have been kept.
type failures struct {
	mu    sync.Mutex
	n     int
	first []string
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; len(f.first) < 10 {
		f.first = append(f.first, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// largeCrew is that of the acceptance, or a smaller one where there is little time.
func largeCrew(topic string) crewOptions {
	o := crewOptions{topic: topic, readers: 60, pace: 15 * time.Millisecond}
	if harness.Soak() {
		o.readers, o.bound = 200, 30*time.Minute
	}
	return o
}

// startCrew makes the topic and starts everybody.
func startCrew(t *testing.T, c *harness.Cluster, o crewOptions) *crew {
	t.Helper()
	if o.partitions == 0 {
		o.partitions = 6
	}
	if o.producers == 0 {
		o.producers = 12
	}
	if o.settings == "" {
		o.settings = `"replicas":3`
	}
	if o.bound == 0 {
		o.bound = 5 * time.Minute
	}
	if o.pace == 0 {
		o.pace = 15 * time.Millisecond
	}
	info := c.API().CreateTopic(t, o.topic, fmt.Sprintf(`"partitions":%d,%s`, o.partitions, o.settings))
	ctx, cancel := context.WithTimeoutCause(t.Context(), o.bound, fmt.Errorf("not done within %s", o.bound))
	w := &crew{t: t, cluster: c, opts: o, topic: info, rec: check.NewRecorder(), ctx: ctx, cancel: cancel, before: map[string]traces{}}
	for _, m := range c.Members {
		w.before[m.Name] = tracesOf(m)
	}
	for _, m := range c.With("gateway") {
		if o.at == nil || o.at(m) {
			w.use(m)
		}
	}
	t.Cleanup(func() {
		w.finished.Store(true)
		w.cancel()
		w.publishing.Wait()
		w.reading.Wait()
	})
	c.AwaitWhole(patience, o.topic)
	for i := range o.readers {
		w.subscribe(i)
	}
	for i := range o.producers {
		w.produce(i)
	}
	w.awaitEach(2)
	return w
}

// use lets clients dial one more gateway.
func (w *crew) use(m *harness.Member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gateways = append(w.gateways, gateway{m.Name, m.Addr, m.URL})
}

// gateway is the i-th of those that may be dialled, round and round.
func (w *crew) gateway(i int) gateway {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gateways[i%len(w.gateways)]
}

// info is the topic as it stands.
func (w *crew) info() client.TopicInfo {
	w.t.Helper()
	return w.cluster.AwaitTopic(patience, w.topic.Name, "is described", func(client.TopicInfo) bool { return true })
}

// awaitEach waits until every producer has so many more acknowledgements.
func (w *crew) awaitEach(n int) {
	w.t.Helper()
	before := make([]int, len(w.producers))
	for i, p := range w.producers {
		before[i] = p.waits.count()
	}
	harness.Await(w.t, patience, fmt.Sprintf("%d more acknowledgements for each producer", n), func() bool {
		w.check()
		for i, p := range w.producers {
			if p.waits.count() < before[i]+n {
				return false
			}
		}
		return true
	})
}

// check ends the test where somebody of the crew has found a fault.
func (w *crew) check() {
	w.t.Helper()
	if w.ctx.Err() != nil {
		w.t.Fatal(context.Cause(w.ctx))
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// finish lets the producers end what they began and the readers read to the end,
// then judges the history.
func (w *crew) finish() {
	w.t.Helper()
	w.stopping.Store(true)
	w.publishing.Wait()
	w.check()
	w.cluster.AwaitWhole(patience, w.topic.Name)
	api := w.cluster.API()
	ends := map[int]int64{}
	for _, p := range api.Topic(w.t, w.topic.Name).Layout.Partitions {
		log := check.Log{Topic: w.topic.Name, Partition: p.ID, Start: p.Earliest, End: p.HW}
		for _, m := range api.ReadAll(w.t, w.topic.Name, p.ID) {
			log.Records = append(log.Records, check.Record{Offset: m.Offset, Key: m.KeyText(), Value: valueOf(m)})
		}
		ends[p.ID] = p.HW
		w.rec.Log(log)
	}
	for _, x := range w.readers {
		harness.Await(w.t, patience, "every subscriber at the end: "+x.behind(ends), func() bool { return x.behind(ends) == "" || w.t.Failed() })
		x.tape.Complete()
	}
	w.finished.Store(true)
	w.cancel()
	w.reading.Wait()
	history := w.rec.History()
	report := history.Check()
	w.t.Logf("history:\n%s", report)
	connections := int64(0)
	for _, x := range w.readers {
		connections += x.opened.Load()
	}
	w.t.Logf("%d subscribers over %d connections; repeats sent after an open end: %d; lost with a connection, not idempotent: %d; refused: %s; failed: %d",
		len(w.readers), connections, w.retried.Load(), w.lost.Load(), &w.answers, w.failures.n)
	w.judgeWaits()
	if w.losses.n > 0 {
		w.t.Logf("lost with a connection:\n%s", strings.Join(w.losses.first, "\n"))
	}
	if w.failures.n > 0 {
		w.t.Errorf("%d writes failed:\n%s", w.failures.n, strings.Join(w.failures.first, "\n"))
	}
	if !report.OK() {
		path := filepath.Join(os.TempDir(), strings.ReplaceAll(w.t.Name(), "/", "-")+".history.json")
		w.t.Errorf("promises broken; the history is in %s (%v)", path, history.Save(path))
	}
	if report.Counts.Acknowledged == 0 || report.Counts.Records == 0 || w.opts.readers > 0 && report.Counts.Reads == 0 {
		w.t.Error("nothing was acknowledged, kept or read: this proves nothing")
	}
}

// identical stops all nodes, which hold nothing of the crew any more, and wants
// their logs to be the same bytes.
func (w *crew) identical() {
	w.t.Helper()
	w.nothingLeft()
	w.cluster.StopAll()
	harness.SameReplicas(w.t, harness.Replicas(w.t, w.cluster.Dirs()...))
}
