package asyncapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an AsyncAPI document of a node. It may be used by several goroutines.
type Document struct {
	client, server, events map[string]message // by op, or by the event's name
	leased                 message            // a line of a run that belongs to a membership
	codes                  []int

	mu   sync.Mutex
	seen map[string]bool // messages by their names in the document
}

type message struct {
	name   string
	schema *jsonschema.Schema
}

// The names of messages that no op tells apart, and of the channel of frames.
const (
	socket     = "websocket"
	line       = "message"
	leasedLine = "leasedMessage"
)

type ref struct {
	Ref string `json:"$ref"`
}

// last is the last part of a reference.
func (r ref) last() string { return r.Ref[strings.LastIndexByte(r.Ref, '/')+1:] }

type raw struct {
	Channels map[string]struct {
		Messages map[string]ref
		Closing  struct {
			Codes []struct{ Code int }
		} `json:"x-close-codes"`
	}
	Operations map[string]struct {
		Action   string
		Channel  ref
		Messages []ref
		Reply    *struct{ Messages []ref }
	}
	Components struct {
		Messages map[string]struct {
			Name     string
			Payload  ref
			Examples []struct{ Payload json.RawMessage }
		}
	}
}

// Parse reads a document, and finds what in it does not fit together: references that
// lead nowhere, messages that no operation names, examples that are not as their schema says.
func Parse(text []byte) (*Document, error) {
	var r raw
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // what schemas of AsyncAPI 3 are
	compiler.AssertFormat()
	if err := compiler.AddResource("asyncapi.json", whole); err != nil {
		return nil, err
	}
	d := &Document{
		client: map[string]message{}, server: map[string]message{}, events: map[string]message{},
		seen: map[string]bool{},
	}
	for _, c := range r.Channels[socket].Closing.Codes {
		d.codes = append(d.codes, c.Code)
	}
	named := map[string]bool{} // "channel message" that an operation names
	for name, op := range r.Operations {
		channel := op.Channel.last()
		add := func(to map[string]message, refs []ref) error {
			for _, m := range refs {
				key := m.last()
				if !strings.HasPrefix(m.Ref, "#/channels/"+channel+"/messages/") || r.Channels[channel].Messages[key].Ref == "" {
					return fmt.Errorf("operation %s: %s is no message of its channel", name, m.Ref)
				}
				named[channel+" "+key] = true
				c, ok := r.Components.Messages[r.Channels[channel].Messages[key].last()]
				if !ok {
					return fmt.Errorf("channel %s: message %s leads nowhere", channel, key)
				}
				schema, err := compiler.Compile("asyncapi.json" + c.Payload.Ref)
				if err != nil {
					return err
				}
				for _, x := range c.Examples {
					if err := hold(schema, x.Payload); err != nil {
						return fmt.Errorf("example of %s: %w", key, err)
					}
				}
				if key == leasedLine {
					d.leased = message{key, schema}
					continue
				}
				to[c.Name] = message{key, schema}
			}
			return nil
		}
		said, answered := d.server, d.server
		switch {
		case channel != socket:
			said = d.events
		case op.Action == "receive":
			said = d.client
		}
		err := add(said, op.Messages)
		if err == nil && op.Reply != nil {
			err = add(answered, op.Reply.Messages)
		}
		if err != nil {
			return nil, err
		}
	}
	for channel, c := range r.Channels {
		for key := range c.Messages {
			if !named[channel+" "+key] {
				return nil, fmt.Errorf("channel %s: no operation has its message %s", channel, key)
			}
		}
	}
	if d.leased.schema == nil || d.server[line].schema == nil {
		return nil, errors.New("the lines of a run are missing")
	}
	return d, nil
}

func hold(schema *jsonschema.Schema, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w: %.300s", err, text)
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("%w\nof %.500s", err, text)
	}
	return nil
}

func (d *Document) hold(m message, text []byte) error {
	d.mu.Lock()
	d.seen[m.name] = true
	d.mu.Unlock()
	return hold(m.schema, text)
}

func opOf(text []byte) (op string, count int, err error) {
	var head struct {
		Op    string
		Count int
	}
	err = json.Unmarshal(text, &head)
	return head.Op, head.Count, err
}

// FromClient says why a line is not as clients may send them.
func (d *Document) FromClient(text []byte) error {
	op, _, err := opOf(text)
	m, ok := d.client[op]
	if err != nil || !ok {
		return fmt.Errorf("no client says %.200s", text)
	}
	return d.hold(m, text)
}

// FromServer says why a text frame is not as the node may send them.
func (d *Document) FromServer(text []byte) error {
	lines := bytes.Split(text, []byte("\n"))
	for i := 0; i < len(lines); i++ {
		op, count, err := opOf(lines[i])
		m, ok := d.server[op]
		if err != nil || !ok || op == line {
			return fmt.Errorf("no node says %.200s", lines[i])
		}
		if err := d.hold(m, lines[i]); err != nil {
			return err
		}
		if i+count >= len(lines) {
			return fmt.Errorf("%d lines were to follow %s", count, lines[i])
		}
		for range count {
			i++
			if err := d.line(lines[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// line holds a line of a run: only one of a membership has a lease.
func (d *Document) line(text []byte) error {
	var lease struct {
		LeaseMS *int64 `json:"lease_ms"`
	}
	if err := json.Unmarshal(text, &lease); err == nil && lease.LeaseMS != nil {
		return d.hold(d.leased, text)
	}
	return d.hold(d.server[line], text)
}

// Event says why an event is not as a stream may have it.
func (d *Document) Event(name string, data []byte) error {
	m, ok := d.events[name]
	if !ok {
		return fmt.Errorf("no stream has the event %q", name)
	}
	return d.hold(m, data)
}

// Ops are the ops that clients may say.
func (d *Document) Ops() []string { return slices.Sorted(maps.Keys(d.client)) }

// CloseCodes are the codes with which the node may end a WebSocket.
func (d *Document) CloseCodes() []int { return d.codes }

// Unseen are the messages of the document, by name, that nothing was held against yet.
func (d *Document) Unseen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, list := range []map[string]message{d.client, d.server, d.events, {"": d.leased}} {
		for _, m := range list {
			if !d.seen[m.name] {
				out = append(out, m.name)
			}
		}
	}
	slices.Sort(out)
	return out
}
