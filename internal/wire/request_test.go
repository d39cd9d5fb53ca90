package wire

import (
	"testing"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/inbox"
	"tidewire/internal/record"
)

func TestRequestAndReplyFrames(t *testing.T) {
	f, err := ParseFrame([]byte(`{"op":"request","id":3,"topic":"t","key":"k","value_base64":"AAE=","timeout":"1m30s","correlation":"c","headers":{"A":"b"}}`))
	p := &f.Publication
	if err != nil || f.ID != 3 || p.Topic != "t" || string(p.Record.Key) != "k" || string(p.Record.Value) != "\x00\x01" || p.Record.ContentType != OctetStream ||
		f.Request.Timeout != 90*time.Second || f.Request.Correlation != "c" || len(p.Record.Headers) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = ParseFrame([]byte(`{"op":"reply","to":"x","status":599,"value":"no","content_type":"text/plain"}`))
	if err != nil || f.Reply.To != "x" || f.Reply.Status != 599 || string(f.Publication.Record.Value) != "no" {
		t.Errorf("%+v, %v", f, err)
	}
	for line, want := range map[string]string{
		`{"op":"request","topic":"t"}`:                                 `invalid: field "value" or "value_base64" is needed`,
		`{"op":"request","topic":"t","value":1,"timeout":"0s"}`:        `invalid: field "timeout" takes a duration such as "250ms" or "168h", from 1ms to 5m`,
		`{"op":"request","topic":"t","value":1,"acks":"all"}`:          ``,
		`{"op":"request","topic":"t","value":1,"correlation":7}`:       `invalid: field "correlation" takes a string`,
		`{"op":"reply","to":"","value":1}`:                             `invalid: field "to" is needed`,
		`{"op":"reply","to":"x","value":1,"status":399}`:               `invalid: field "status" takes a whole number from 400 to 599`,
		`{"op":"reply","to":"x","value":1,"status":600}`:               `invalid: field "status" takes a whole number from 400 to 599`,
		`{"op":"reply","to":"x","value":1,"headers":{"tidewire-x":1}}`: ``,
	} {
		_, err := ParseFrame([]byte(line))
		if err == nil || want != "" && fault.KindOf(err).Code()+": "+err.Error() != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestAReplyAsItsRequesterGetsIt(t *testing.T) {
	for _, c := range []struct {
		id   int64
		r    inbox.Reply
		want string
	}{
		{0, inbox.Reply{ContentType: record.JSON, Value: []byte("{ \"a\": 1 }")}, `{"op":"reply","content_type":"application/json","headers":{},"value":{"a":1}}`},
		{7, inbox.Reply{Status: 404, ContentType: "text/plain", Headers: []record.HeaderField{{Name: "a", Value: `"`}, {Name: "b", Value: ""}}, Value: []byte("né")}, `{"op":"reply","id":7,"status":404,"content_type":"text/plain","headers":{"a":"\"","b":""},"value":"né"}`},
		{1, inbox.Reply{ContentType: "text/plain", Value: []byte("\xff")}, `{"op":"reply","id":1,"content_type":"text/plain","headers":{},"value_base64":"/w=="}`},
		{1, inbox.Reply{ContentType: OctetStream}, `{"op":"reply","id":1,"content_type":"application/octet-stream","headers":{},"value_base64":""}`},
	} {
		if got := string(AppendReply([]byte("x\n"), c.id, &c.r)); got != "x\n"+c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
