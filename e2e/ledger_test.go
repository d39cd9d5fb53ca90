package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
	"tidewire/internal/testkit/check"
)

// writer publishes numbered records to one partition, one after the other, and
// notes each in a history. It belongs to one goroutine.
type writer struct {
	api       *client.API
	rec       *check.Recorder
	name      string // unique in the history
	topic     string
	partition int
	producer  string // "": not idempotent
	pad       string // behind the value that the history knows

	next int64 // record; a producer's is its sequence too
	acks int
}

// acknowledged is how many records the writer was told are kept.
func (w *writer) acknowledged() int { return w.acks }

// newWriters makes writers for the partitions of a topic in turn, every second
// one an idempotent producer.
func newWriters(n *harness.Node, rec *check.Recorder, topic string, partitions, count int, pad int) []*writer {
	all := make([]*writer, count)
	for i := range all {
		all[i] = &writer{
			api: client.New(n.URL), rec: rec, name: fmt.Sprintf("%s-w%d", topic, i), topic: topic, partition: i % partitions,
			pad: strings.Repeat("x", pad),
		}
		if i%2 == 0 {
			all[i].producer = uuid.NewString()
		}
	}
	return all
}

// answer is what became of one put.
type answer struct {
	code  string         // of a refusal
	err   error          // nobody knows
	place client.Place   // else
	full  *client.Answer // as it came; nil where none did
}

func (a answer) kept() bool { return a.code == "" && a.err == nil }

// put publishes the writer's next record. A producer that was not told "kept"
// sends the same again the next time; others go on.
func (w *writer) put(ctx context.Context) answer {
	value := fmt.Sprintf("%s-%d", w.name, w.next)
	op := check.Op{Process: w.name, Topic: w.topic, Value: value}
	headers := []string{}
	if w.producer != "" {
		op.Idempotent, op.Producer, op.Sequence = true, w.producer, w.next
		headers = []string{"Tidewire-Producer", w.producer, "Tidewire-Sequence", strconv.FormatInt(w.next, 10)}
	}
	pending := w.rec.Invoke(op)
	ans, err := w.api.Do(ctx, http.MethodPost, fmt.Sprintf("/topics/%s?partition=%d", w.topic, w.partition), "text/plain", value+" "+w.pad, headers...)
	if err != nil {
		pending.Unknown(err.Error())
		w.after(false)
		return answer{err: err}
	}
	if ans.Status == http.StatusOK || ans.Status == http.StatusCreated {
		place, err := ans.Place()
		if err != nil {
			pending.Unknown(err.Error())
			return answer{err: err, full: &ans}
		}
		offset := check.NoOffset
		if place.Offset != nil {
			offset = *place.Offset
		}
		pending.OK(place.Partition, offset, place.Duplicate != nil && *place.Duplicate)
		w.after(true)
		return answer{place: place, full: &ans}
	}
	p, err := ans.Problem()
	if err != nil {
		pending.Unknown(err.Error())
		return answer{err: err, full: &ans}
	}
	if p.Code == "unknown-outcome" || ans.Status == http.StatusInternalServerError {
		pending.Unknown(p.Code)
		err = fmt.Errorf("%d %s: %s", p.Status, p.Code, p.Detail)
	} else {
		pending.Fail(p.Code)
	}
	w.after(false)
	return answer{code: p.Code, err: err, full: &ans}
}

func (w *writer) after(kept bool) {
	if kept {
		w.acks++
	}
	if kept || w.producer == "" {
		w.next++
	}
}

// mustPut is put for a node that is well.
func (w *writer) mustPut(t testing.TB) {
	t.Helper()
	if a := w.put(t.Context()); !a.kept() {
		t.Fatalf("%s: record %d: %s %v", w.name, w.next, a.code, a.err)
	}
}

// keepLogs reads every partition of the topics into a history.
func keepLogs(t testing.TB, n *harness.Node, rec *check.Recorder, topics ...string) (records int) {
	t.Helper()
	api := client.New(n.URL)
	for _, topic := range topics {
		info := api.Topic(t, topic)
		for _, p := range info.Layout.Partitions {
			l := check.Log{Topic: topic, Partition: p.ID, Start: p.Earliest, End: p.HW}
			for _, m := range api.ReadAll(t, topic, p.ID) {
				l.Records = append(l.Records, check.Record{Offset: m.Offset, Key: m.KeyText(), Value: valueOf(m)})
			}
			records += len(l.Records)
			rec.Log(l)
		}
	}
	return records
}

// valueOf is the part of a message's value that a history knows.
func valueOf(m client.Message) string {
	value, _, _ := strings.Cut(string(m.Bytes()), " ")
	return value
}

// judge checks a history and says what was in it.
func judge(t testing.TB, rec *check.Recorder) {
	t.Helper()
	report := rec.History().Check()
	t.Log(report)
	if err := report.Err(); err != nil {
		t.Error("promises were broken, see above")
	}
	if report.Counts.Acknowledged == 0 || report.Counts.Records == 0 {
		t.Error("nothing was acknowledged or nothing was kept: this proves nothing")
	}
}

// countKept reads the answers of an ndjson call and counts the lines that were
// kept; the error names the first that was not.
func countKept(r io.Reader) (kept int, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), []byte(`"offset":`)) && !bytes.Contains(lines.Bytes(), []byte(`"code":`)) {
			kept++
		} else if err == nil {
			err = fmt.Errorf("a line was answered with %s", lines.Text())
		}
	}
	return kept, errors.Join(err, lines.Err())
}
