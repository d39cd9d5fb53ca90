package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/record"
)

func TestMessageShapes(t *testing.T) {
	h := record.Header{Base: 40, Timestamp: 1_771_234_567_089}
	h.Partition.Index = 3
	for _, c := range []struct {
		name string
		r    record.Record
		want string
	}{
		{
			"JSON is embedded without white space",
			record.Record{Key: []byte("k"), ContentType: record.JSON, Value: []byte("{ \"a\" : [1, \"x y\"] }\n")},
			`"key":"k","content_type":"application/json","headers":{},"value":{"a":[1,"x y"]}}`,
		},
		{
			"text is a string",
			record.Record{ContentType: "text/plain; charset=utf-8", Value: []byte("a\"\n\x01é")},
			`"key":null,"content_type":"text/plain; charset=utf-8","headers":{},"value":"a\"\n\u0001é"}`,
		},
		{
			"text that is no UTF-8 is bytes",
			record.Record{ContentType: "text/plain", Value: []byte{0xff}},
			`"key":null,"content_type":"text/plain","headers":{},"value_base64":"/w=="}`,
		},
		{
			"anything else is bytes",
			record.Record{ContentType: "image/png", Value: []byte("png"), Headers: []record.HeaderField{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}},
			`"key":null,"content_type":"image/png","headers":{"a":"1","b":"2"},"value_base64":"cG5n"}`,
		},
		{
			"a tombstone",
			record.Record{Key: []byte("k"), Tombstone: true},
			`"key":"k","content_type":"","headers":{},"value":null,"tombstone":true}`,
		},
	} {
		got := string(AppendMessage(nil, "orders", h, &record.Entry{Record: c.r, Delta: 2}))
		want := `{"topic":"orders","partition":3,"offset":42,"timestamp":"2026-02-16T09:36:07.089Z",` + c.want
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, want)
		}
		if most := MessageBytes("orders", &record.Entry{Record: c.r, Delta: 2}); len(got) > most || most > len(got)+messageFrameBytes {
			t.Errorf("%s: %d bytes where room is made for %d", c.name, len(got), most)
		}
		if !json.Valid([]byte(got)) || strings.Contains(got, "\n") {
			t.Errorf("%s: not one line of JSON: %s", c.name, got)
		}
	}
}

func TestFramesAreRead(t *testing.T) {
	f, err := ParseFrame([]byte(`{"op":"publish","id":7,"topic":"t","key":"k","value":{"a": 1},"headers":{"X-A":"b"},"producer":"0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":3,"partition":2,"acks":"leader"}`))
	p := f.Publication
	if err != nil || f.ID != 7 || p.Topic != "t" || string(p.Record.Key) != "k" || string(p.Record.Value) != `{"a": 1}` || p.Record.ContentType != record.JSON ||
		fmt.Sprint(p.Record.Headers) != "[{x-a b}]" || p.Sequence != 3 || *p.Partition != 2 || p.Acks != "leader" || !p.Sequenced() {
		t.Fatalf("%+v, %v", f, err)
	}
	f, err = ParseFrame([]byte(` {"id":1,"op":"subscribe","topic":"t","cursor":"abc","after":{"0":17,"1":20},"keys":["a","b"],"credit":5} `))
	s := f.Subscribe
	if err != nil || s.Cursor != "abc" || !s.HasCursor || s.After[0] != 17 || s.After[1] != 20 || len(s.Keys) != 2 || s.Credit != 5 {
		t.Fatalf("%+v, %v", f, err)
	}
	f, err = ParseFrame([]byte(`{"op":"subscribe","topic":"t"}`))
	if err != nil || f.ID != 0 || f.Subscribe.Credit != -1 {
		t.Fatalf("%+v, %v", f, err)
	}
}

func TestBadFramesSayWhat(t *testing.T) {
	for line, want := range map[string]string{
		``:                                      "invalid: one JSON object",
		`hello`:                                 "invalid: one JSON object",
		`[1]`:                                   "invalid: one JSON object",
		`{"op":"hello","id":1`:                  "invalid: byte 20",
		`{"op":"hello","id":1}x`:                "invalid: more after",
		`{"id":1}`:                              `invalid: "op" is needed`,
		`{"op":5,"id":1}`:                       `invalid: "op" takes a string`,
		`{"op":"helo","id":1}`:                  `invalid: did you mean "hello"`,
		`{"op":"request","id":1}`:               "invalid: field \"topic\" is needed",
		`{"op":"reply","value":1}`:              "invalid: field \"to\" is needed",
		`{"op":"hello","id":0}`:                 `invalid: "id" takes a whole number from 1`,
		`{"op":"hello","id":1.5}`:               `invalid: "id" takes a whole number`,
		`{"op":"hello","id":"1"}`:               `invalid: "id" takes a whole number`,
		`{"op":"hello","id":1,"id":2}`:          "invalid: twice",
		`{"op":"publish","id":1}`:               `invalid: "topic" is needed`,
		`{"op":"publish","id":1,"topic":"t"}`:   `invalid: "value" or "value_base64" is needed`,
		`{"op":"publish","id":1,"topik":"t"}`:   `unknown-field: did you mean "topic"`,
		`{"op":"publish","topic":"t","value":}`: "invalid: byte 36",
		`{"op":"publish","topic":5,"value":1}`:  `invalid: "topic" takes a string`,
		`{"op":"subscribe","topic":"t","from":"yesterday"}`:                                           `invalid: "from" takes "earliest"`,
		`{"op":"subscribe","topic":"t","from":"earliest","cursor":"x"}`:                               `invalid: exclude`,
		`{"op":"subscribe","topic":"t","key":"a","key_prefix":"b"}`:                                   `invalid: one filter`,
		`{"op":"subscribe","topic":"t","keys":[]}`:                                                    `invalid: at least one`,
		`{"op":"subscribe","topic":"t","after":{"0":1}}`:                                              `invalid: "after" refines`,
		`{"op":"subscribe","topic":"t","partition":-1}`:                                               `invalid: "partition" takes a whole number`,
		`{"op":"subscribe","topic":"t","credit":-1}`:                                                  `invalid: "credit" takes a whole number`,
		`{"op":"credit","sub":"s1"}`:                                                                  `invalid: "add" is needed`,
		`{"op":"unsubscribe"}`:                                                                        `invalid: "sub" is needed`,
		`{"op":"metadata"}`:                                                                           `invalid: "topic" is needed`,
		`{"op":"publish","topic":"t","value":1,"key":""}`:                                             `invalid: "key" takes 1 to 1024`,
		`{"op":"publish","topic":"t","value":1,"value_base64":"YQ=="}`:                                `invalid: exclude`,
		`{"op":"publish","topic":"t","value_base64":"%%"}`:                                            `invalid: base64`,
		`{"op":"publish","topic":"t","value":1,"content_type":"text/plain"}`:                          `invalid: must be a string`,
		`{"op":"publish","topic":"t","value":1,"content_type":"image/png"}`:                           `invalid: "value_base64"`,
		`{"op":"publish","topic":"t","value":1,"content_type":"nonsense"}`:                            `invalid: media type`,
		`{"op":"publish","topic":"t","tombstone":true}`:                                               `invalid: "key" is needed`,
		`{"op":"publish","topic":"t","key":"k","value":1,"tombstone":true}`:                           `invalid: "tombstone" takes no value`,
		`{"op":"publish","topic":"t","value":1,"headers":{"a b":"c"}}`:                                `invalid: "headers" takes names`,
		`{"op":"publish","topic":"t","value":1,"headers":{"a":1}}`:                                    `invalid: "headers.a" takes a string`,
		`{"op":"publish","topic":"t","value":1,"headers":{"a":"1","A":"2"}}`:                          `invalid: twice`,
		`{"op":"publish","topic":"t","value":1,"headers":{"Tidewire-Reply-To":"x"}}`:                  `reserved-name: cluster's own`,
		`{"op":"publish","topic":"t","value":1,"acks":"some"}`:                                        `invalid: "acks" takes one of`,
		`{"op":"publish","topic":"t","value":1,"sequence":1}`:                                         `invalid: go together`,
		`{"op":"publish","topic":"t","value":1,"producer":"x","sequence":1,"partition":0}`:            `invalid: a producer is a UUID`,
		"{\"op\":\"hello\",\"client\":\"\xff\"}":                                                      "invalid: UTF-8",
		`{"op":"hello","client":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + "}":         "invalid: nested deeper",
		`{"op":"publish","topic":"t","value":1,"key":"` + strings.Repeat("k", 1025) + `"}`:            `invalid: "key" takes 1 to 1024`,
		`{"op":"publish","topic":"t","value":1,"headers":{"a":"` + strings.Repeat("v", 16384) + `"}}`: `invalid: 16384 bytes together`,
	} {
		_, err := ParseFrame([]byte(line))
		if err == nil {
			t.Errorf("%.80s: taken", line)
			continue
		}
		code, hint, _ := strings.Cut(want, ": ")
		if fault.KindOf(err).Code() != code || !strings.Contains(err.Error(), hint) {
			t.Errorf("%.80s:\ngot  %s: %v\nwant %s", line, fault.KindOf(err), err, want)
		}
	}
}

func TestARefusedPublicationStillNamesItsSequence(t *testing.T) {
	const tail = `"producer":"0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":3,"partition":2}`
	f, err := ParseFrame([]byte(`{"op":"publish","id":9,"topic":"t","value":1,"key":"",` + tail))
	if err == nil || f.ID != 9 || !f.Publication.Sequenced() || f.Publication.Sequence != 3 || f.Publication.Topic != "t" {
		t.Fatalf("%+v, %v", f, err)
	}
}

func TestNdjsonLines(t *testing.T) {
	p, err := ParseLine([]byte(`{"key":"a","value":null,"tombstone":true}`))
	if err != nil || !p.Record.Tombstone || p.Record.Value != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	p, err = ParseLine([]byte(`{"value":null,"partition":4}`))
	if err != nil || string(p.Record.Value) != "null" || *p.Partition != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	p, err = ParseLine([]byte(`{"value_base64":"AAE="}`))
	if err != nil || p.Record.ContentType != OctetStream || !bytes.Equal(p.Record.Value, []byte{0, 1}) {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err = ParseLine([]byte(`{"value":1,"topic":"t"}`)); !fault.Is(err, fault.UnknownField) {
		t.Fatal("a line has no topic:", err)
	}
	if _, err = ParseLine([]byte(`{"value_base64":"AAE=","content_type":"application/json"}`)); !fault.Is(err, fault.Invalid) {
		t.Fatal("JSON is checked, however it is written:", err)
	}
}

func TestPlacesAndTimesInText(t *testing.T) {
	if ms, err := ParseTime("at", "2026-01-31T15:04:05.0001Z"); err != nil || ms != 1769871845001 {
		t.Fatal(ms, err)
	}
	for _, bad := range []string{"", "-1", "+1", "01", "1.0", "9007199254740992", "x"} {
		if _, err := ParseOffset("offset", bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("offset %q: %v", bad, err)
		}
	}
	if o, err := ParseOffset("offset", "9007199254740991"); err != nil || o != ident.Offset(MaxOffset) {
		t.Fatal(o, err)
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{}`, `[1,2.5e-3,"\ud83d\ude00\n"]`, `{"a":{"b":[null,true,false]}}`, ` "x" `, `01`, `"\u12"`, "\"\xff\"", `-`, `1e`, `{"a":1,}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := CheckJSON(b)
		if want := json.Valid(b) && utf8.Valid(b); (err == nil) != want {
			t.Fatalf("%q: %v, the standard library says %v", b, err, want)
		}
		if err != nil {
			return
		}
		var want bytes.Buffer
		if json.Compact(&want, b) != nil || !bytes.Equal(want.Bytes(), AppendCompact(nil, b)) {
			t.Fatalf("%q compacts to %q, the standard library to %q", b, AppendCompact(nil, b), want.Bytes())
		}
		var s string
		if b = bytes.TrimSpace(b); b[0] == '"' && json.Unmarshal(b, &s) == nil && unquote(b) != s {
			t.Fatalf("%q reads %q, the standard library says %q", b, unquote(b), s)
		}
	})
}

func FuzzString(f *testing.F) {
	f.Add("a\"\\\n\x00\u2028\xff")
	f.Fuzz(func(t *testing.T, s string) {
		q := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(q, &back); err != nil || back != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Fatalf("%q is written %s: %v", s, q, err)
		}
		if !bytes.Equal(q, AppendString(nil, []byte(s))) {
			t.Fatal("string and bytes differ")
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"op":"publish","id":7,"topic":"t","key":"k","value":{"a": 1},"headers":{"X-A":"b"}}`))
	f.Add([]byte(`{"op":"subscribe","topic":"t","after":{"0":1},"cursor":"x","keys":["a","b"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := ParseFrame(b)
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Fatalf("%q: an unclassified error %v", b, err)
		}
		if err == nil && frame.Op == "publish" && CheckValue(&frame.Publication.Record) != nil {
			t.Fatalf("%q: a value that is not of its type was taken", b)
		}
		_, _ = ParseLine(b)
		_, _ = ParseSubscribe(b)
	})
}

func TestRefusalsArePlain(t *testing.T) {
	take := func(body string) error {
		return Object([]byte(body), []string{"choice", "span"}, func(name string, v Value) (err error) {
			if name == "choice" {
				_, err = v.Choice("all", "leader", "none")
			} else {
				_, err = v.Duration(time.Millisecond, 876_000*time.Hour)
			}
			return err
		})
	}
	for body, want := range map[string]string{
		"":                  "the body is empty; a JSON object is expected",
		" \n":               "the body is empty; a JSON object is expected",
		`{"choice":"some"}`: `field "choice" takes one of all, leader, none`,
		`{"span":"7d"}`:     `field "span" takes a duration such as "250ms" or "168h", from 1ms to 876000h`,
	} {
		if err := take(body); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", body, err, want)
		}
	}
	if err := CheckJSON(nil); err == nil || err.Error() != "not valid JSON: it is empty" {
		t.Error(err)
	}
	for d, want := range map[time.Duration]string{time.Minute: "1m", 168 * time.Hour: "168h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 0: "0s", 1500 * time.Millisecond: "1.5s"} {
		if got := ShortDuration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMessagesFitTheRoomThatIsMadeForThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := record.Header{Partition: ident.Partition{Index: math.MaxUint32}, Base: math.MaxInt64 - 10, Timestamp: 253402300799999}
		e := &record.Entry{Delta: 9, Record: record.Record{
			ContentType: rapid.SampledFrom([]string{record.JSON, "text/plain", "image/png"}).Draw(t, "type"),
			Tombstone:   rapid.Bool().Draw(t, "tombstone"),
			Value:       rapid.SliceOf(rapid.ByteRange(0, 255)).Draw(t, "value"),
			Headers:     []record.HeaderField{{Name: "a", Value: rapid.String().Draw(t, "header")}},
		}}
		if rapid.Bool().Draw(t, "keyed") {
			e.Key = rapid.SliceOf(rapid.ByteRange(0, 255)).Draw(t, "key")
		}
		if got, most := len(AppendMessage(nil, "orders", h, e)), MessageBytes("orders", e); got > most {
			t.Fatalf("%d bytes where room is made for %d", got, most)
		}
	})
}

func TestTheKeysOfASubscriptionAreBoundedTogether(t *testing.T) {
	frame := func(bytes int) error {
		keys := make([]string, 128)
		for i := range keys {
			keys[i] = fmt.Sprintf("%0*d", bytes/128, i)
		}
		b, _ := json.Marshal(map[string]any{"op": "subscribe", "id": 1, "topic": "t", "keys": keys})
		_, err := ParseFrame(b)
		return err
	}
	if err := frame(MaxKeysBytes); err != nil {
		t.Error(err)
	}
	if err := frame(MaxKeysBytes + 128); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "together") {
		t.Error(err)
	}
}

// Of a line that breaks, what comes before the break is known.
func TestABrokenPublicationNamesItsNumberWhereItCan(t *testing.T) {
	const place = `"op":"publish","id":9,"topic":"t","partition":0,"producer":"0190b0a6-7c1e-7d0c-8f2a-3a1b2c3d4e5f","sequence":3`
	for line, known := range map[string]bool{
		`{` + place + `,"value":{"a":}}`:         true,
		`{` + place + `,"value":nul}`:            true,
		`{` + place + `,"value":1`:               true,
		`{` + place + `,"value":1} more`:         true,
		`{` + place + `,"value":1}{"op":"hello"`: true,
		`{` + place + `,}`:                       true,
		`{"value":{"a":},` + place + `}`:         false,
		`{"value":"` + place:                     false,
	} {
		f, err := ParseFrame([]byte(line))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "not valid JSON") {
			t.Errorf("%s: %v", line, err)
		}
		if known != (f.ID == 9 && f.Op == "publish" && f.Publication.Sequenced() && f.Publication.Sequence == 3 && f.Publication.Topic == "t") || !known && (f.ID != 0 || f.Publication.Sequenced()) {
			t.Errorf("%s: %+v", line, f)
		}
	}
	// An id that is none is no reason to lose the number.
	f, err := ParseFrame([]byte(strings.Replace("{"+place+`,"value":1}`, `"id":9`, `"id":0`, 1)))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), `"id"`) || f.ID != 0 || !f.Publication.Sequenced() {
		t.Errorf("%+v %v", f, err)
	}
}
