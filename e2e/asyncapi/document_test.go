package asyncapi

import (
	"os"
	"testing"
)

func document(t *testing.T) *Document {
	t.Helper()
	text, err := os.ReadFile("../../gateway/httpapi/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatIsNotAsDescribedIsNoticed(t *testing.T) {
	d := document(t)
	for _, frame := range []string{
		`{"op":"sealed","sub":"s1"}`, `{"op":"cursor","sub":"s1"}`, `{"op":"cursor","sub":"s1","cursor":"a b"}`, `{"op":"cursor","sub":"s1","cursor":"a","at":1}`,
		`{"op":"error","code":"no-such-code","title":"x","detail":"x"}`, `{"op":"messages","sub":"s1","count":1}`,
		`{"op":"messages","sub":"s1","count":1}` + "\n" + `{"topic":"t"}`, `{"op":"message"}`, `nothing`,
		`{"op":"published","topic":"t","partition":0,"timestamp":"yesterday","duplicate":false}`,
	} {
		if d.FromServer([]byte(frame)) == nil {
			t.Errorf("the node may say %s", frame)
		}
	}
	for _, line := range []string{
		`{"op":"publish","topic":"t","sequence":1,"value":1}`, `{"op":"subscribe","topic":"t","from":"latest","cursor":"c"}`,
		`{"op":"subscribe","topic":"t","after":{"0":1}}`, `{"op":"ack","sub":"s","partition":0}`, `{"op":"welcome"}`, `{"op":"credit","sub":"s","add":0}`,
	} {
		if d.FromClient([]byte(line)) == nil {
			t.Errorf("a client may say %s", line)
		}
	}
	if d.Event("sealed", []byte(`{}`)) == nil || d.Event("gap", []byte(`{"reason":"tired"}`)) == nil {
		t.Error("a stream may have any event")
	}
}

func TestWhatWasSeenIsNotMissing(t *testing.T) {
	d := document(t)
	before := len(d.Unseen())
	run := `{"op":"messages","sub":"s1","count":1}` + "\n" +
		`{"topic":"t","partition":0,"offset":0,"timestamp":"2026-01-31T15:04:05.123Z","key":null,"content_type":"text/plain","headers":{},"value":"hi"}` + "\n" +
		`{"op":"cursor","sub":"s1","cursor":"AQ"}`
	if err := d.FromServer([]byte(run)); err != nil {
		t.Fatal(err)
	}
	if got := before - len(d.Unseen()); got != 3 {
		t.Errorf("%d of 3 messages were seen", got)
	}
}
