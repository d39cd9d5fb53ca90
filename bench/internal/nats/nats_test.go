package nats

import (
	"strings"
	"testing"

	"tidewire/internal/bench/load"
	"tidewire/internal/bench/message"
)

func TestWhatAServerSaysIsFound(t *testing.T) {
	text := "INFO {}\r\n+OK\r\nPING\r\nPONG\r\nMSG a.b 1 5\r\nhello\r\nMSG a.b 1 back.7 2\r\nhi\r\nHMSG a 1 back 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"
	verbs, link := "", &link{}
	var all []Message
	// Whatever the pieces, nothing is taken before it is whole.
	var b []byte
	for i := range len(text) {
		b = append(b, text[i])
		for {
			e, whole, err := parse(b)
			if err != nil {
				t.Fatalf("%q: %v", b, err)
			}
			if !whole {
				break
			}
			verbs += string(e.verb)
			if e.verb == 'M' {
				all = append(all, Message{[]byte(string(e.message.Subject)), []byte(string(e.message.Reply)), []byte(string(e.message.Header)), []byte(string(e.message.Payload))})
			}
			b = append([]byte{}, b[e.size:]...)
		}
	}
	if verbs != "IKPOMMM" || len(b) != 0 {
		t.Errorf("found %s, and %q is left", verbs, b)
	}
	if string(all[1].Reply) != "back.7" || string(all[1].Payload) != "hi" {
		t.Errorf("a message with a reply: %q", all[1])
	}
	if string(all[2].Header) != "NATS/1.0\r\n\r\n" || string(all[2].Payload) != "hello" {
		t.Errorf("a message with headers: %q", all[2])
	}
	if _, err := link.events([]byte("-ERR 'no'\r\n"), nil); err == nil {
		t.Error("an error of the server is taken for something else")
	}
}

// answers notes what became of slots.
type answers struct{ kept, refused []int }

func (a *answers) Answered(slot, kept, refused int, _ error) error {
	if kept > 0 {
		a.kept = append(a.kept, slot)
	}
	if refused > 0 {
		a.refused = append(a.refused, slot)
	}
	return nil
}

func TestAnswersFindTheirPublish(t *testing.T) {
	p := newPublisher(Address{}, "s", load.Records{Bytes: message.MinBytes}, true)
	p.link = &link{}
	if b := string(p.Append(nil, 42, 7)); !strings.HasPrefix(b, "PUB s "+p.inbox+".000042 ") || !strings.Contains(b, `{"n":"0000000000000007"`) {
		t.Errorf("a publish is %q", b)
	}
	a := &answers{}
	b := "MSG " + p.inbox + ".000042 1 26\r\n{\"stream\":\"s\", \"seq\":12345}\r\n"
	b = strings.Replace(b, "1 26", "1 27", 1) + "MSG " + p.inbox + ".000003 1 12\r\n{\"error\":{}}\r\nHMSG " + p.inbox + ".000004 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
	if _, err := p.Read([]byte(b), a); err != nil {
		t.Fatal(err)
	}
	if len(a.kept) != 1 || a.kept[0] != 42 || len(a.refused) != 2 {
		t.Errorf("kept %v, refused %v", a.kept, a.refused)
	}
}

func TestCoreAnswersComeInTheOrderOfPublishes(t *testing.T) {
	p := newPublisher(Address{}, "s.", load.Records{Bytes: message.MinBytes, Keys: 10}, false)
	p.link = &link{}
	if b := string(p.Append(nil, 5, 13)); !strings.HasPrefix(b, "PUB s.0000003 ") {
		t.Errorf("a publish with a key is %q", b)
	}
	p.Append(nil, 2, 14)
	a := &answers{}
	if _, err := p.Read([]byte("+OK\r\n+OK\r\n"), a); err != nil || len(a.kept) != 2 || a.kept[0] != 5 || a.kept[1] != 2 {
		t.Errorf("kept %v, %v", a.kept, err)
	}
}
