package wire

import (
	"fmt"
	"time"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
)

// MaxID is the largest id of a client's frame: 2^53-1, exact in JavaScript.
const MaxID = 1<<53 - 1

// Frame is one client line over a WebSocket. Which fields count depends on Op.
type Frame struct {
	Op string
	ID int64 // 0: none was given, or none could be read

	Client, Version, Token string         // hello; auth has a token alone
	Publication            Publication    // publish
	Subscribe              SubscribeFrame // subscribe
	Join                   *JoinFrame     // join
	Settle                 *SettleFrame   // ack, nack, extend, reject
	Request                *RequestFrame  // request, with its record in Publication
	Reply                  *ReplyFrame    // reply, with its value in Publication
	Topic                  string         // metadata
	Sub                    string         // unsubscribe, credit, leave and those of Settle
	Add                    int64          // credit
}

// SubscribeFrame asks for a topic, from where and what of it. It is the body of
// POST /topics/subscribe too.
type SubscribeFrame struct {
	Topic     string
	From      string // "", earliest, latest or a time
	Cursor    string
	HasCursor bool
	After     map[ident.Index]ident.Offset // nil: none
	Key       *string
	Keys      []string
	KeyPrefix *string
	Partition *ident.Index
	Credit    int64 // -1: no bound
}

// MaxKeys and MaxKeysBytes bound the keys of one subscription, which the server
// holds for as long as it lasts.
const (
	MaxKeys      = 1000
	MaxKeysBytes = 64 << 10
)

// opFields are the names each op takes.
var opFields = map[string][]string{
	"hello":       {"op", "id", "client", "version", "token"},
	"auth":        {"op", "id", "token"},
	"publish":     {"op", "id", "topic", "key", "value", "value_base64", "content_type", "headers", "acks", "partition", "producer", "sequence", "tombstone"},
	"subscribe":   append([]string{"op", "id"}, subscribeFields("after", "keys", "credit")...),
	"unsubscribe": {"op", "id", "sub"},
	"credit":      {"op", "id", "sub", "add"},
	"metadata":    {"op", "id", "topic"},
	"join":        append([]string{"op", "id", "topic", "group", "member", "credit"}, settingFields...),
	"ack":         {"op", "id", "sub", "partition", "offset", "offsets", "through"},
	"nack":        {"op", "id", "sub", "partition", "offset", "offsets", "delay"},
	"extend":      {"op", "id", "sub", "partition", "offset", "offsets"},
	"reject":      {"op", "id", "sub", "partition", "offset", "offsets", "reason"},
	"leave":       {"op", "id", "sub"},
	"request":     {"op", "id", "topic", "key", "value", "value_base64", "content_type", "headers", "timeout", "correlation"},
	"reply":       {"op", "id", "to", "value", "value_base64", "content_type", "headers", "status"},
}

// Ops are the ops this version takes.
var Ops = []string{"hello", "auth", "publish", "subscribe", "unsubscribe", "credit", "metadata", "join", "ack", "nack", "extend", "reject", "leave", "request", "reply"}

func subscribeFields(more ...string) []string {
	return append([]string{"topic", "from", "cursor", "key", "key_prefix", "partition"}, more...)
}

// ParseFrame reads one client line. On an error Op, ID and, of a publish,
// producer, sequence and partition are filled in as far as they could be read:
// in a line that is no JSON, those before the place where it breaks.
// The frame's slices may point into line.
func ParseFrame(line []byte) (f Frame, err error) {
	if err = f.read(line); err != nil && f.Op == "publish" {
		f.Publication.identify(line)
	}
	return f, err
}

// read goes over the line once and then over its members: what they mean
// depends on op, which may be the last of them.
func (f *Frame) read(line []byte) error {
	var room [enoughMembers]member
	members, err := f.head(line, room[:0])
	if err != nil {
		return err
	}
	known, ok := opFields[f.Op]
	if !ok {
		e := fault.Unknown("op", f.Op, Ops)
		e.Kind = fault.Invalid
		return e.With("field", "op")
	}
	f.Subscribe.Credit = -1
	switch f.Op {
	case "join":
		f.Join = &JoinFrame{Credit: -1}
	case "ack", "nack", "extend", "reject":
		f.Settle = &SettleFrame{Entry: Entry{Delay: -1}}
	case "request":
		f.Request = &RequestFrame{}
	case "reply":
		f.Reply = &ReplyFrame{}
	}
	var seen [64]bool
	for _, m := range members {
		if err := take(m.quoted, m.raw, known, &seen, f.member); err != nil {
			return err
		}
	}
	return f.finish()
}

// enoughMembers is more than any op takes. Of so many members one is unknown or
// comes twice, and that is the complaint; those behind it change nothing.
const enoughMembers = 16

// member is a member of an object as it stands there.
type member struct{ quoted, raw []byte }

// head finds op and id, whatever else the line holds, and of a broken line those
// that come before the break. It appends what members there is room for.
func (f *Frame) head(line []byte, members []member) ([]member, error) {
	i := skipSpace(line, 0)
	if i >= len(line) || line[i] != '{' {
		return nil, fault.New(fault.Invalid, "a line is one JSON object with \"op\" and \"id\"")
	}
	var op, id []byte
	end, err := skipObject(line, i, 0, func(quoted, raw []byte) error {
		switch string(quoted) {
		case `"op"`:
			op = raw
		case `"id"`:
			id = raw
		}
		if len(members) < cap(members) {
			members = append(members, member{quoted, raw})
		}
		return nil
	})
	if err == nil && skipSpace(line, end) != len(line) {
		err = syntax(end, "more after the object")
	}
	if err != nil {
		err = fault.New(fault.Invalid, "%w", err)
	}
	complain := func(also error) {
		if err == nil { // the first is what is wrong
			err = also
		}
	}
	if id != nil {
		n, bad := (Value{Name: "id", Raw: id}).Int(1, MaxID)
		f.ID = n
		complain(bad)
	}
	if op == nil {
		complain(invalidField("op", "is needed: one of %q", Ops))
		return members, err
	}
	name, bad := opOf(op)
	f.Op = name
	complain(bad)
	return members, err
}

// opOf reads the name of an op; one that is known costs nothing.
func opOf(raw []byte) (string, error) {
	if raw[0] == '"' {
		if k := among(Ops, raw); k >= 0 {
			return Ops[k], nil
		}
	}
	return (Value{Name: "op", Raw: raw}).String()
}

func (f *Frame) member(name string, v Value) (err error) {
	switch {
	case name == "op" || name == "id":
		return nil
	case f.Op == "publish":
		return f.Publication.member(name, v)
	case f.Op == "subscribe":
		return f.Subscribe.member(name, v)
	case f.Join != nil:
		return f.Join.member(name, v)
	case f.Settle != nil && name != "sub":
		return f.Settle.member(name, v)
	case f.Request != nil:
		return f.Request.member(name, v, &f.Publication)
	case f.Reply != nil:
		return f.Reply.member(name, v, &f.Publication)
	}
	switch name {
	case "client":
		f.Client, err = v.String()
	case "version":
		f.Version, err = v.String()
	case "token":
		f.Token, err = v.String()
	case "sub":
		f.Sub, err = v.String()
	case "topic":
		f.Topic, err = v.String()
	case "add":
		f.Add, err = v.Int(1, MaxCredit)
	}
	return err
}

// MaxCredit bounds the messages a client can ask for at once.
const MaxCredit = 1 << 31

func (f *Frame) finish() error {
	switch f.Op {
	case "publish":
		p := &f.Publication
		switch {
		case p.Topic == "":
			return missing("topic")
		case p.hasProducer != p.hasSequence:
			return invalidField("sequence", "and \"producer\" go together")
		case p.hasProducer && p.Partition == nil:
			return invalidField("partition", "is needed with \"producer\": sequences count by partition")
		case p.hasProducer && p.Acks == "none":
			return invalidField("acks", "\"none\" takes no producer and sequence")
		}
		return p.finish()
	case "subscribe":
		return f.Subscribe.finish()
	case "auth":
		if f.Token == "" {
			return missing("token")
		}
	case "metadata":
		if f.Topic == "" {
			return missing("topic")
		}
	case "join":
		return f.Join.finish()
	case "unsubscribe", "leave":
		if f.Sub == "" {
			return missing("sub")
		}
	case "ack", "nack", "extend", "reject":
		if f.Sub == "" {
			return missing("sub")
		}
		return f.Settle.finish(f.Op)
	case "request":
		if f.Publication.Topic == "" {
			return missing("topic")
		}
		return f.Publication.finish()
	case "reply":
		if f.Reply.To == "" {
			return missing("to")
		}
		return f.Publication.finish()
	case "credit":
		if f.Sub == "" {
			return missing("sub")
		}
		if f.Add == 0 {
			return missing("add")
		}
	}
	return nil
}

// identify reads of a refused publication what names its place in a
// producer's sequence, whatever else is wrong with it.
func (p *Publication) identify(line []byte) {
	i := skipSpace(line, 0)
	_, _ = skipObject(line, i, 0, func(quoted, raw []byte) error { // up to where the line breaks, if it does
		switch name := unquote(quoted); name {
		case "topic", "partition", "producer", "sequence":
			_ = p.member(name, Value{Name: name, Raw: raw}) // what cannot be read stays unset
		}
		return nil
	})
}

// Sequenced reports whether the publication names its producer and sequence,
// so that a refusal for what it is uses the number up.
func (p *Publication) Sequenced() bool {
	return p.hasProducer && p.hasSequence && !p.Producer.IsZero() && p.Partition != nil
}

func missing(field string) error { return invalidField(field, "is needed") }

// ParseSubscribe reads the body of POST /topics/subscribe.
func ParseSubscribe(body []byte) (SubscribeFrame, error) {
	s := SubscribeFrame{Credit: -1}
	if err := Object(body, subscribeFields(), s.member); err != nil {
		return s, err
	}
	return s, s.finish()
}

func (s *SubscribeFrame) member(name string, v Value) (err error) {
	switch name {
	case "topic":
		s.Topic, err = v.String()
	case "from":
		if s.From, err = v.String(); err == nil {
			err = CheckFrom(s.From)
		}
	case "cursor":
		s.HasCursor = true
		s.Cursor, err = v.String()
	case "after":
		s.After, err = v.offsets()
	case "key":
		s.Key, err = filterKey(v)
	case "key_prefix":
		s.KeyPrefix, err = filterKey(v)
	case "keys":
		if s.Keys, err = v.Strings(MaxKeys); err == nil {
			if len(s.Keys) == 0 {
				return v.invalid("takes at least one key")
			}
			bytes := 0
			for _, k := range s.Keys {
				if _, err := Key(k); err != nil {
					return v.invalid("takes keys of 1 to %d bytes", MaxKeyBytes)
				}
				bytes += len(k)
			}
			if bytes > MaxKeysBytes {
				return v.invalid("takes keys of at most %d bytes together; these have %d: use more subscriptions, or \"key_prefix\"", MaxKeysBytes, bytes)
			}
		}
	case "partition":
		s.Partition, err = v.Partition()
	case "credit":
		s.Credit, err = v.Int(0, MaxCredit)
	}
	return err
}

func filterKey(v Value) (*string, error) {
	s, err := v.String()
	if err != nil {
		return nil, err
	}
	if _, err := Key(s); err != nil {
		return nil, v.invalid("takes 1 to %d bytes of UTF-8", MaxKeyBytes)
	}
	return &s, nil
}

func (s *SubscribeFrame) finish() error {
	if s.Topic == "" {
		return missing("topic")
	}
	return s.Check()
}

// Check says which of the parts exclude one another.
func (s *SubscribeFrame) Check() error {
	switch {
	case s.HasCursor && s.From != "":
		return invalidField("from", "and \"cursor\" exclude one another")
	case s.After != nil && !s.HasCursor:
		return invalidField("after", "refines a \"cursor\", which is missing")
	}
	filters := 0
	for _, given := range []bool{s.Key != nil, s.Keys != nil, s.KeyPrefix != nil} {
		if given {
			filters++
		}
	}
	if filters > 1 {
		return invalidField("key", "excludes \"keys\" and \"key_prefix\", and these each other: give one filter")
	}
	return nil
}

// MaxOffset bounds offsets in what clients send: 2^53-1.
const MaxOffset = 1<<53 - 1

// ParsePartition reads the number of a partition out of text.
func ParsePartition(s string) (ident.Index, error) {
	n, ok := decimal(s, maxPartition)
	if !ok {
		return 0, invalidField("partition", "takes a whole number, not %q", clip(s))
	}
	return ident.Index(n), nil
}

// decimal reads digits alone, without sign, space or leading zeros.
func decimal(s string, most uint64) (uint64, bool) {
	if s == "" || len(s) > 19 || (len(s) > 1 && s[0] == '0') {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + uint64(s[i]-'0')
	}
	return n, n <= most
}

// ParseOffset reads an offset out of text.
func ParseOffset(field, s string) (ident.Offset, error) {
	n, ok := decimal(s, MaxOffset)
	if !ok {
		return 0, invalidField(field, "takes an offset (a whole number from 0), not %q", clip(s))
	}
	return ident.Offset(n), nil
}

// CheckFrom says why s is no place to read a topic from.
func CheckFrom(s string) error {
	if s == "earliest" || s == "latest" {
		return nil
	}
	if _, err := ParseTime("from", s); err != nil {
		return invalidField("from", "takes \"earliest\", \"latest\" or a time such as \"2026-01-31T15:04:05Z\", not %q", clip(s))
	}
	return nil
}

// ParseTime reads RFC 3339 as milliseconds since 1970. A record is at or after
// the time when its own milliseconds are, so what is finer rounds up.
func ParseTime(field, s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, invalidField(field, "takes a time such as \"2026-01-31T15:04:05Z\", not %q", clip(s))
	}
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return fmt.Sprintf("%.64s…", s)
	}
	return s
}
