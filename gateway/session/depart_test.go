package session_test

import (
	"testing"
	"time"
)

// Clients that are sent away are told where they stand; those that come are
// served as ever, and may be sent away in their turn.
func TestClientsAreSentAwayWhileTheNodeServes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		topic := n.Topic("orders", 1)
		for range 2 {
			c := n.open(t)
			c.send(t, `{"op":"subscribe","id":1,"topic":"orders"}`)
			c.want(t, "subscribed")
			n.Append(topic.Ref(0), "")
			c.messages(t, 1)
			n.manager.Depart(t.Context())
			cursor := c.want(t, "cursor").str("cursor")
			o := c.want(t, "closing")
			if d, err := time.ParseDuration(o.str("retry_after")); err != nil || d < time.Second || d > 7*time.Second || o.str("reason") != "draining" || cursor == "" {
				t.Fatal(o, err)
			}
			if code, _ := c.closed(t); code != 1012 {
				t.Fatal(code)
			}
		}
	})
}
