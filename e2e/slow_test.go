package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestASlowConsumerIsEndedAndResumes: one that stops reading is ended with the
// verdict 4001 in log and metrics after slow_consumer_timeout, and goes on where it
// was without a gap.
func TestASlowConsumerIsEndedAndResumes(t *testing.T) {
	beside(t)
	const timeout, records, size = 2 * time.Second, 400, 100 << 10
	n := harness.Start(t, harness.Options{Args: []string{"--slow-consumer-timeout", timeout.String()}})
	client.New(n.URL).CreateTopic(t, "firehose", "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := client.DialWS(ctx, n.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Drop()
	f, err := w.Call(ctx, 1, `{"op":"subscribe","id":1,"topic":"firehose"}`)
	if err != nil || f.Op != "subscribed" {
		t.Fatalf("%s %v", f.Raw, err)
	}
	cursor, last := f.Cursor, int64(-1)
	line := fmt.Sprintf(`{"value":"%s"}`+"\n", strings.Repeat("f", size))
	const some = 10
	// It reads a little, and then no more, of 40 MB: more than any kernel takes.
	publishAll(t, n.URL, "firehose", strings.Repeat(line, some), some)
	for last < some-1 {
		f, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if f.Op == "message" {
			last = f.Message.Offset
		}
	}
	publishAll(t, n.URL, "firehose", strings.Repeat(line, records-some), records-some)
	published, starved := time.Now(), harness.Starved(n)
	harness.Await(t, patience, "the end of the slow consumer", func() bool { return n.Metric("gateway_slow_consumers_total") == 1 })
	if took := time.Since(published); took > slack(3*timeout)+starved() {
		t.Errorf("ended %s after the last record, with a timeout of %s", took, timeout)
	}
	harness.Await(t, patience, "its close", func() bool { return n.Metric("gateway_websocket_closes_total", `code="4001"`) == 1 })
	if log := n.Log(); !strings.Contains(log, "closed a slow consumer") || !strings.Contains(log, "code=4001") {
		t.Errorf("the log does not tell: %s", log)
	}
	w.Drop()

	again, err := client.DialWS(ctx, n.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Drop()
	f, err = again.Call(ctx, 1, fmt.Sprintf(`{"op":"subscribe","id":1,"topic":"firehose","cursor":%q,"after":{"0":%d}}`, cursor, last))
	if err != nil || f.Op != "subscribed" || !f.Recovered {
		t.Fatalf("%s %v", f.Raw, err)
	}
	for last < records-1 {
		f, err := again.Next(ctx)
		if err != nil || f.Op == "gap" {
			t.Fatalf("after offset %d: %s %v", last, f.Raw, err)
		}
		if f.Op != "message" {
			continue
		}
		if f.Message.Offset != last+1 {
			t.Fatalf("offset %d follows %d", f.Message.Offset, last)
		}
		last++
	}
}
