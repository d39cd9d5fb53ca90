package session_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"tidewire/internal/fault"
)

// TestBadLinesAreAnswered sends every kind of bad line, each answered by an
// error of the table that names the field, with the connection alive.
func TestBadLinesAreAnswered(t *testing.T) {
	long := strings.Repeat("k", 1025)
	for _, c := range []struct{ line, id, code, field, detail string }{
		{`nonsense`, "", "invalid", "", "JSON object"},
		{`{"op":"publish","id":1,"topic":"orders","value":`, "1", "invalid", "", "JSON"},
		{`[{"op":"hello"}]`, "", "invalid", "", "JSON object"},
		{`{"op":"hello","id":1} {}`, "1", "invalid", "", "more after"},
		{`{}`, "", "invalid", "op", "hello"},
		{`{"op":"fly","id":1}`, "1", "invalid", "op", "publish"},
		{`{"op":"subscribr","id":1}`, "1", "invalid", "op", `did you mean "subscribe"`},
		{`{"op":7,"id":1}`, "1", "invalid", "op", "string"},
		{`{"op":"join","id":1,"topic":"orders"}`, "1", "invalid", "group", "needed"},
		{`{"op":"ack","id":1,"sub":"s1","partition":0}`, "1", "invalid", "offset", "offsets"},
		{`{"op":"request","id":1}`, "1", "invalid", "topic", "is needed"},
		{`{"op":"auth","id":1,"token":"x"}`, "1", "invalid", "op", "tokens"},
		{`{"op":"hello","id":0}`, "", "invalid", "id", "whole number"},
		{`{"op":"hello","id":"1"}`, "", "invalid", "id", "whole number"},
		{`{"op":"hello","id":1,"token":"x"}`, "1", "invalid", "token", "tokens"},
		{`{"op":"hello","id":1,"clinet":"x"}`, "1", "unknown-field", "clinet", `"client"`},
		{`{"op":"publish","id":1,"value":1}`, "1", "invalid", "topic", "needed"},
		{`{"op":"publish","id":1,"topic":"orders"}`, "1", "invalid", "value", "needed"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"value_base64":"aGk="}`, "1", "invalid", "value_base64", "exclude"},
		{`{"op":"publish","id":1,"topic":"orders","value_base64":"%%"}`, "1", "invalid", "value_base64", "base64"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"acks":"some"}`, "1", "invalid", "acks", "leader"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"key":""}`, "1", "invalid", "key", "1024"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"key":"` + long + `"}`, "1", "invalid", "key", "1024"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"partition":-1}`, "1", "invalid", "partition", "whole number"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"headers":{"a b":"x"}}`, "1", "invalid", "headers", "names"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"headers":{"Tidewire-Reply-To":"x"}}`, "1", "reserved-name", "headers.Tidewire-Reply-To", "own"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"producer":"x","sequence":0,"partition":0}`, "1", "invalid", "producer", "UUID"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"producer":"0193b0a6-7c1e-8d0c-8f2a-3a1b2c3d4e5f","sequence":0,"partition":0}`, "1", "invalid", "producer", "version 8"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"sequence":0}`, "1", "invalid", "sequence", "go together"},
		{`{"op":"publish","id":1,"topic":"orders","value":1,"value":2}`, "1", "invalid", "value", "twice"},
		{`{"op":"subscribe","id":1,"topic":"none"}`, "1", "topic-not-found", "", "create"},
		{`{"op":"subscribe","id":1,"topic":"orders","from":"yesterday"}`, "1", "invalid", "from", "earliest"},
		{`{"op":"subscribe","id":1,"topic":"orders","from":"latest","cursor":"x"}`, "1", "invalid", "from", "exclude"},
		{`{"op":"subscribe","id":1,"topic":"orders","after":{"0":1}}`, "1", "invalid", "after", "cursor"},
		{`{"op":"subscribe","id":1,"topic":"orders","key":"a","key_prefix":"b"}`, "1", "invalid", "key", "one filter"},
		{`{"op":"subscribe","id":1,"topic":"orders","keys":[]}`, "1", "invalid", "keys", "at least one"},
		{`{"op":"subscribe","id":1,"topic":"orders","partition":9}`, "1", "partition-not-found", "", "partition 9"},
		{`{"op":"subscribe","id":1,"topic":"orders","partition":1,"key":"a"}`, "1", "wrong-partition", "partition", "belongs"},
		{`{"op":"subscribe","id":1,"topic":"orders","credit":-1}`, "1", "invalid", "credit", "whole number"},
		{`{"op":"unsubscribe","id":1}`, "1", "invalid", "sub", "needed"},
		{`{"op":"unsubscribe","id":1,"sub":"s9"}`, "1", "invalid", "sub", "s9"},
		{`{"op":"credit","id":1,"sub":"s9","add":1}`, "1", "invalid", "sub", "s9"},
		{`{"op":"credit","id":1,"sub":"s1"}`, "1", "invalid", "add", "needed"},
		{`{"op":"metadata","id":1}`, "1", "invalid", "topic", "needed"},
		{``, "", "invalid", "", "at least one line"},
		{"{\"op\":\"hello\",\"id\":1,\"client\":\"a\x00b\"}", "1", "invalid", "", "JSON"},
	} {
		t.Run(c.line[:min(len(c.line), 60)], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.Topic("orders", 2)
				cl := n.open(t)
				cl.send(t, c.line)
				o := cl.want(t, "error")
				if _, ok := fault.ByCode(o.str("code")); !ok || o.str("code") != c.code || o.str("field") != c.field || !strings.Contains(o.str("detail"), c.detail) || o.str("title") == "" {
					t.Errorf("%v", o)
				}
				if (c.id == "1") != (o.num("id") == 1) {
					t.Errorf("id %v", o["id"])
				}
				cl.send(t, `{"op":"publish","id":2,"topic":"orders","value":1}`)
				if o := cl.want(t, "published"); o.num("id") != 2 {
					t.Errorf("%v", o)
				}
			})
		})
	}
}

func TestTwentyBadLinesInARowClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNode(t)
		c := n.open(t)
		bad := strings.TrimSuffix(strings.Repeat("{}\n", 19), "\n")
		for range 3 {
			c.send(t, bad, `{"op":"hello","id":1}`)
			for range 19 {
				c.want(t, "error")
			}
			c.want(t, "welcome")
		}
		c.send(t, bad, `{}`, `{"op":"hello"}`)
		for range 20 {
			c.want(t, "error")
		}
		if code, reason := c.closed(t); code != 4502 || reason == "" || len(reason) > 123 {
			t.Fatal(code, reason)
		}
	})
}

func TestFramesThatClose(t *testing.T) {
	for name, c := range map[string]struct {
		kind websocket.MessageType
		data string
		code websocket.StatusCode
	}{
		"binary":    {websocket.MessageBinary, `{"op":"hello"}`, 4502},
		"not UTF-8": {websocket.MessageText, "{\"op\":\"hello\",\"client\":\"\xff\"}", 4502},
		"too big":   {websocket.MessageText, `{"op":"hello","client":"` + strings.Repeat("x", 100_000) + `"}`, 1009},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.Topic("orders", 1)
				n.hold = make(chan struct{})
				cl := n.open(t)
				cl.send(t, `{"op":"metadata","id":1,"topic":"orders"}`)
				_ = cl.ws.Write(context.Background(), c.kind, []byte(c.data))
				cl.want(t, "metadata")
				if code, reason := cl.closed(t); code != c.code || reason == "" {
					t.Fatal(code, reason)
				}
				close(n.hold)
			})
		})
	}
	t.Run("just not too big", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			cl := n.open(t)
			head := `{"op":"hello","client":"`
			cl.send(t, head+strings.Repeat("x", 100_000-len(head)-2)+`"}`)
			cl.want(t, "welcome")
		})
	})
}
