package e2e_test

import (
	"fmt"
	"testing"

	"tidewire/e2e/client"
	"tidewire/e2e/harness"
)

// TestClientsThatKeepPaceCostNoGoroutine holds that the node writes straight to
// the sockets that its server accepted: whatever is wrapped around them on the
// way would show as writes that have to wait.
func TestClientsThatKeepPaceCostNoGoroutine(t *testing.T) {
	t.Parallel()
	node := harness.Start(t, harness.Options{})
	api := client.New(node.URL)
	api.CreateTopic(t, "t", "")
	ws, err := client.DialWS(t.Context(), node.Addr, "")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Drop()
	if _, err := ws.Call(t.Context(), 1, `{"op":"subscribe","id":1,"topic":"t"}`); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		api.Must(t, 201, "POST", "/topics/t", jsonType, fmt.Sprint(i))
		for {
			f, err := ws.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f.Op == "message" {
				break
			}
		}
	}
	events, err := client.OpenSSE(t.Context(), node.URL+"/topics/t/events?from=earliest", "")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for i := range 200 {
		if i >= 100 {
			api.Must(t, 201, "POST", "/topics/t", jsonType, fmt.Sprint(i))
		}
		if _, _, err := events.NextMessage(); err != nil {
			t.Fatal(err)
		}
	}
	for _, metric := range []string{"gateway_websocket_waiting_writes_total", "gateway_sse_waiting_writes_total"} {
		if waited := node.Metric(metric); waited != 0 {
			t.Errorf("%s: %v writes to a client that reads had to wait", metric, waited)
		}
	}
}
