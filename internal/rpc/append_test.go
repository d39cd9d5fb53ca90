package rpc

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

func TestAppendsAndTheirAnswers(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	next := make(chan func(Append, func(Appended)), 1)
	s.Broker(&broker{append: func(req Append, done func(Appended)) { (<-next)(req, done) }})
	r := toB(t, peersTo(t, s.Addr()))
	sizes := []int{0, 1000, referFrom, 100 << 10, record.MaxBatchBytes - 200}
	for i, size := range sizes {
		batch := batchOf(size)
		req := Append{Partition: topic, Epoch: 9, Batch: batch, Acks: AcksLeader}
		next <- func(got Append, done func(Appended)) {
			if got.Partition != req.Partition || got.Epoch != 9 || got.Acks != AcksLeader || !bytes.Equal(got.Batch, batch) {
				t.Errorf("%d bytes: another request came", size)
			}
			done(Appended{Records: []RecordResult{{Offset: ident.Offset(i), Timestamp: 77}, {Err: fault.New(fault.Fenced, "no"), Offset: -1}}})
		}
		answer := make(chan Appended, 1)
		r.Append(req, func(a Appended) { answer <- a })
		a := await(t, answer)
		if a.Err != nil || len(a.Records) != 2 || a.Records[0] != (RecordResult{Offset: ident.Offset(i), Timestamp: 77}) || !fault.Is(a.Records[1].Err, fault.Fenced) {
			t.Errorf("%d bytes: %+v", size, a)
		}
	}
	next <- func(_ Append, done func(Appended)) {
		done(Appended{Err: fault.New(fault.NotEnoughReplicas, "two of three").With("expected", 2).After(time.Second)})
	}
	f := fault.As(appended(t, r, batchOf(1)).Err)
	if f.Kind != fault.NotEnoughReplicas || f.Fields["expected"] != int64(2) || f.RetryAfter != time.Second || f.Detail() != "two of three" {
		t.Errorf("%+v", f)
	}
}

func TestWhatIsNoBatchIsRefused(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	s.Broker(&broker{append: keepAll})
	r := toB(t, peersTo(t, s.Addr()))
	for _, bad := range []record.Batch{nil, []byte("short"), append(batchOf(5), 0), batchOf(5)[:70]} {
		if a := appended(t, r, bad); !fault.Is(a.Err, fault.Invalid) {
			t.Errorf("%d bytes: %+v", len(bad), a)
		}
	}
	if a := appended(t, r, batchOf(5)); a.Err != nil {
		t.Error(a.Err)
	}
}

// Answers come in the order in which the broker gives them, from many goroutines and
// for many batches at once, and each batch gets its own.
func TestManyAppendsUnderWay(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	var mu sync.Mutex
	var waiting []func()
	s.Broker(&broker{append: func(req Append, done func(Appended)) {
		mu.Lock()
		defer mu.Unlock()
		waiting = append(waiting, func() { done(Appended{Records: []RecordResult{{Offset: ident.Offset(req.Epoch)}}}) })
		if len(waiting) == 100 {
			var wg sync.WaitGroup
			for _, d := range slices.Backward(waiting) {
				wg.Go(d)
			}
			waiting = nil
			wg.Wait()
		}
	}})
	r := toB(t, peersTo(t, s.Addr()))
	const n = 5000
	answers := make(chan error, n)
	var wg sync.WaitGroup
	for w := range 5 {
		wg.Go(func() {
			for i := w; i < n; i += 5 {
				r.Append(Append{Partition: topic, Epoch: ident.Epoch(i), Batch: batchOf(i % 3000)}, func(a Appended) {
					if a.Err == nil && (len(a.Records) != 1 || a.Records[0].Offset != ident.Offset(i)) {
						a.Err = fmt.Errorf("append %d was answered %+v", i, a)
					}
					answers <- a.Err
				})
			}
		})
	}
	wg.Wait()
	for range n {
		if err := await(t, answers); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.appends.current; len(st.flights) != 0 || st.bytes != 0 {
		t.Errorf("%d batches of %d bytes count as under way", len(st.flights), st.bytes)
	}
}

// What was sent when the connection broke nobody knows; what never was is definite.
func TestABrokenStreamAnswersEverything(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	took := make(chan func(Appended), 10)
	s.Broker(&broker{append: func(_ Append, done func(Appended)) { took <- done }})
	r := toB(t, peersTo(t, s.Addr()))
	answers := make(chan Appended, 10)
	for range 3 {
		r.Append(Append{Partition: topic, Batch: batchOf(10)}, func(a Appended) { answers <- a })
	}
	done := await(t, took)
	await(t, took)
	await(t, took)
	if err := r.appends.current.line.conn.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := await(t, answers); !fault.Is(a.Err, fault.UnknownOutcome) {
			t.Errorf("%+v", a)
		}
	}
	done(Appended{}) // too late, and harmless
	r.Append(Append{Partition: topic, Batch: batchOf(10)}, func(a Appended) { answers <- a })
	await(t, took)(Appended{}) // over another connection
	if a := await(t, answers); a.Err != nil {
		t.Error(a.Err)
	}
	s.stop()
	parted(t, r)
	for range 20 {
		if a := appended(t, r, batchOf(10)); !fault.Is(a.Err, fault.LeaderUnavailable) {
			t.Errorf("%+v", a)
		}
	}
	select {
	case a := <-answers:
		t.Errorf("a batch was answered twice: %+v", a)
	default:
	}
}

// A server that stops in order answers what it took in, and says what it did not.
func TestAStopAnswersWhatWasTakenIn(t *testing.T) {
	s := serve(t, ServerConfig{}, "127.0.0.1:0")
	took := make(chan func(Appended), 10)
	s.Broker(&broker{append: func(_ Append, done func(Appended)) { took <- done }})
	r := toB(t, peersTo(t, s.Addr()))
	answers := make(chan Appended, 10)
	r.Append(Append{Partition: topic, Batch: batchOf(10)}, func(a Appended) { answers <- a })
	done := await(t, took)
	var stopped sync.WaitGroup
	stopped.Go(s.stop)
	<-s.stopping
	stream := r.appends.current
	// From here on nothing is taken in; how soon is the server's affair.
	for {
		in := make(chan Appended, 1)
		r.Append(Append{Partition: topic, Batch: batchOf(10)}, func(a Appended) { in <- a })
		select {
		case more := <-took:
			more(Appended{})
			continue
		case <-time.After(100 * time.Millisecond):
		}
		done(Appended{Records: []RecordResult{{Offset: 1}}})
		if a := await(t, answers); a.Err != nil {
			t.Errorf("what was taken in: %v", a.Err)
		}
		select {
		case a := <-in:
			if !fault.Is(a.Err, fault.LeaderUnavailable) {
				t.Errorf("what was not taken in: %+v", a)
			}
		case more := <-took: // it was only on its way for long
			more(Appended{})
			if a := await(t, in); a.Err != nil {
				t.Errorf("what was taken in last: %v", a.Err)
			}
		}
		break
	}
	stopped.Wait()
	if stream == nil {
		t.Error("there was no stream")
	}
}

func TestAppendsToNobody(t *testing.T) {
	r := toB(t, peersTo(t, refusing(t)))
	a := appended(t, r, batchOf(10))
	if !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", a)
	} else if !strings.Contains(a.Err.Error(), "refused") {
		t.Errorf("a refused connection was not told of: %v", a.Err)
	}
}

func TestAppendsToTheWrongNode(t *testing.T) {
	for name, cfg := range map[string]ServerConfig{
		"another node":    {Self: func() cluster.Life { return cluster.Life{Node: nodeA} }},
		"another cluster": {Cluster: func() ident.ClusterID { return ident.ClusterID{1} }},
	} {
		s := serve(t, cfg, "127.0.0.1:0")
		s.Broker(&broker{append: keepAll})
		r := toB(t, peersTo(t, s.Addr()))
		for range 3 {
			a := appended(t, r, batchOf(10))
			if !fault.Is(a.Err, fault.LeaderUnavailable) || a.Err.Error() == "" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	s := serve(t, ServerConfig{}, "127.0.0.1:0") // which has no broker (yet)
	r := toB(t, peersTo(t, s.Addr()))
	if a := appended(t, r, batchOf(10)); !fault.Is(a.Err, fault.LeaderUnavailable) {
		t.Errorf("%+v", a)
	}
	s.Broker(&broker{append: keepAll})
	if a := appended(t, r, batchOf(10)); a.Err != nil {
		t.Error(a.Err)
	}
}

// A broker that does not answer has so much under way and no more; who asks for more
// is told at once.
func TestABrokerThatDoesNotAnswerIsBounded(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	batch := batchOf(1 << 20)
	most := maxUnansweredBytes / len(batch)
	took := make(chan func(Appended), 2*most)
	s.Broker(&broker{append: func(_ Append, done func(Appended)) { took <- done }})
	r := toB(t, peersTo(t, s.Addr()))
	answers := make(chan Appended, 2*most)
	for range 2 * most {
		r.Append(Append{Partition: topic, Batch: batch}, func(a Appended) { answers <- a })
	}
	for range most {
		if a := await(t, answers); !fault.Is(a.Err, fault.LeaderUnavailable) {
			t.Fatalf("%+v", a)
		}
	}
	for range most {
		await(t, took)(Appended{Records: []RecordResult{{Offset: 1}}})
	}
	for range most {
		if a := await(t, answers); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if len(took)+len(answers) > 0 {
		t.Errorf("%d batches too many were taken in, %d answers too many came", len(took), len(answers))
	}
}

// Neither sent nor kept without bound: a client that sends batches and reads no answers.
func TestAClientThatDoesNotReadIsReadNoFurther(t *testing.T) {
	s := serve(t, ServerConfig{StopLimit: time.Millisecond}, "127.0.0.1:0")
	var taken atomic.Int64
	// Answers of many records that differ are long.
	long := Appended{Records: make([]RecordResult, 20000)}
	for i := range long.Records {
		long.Records[i] = RecordResult{Offset: ident.Offset(i), Duplicate: true}
	}
	s.Broker(&broker{append: func(_ Append, done func(Appended)) { taken.Add(1); done(long) }})
	r := toB(t, peersTo(t, s.Addr()))
	line, err := r.open(t.Context(), methodAppend)
	if err != nil {
		t.Fatal(err)
	}
	defer line.close()
	items := make([]appendItem, 200)
	for i := range items {
		items[i] = appendItem{uint64(i + 1), Append{Partition: topic, Batch: batchOf(10)}}
	}
	sent := make(chan int, 1)
	var sending sync.WaitGroup
	sending.Go(func() {
		n := 0
		for range 20000 {
			var e encoder
			(&appendRequest{items: items}).encode(&e)
			if line.send(frameMessage, &e) != nil {
				break
			}
			n += len(items)
		}
		sent <- n
	})
	// Once nothing more is taken in, not more than so many wait for their answers.
	for last := int64(-1); ; {
		now := taken.Load()
		if now > 0 && now == last {
			break
		}
		last = now
		select {
		case n := <-sent:
			t.Fatalf("%d batches were sent, and %d taken in: nothing stopped it", n, taken.Load())
		case <-time.After(500 * time.Millisecond):
		}
	}
	if n := taken.Load(); n > maxUnanswered+1000 {
		t.Errorf("%d batches were taken in, and no answer was read", n)
	}
	line.close()
	sending.Wait()
}

// Whoever has a batch waits for nobody, also not for a node that reads nothing.
func TestAnAppendNeverWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	opened := make(chan net.Conn, 1)
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		f := newFramed(t.Context(), conn, NewMetrics(nil))
		if _, err := f.in.Discard(len(preface)); err != nil {
			t.Error(err)
		}
		if kind, _, _, err := f.frame(); kind != frameOpen || err != nil {
			t.Error(kind, err)
		}
		if _, err := conn.Write(frameOf(frameOpen, nil)); err != nil {
			t.Error(err)
		}
		if _, _, err := f.next(); err != nil { // the first batch; from here on it reads nothing
			t.Error(err)
		}
		opened <- conn
	})
	r := toB(t, peersTo(t, l.Addr().String()))
	answers := make(chan Appended, 1000)
	put := func(bytes int) {
		batch := batchOf(bytes)
		began := time.Now()
		r.Append(Append{Partition: topic, Batch: batch}, func(a Appended) { answers <- a })
		if d := time.Since(began); d > time.Second {
			t.Errorf("a batch of %d bytes took %v", bytes, d)
		}
	}
	put(1)
	conn := await(t, opened)
	defer conn.Close()
	put(1) // by this goroutine
	put(record.MaxBatchBytes - 200)
	for range 900 {
		put(10 << 10)
	}
	for range 903 {
		if a := await(t, answers); !fault.Is(a.Err, fault.UnknownOutcome) && !fault.Is(a.Err, fault.LeaderUnavailable) {
			t.Fatalf("%+v", a)
		}
	}
}
