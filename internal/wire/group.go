package wire

import (
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

// Bounds of what one call may say of leases.
const (
	MaxEntries = 10_000 // of one call
	MaxOffsets = 1_024  // of one line over a WebSocket
)

// settingFields are the settings of a group, as clients name them.
var settingFields = []string{"mode", "from", "lease", "session", "max_deliveries", "backoff", "dead_letter", "max_in_flight"}

// GroupSettings are what a client says of a group: its settings, and where it begins.
type GroupSettings struct {
	Patch cluster.GroupPatch
	From  string // earliest, latest or a time; empty: not given
	Given bool   // any of them
}

func (g *GroupSettings) member(name string, v Value) (err error) {
	g.Given = true
	p := &g.Patch
	switch name {
	case "mode":
		var s string
		if s, err = v.Choice(string(cluster.Exclusive), string(cluster.Shared)); err == nil {
			mode := cluster.GroupMode(s)
			p.Mode = &mode
		}
	case "from":
		if g.From, err = v.String(); err == nil {
			err = CheckFrom(g.From)
		}
	case "lease":
		p.Lease, err = v.span(cluster.MinLease, cluster.MaxLease)
	case "session":
		p.Session, err = v.span(cluster.MinSession, cluster.MaxSession)
	case "backoff":
		p.Backoff, err = v.span(0, cluster.MaxBackoff)
	case "max_deliveries":
		p.MaxDeliveries, err = v.count(1, cluster.MaxMaxDeliveries)
	case "max_in_flight":
		p.MaxInFlight, err = v.count(1, cluster.MaxUnfinished)
	case "dead_letter":
		var s string
		if s, err = v.String(); err == nil {
			if wrong := ident.CheckTopicName(s); wrong != nil {
				return v.invalid("takes the name of a topic: %w", wrong)
			}
			p.DeadLetter = &s
		}
	}
	return err
}

// span takes a duration of whole milliseconds.
func (v Value) span(lo, hi time.Duration) (*time.Duration, error) {
	d, err := v.Duration(lo, hi)
	if err == nil && d%time.Millisecond != 0 {
		err = v.invalid("takes whole milliseconds")
	}
	return &d, err
}

func (v Value) count(lo, hi int64) (*int, error) {
	n, err := v.Int(lo, hi)
	i := int(n)
	return &i, err
}

// Registration is the body of POST /groups/{topic}/register.
type Registration struct {
	Group string
	GroupSettings
}

// ParseRegistration reads it.
func ParseRegistration(body []byte) (r Registration, err error) {
	err = Object(body, append([]string{"group"}, settingFields...), func(name string, v Value) (err error) {
		if name == "group" {
			r.Group, err = v.String()
			return err
		}
		return r.member(name, v)
	})
	if err == nil && r.Group == "" {
		err = missing("group")
	}
	return r, err
}

// ParseGroupPatch reads the body of PATCH /groups/{topic}/{group}.
func ParseGroupPatch(body []byte) (cluster.GroupPatch, error) {
	var g GroupSettings
	err := Object(body, settingFields, func(name string, v Value) error {
		switch name {
		case "mode":
			return v.invalid("cannot be changed: register another group")
		case "from":
			return v.invalid("cannot be changed here: PUT …/offsets moves a group")
		}
		return g.member(name, v)
	})
	return g.Patch, err
}

// Membership is the body of POST /groups/{topic}/node.
type Membership struct{ Group, Member string }

// ParseMembership reads it.
func ParseMembership(body []byte) (m Membership, err error) {
	err = Object(body, []string{"group", "member"}, func(name string, v Value) (err error) {
		switch name {
		case "group":
			m.Group, err = v.String()
		case "member":
			m.Member, err = v.memberID()
		}
		return err
	})
	if err == nil && m.Group == "" {
		err = missing("group")
	}
	return m, err
}

func (v Value) memberID() (string, error) {
	s, err := v.String()
	if err == nil {
		if wrong := ident.CheckMember(s); wrong != nil {
			err = v.invalid("takes the id of a member: %w", wrong)
		}
	}
	return s, err
}

func (v Value) epoch() (ident.MemberEpoch, error) {
	n, err := v.Int(1, MaxOffset)
	return ident.MemberEpoch(n), err
}

// Heartbeat is the body of POST …/heartbeat.
type Heartbeat struct {
	Epoch ident.MemberEpoch
	Held  []ident.Index
	Says  bool // what it holds at all
}

// ParseHeartbeat reads it.
func ParseHeartbeat(body []byte) (h Heartbeat, err error) {
	err = Object(body, []string{"epoch", "partitions"}, func(name string, v Value) (err error) {
		if name == "epoch" {
			h.Epoch, err = v.epoch()
			return err
		}
		h.Says = true
		return v.items(cluster.MaxPartitions, func(v Value) error {
			i, err := v.Partition()
			if err == nil {
				h.Held = append(h.Held, *i)
			}
			return err
		})
	})
	if err == nil && h.Epoch == 0 {
		err = missing("epoch")
	}
	return h, err
}

// items takes a list of at most n values.
func (v Value) items(n int, item func(Value) error) error {
	if v.Raw[0] != '[' {
		return v.invalid("takes a list")
	}
	for i, count := skipSpace(v.Raw, 1), 0; v.Raw[i] != ']'; count++ {
		if count == n {
			return v.invalid("takes at most %d", n)
		}
		end, err := skipValue(v.Raw, i, 0)
		if err != nil {
			return v.invalid("takes a list")
		}
		if err := item(Value{Name: v.Name, Raw: v.Raw[i:end]}); err != nil {
			return err
		}
		if i = skipSpace(v.Raw, end); v.Raw[i] == ',' {
			i = skipSpace(v.Raw, i+1)
		}
	}
	return nil
}

// Verb is what a member says of a record that it holds.
type Verb string

const (
	Ack     Verb = "ack"
	Through Verb = "through" // ack, with all that is leased to it before
	Nack    Verb = "nack"
	Extend  Verb = "extend"
	Reject  Verb = "reject"
)

// Entry says one thing of one record.
type Entry struct {
	Verb      Verb
	Partition ident.Index
	Offset    ident.Offset
	Delay     time.Duration // of a nack; below 0: the group's backoff
	Reason    string        // of a rejection
}

// Settlement is the body of POST …/ack.
type Settlement struct {
	Member  string
	Epoch   ident.MemberEpoch
	Entries []Entry
}

// ParseSettlement reads it.
func ParseSettlement(body []byte) (s Settlement, err error) {
	known := []string{"member", "epoch", string(Ack), string(Through), string(Nack), string(Extend), string(Reject)}
	err = Object(body, known, func(name string, v Value) (err error) {
		switch name {
		case "member":
			s.Member, err = v.memberID()
		case "epoch":
			s.Epoch, err = v.epoch()
		default:
			err = v.items(MaxEntries-len(s.Entries), func(v Value) error {
				e, err := v.entry(Verb(name))
				s.Entries = append(s.Entries, e)
				return err
			})
		}
		return err
	})
	switch {
	case err != nil:
	case s.Member == "":
		err = missing("member")
	case s.Epoch == 0:
		err = missing("epoch")
	}
	return s, err
}

func (v Value) entry(verb Verb) (Entry, error) {
	e := Entry{Verb: verb, Offset: -1, Delay: -1}
	known := []string{"partition", "offset"}
	switch verb {
	case Nack:
		known = append(known, "delay")
	case Reject:
		known = append(known, "reason")
	}
	var placed bool
	err := v.Object(known, func(name string, v Value) (err error) {
		if name == "partition" {
			var i *ident.Index
			if i, err = v.Partition(); err == nil {
				e.Partition, placed = *i, true
			}
			return err
		}
		return e.member(name, v)
	})
	if err == nil && (!placed || e.Offset < 0) {
		err = v.invalid("takes objects with \"partition\" and \"offset\"")
	}
	return e, err
}

func (e *Entry) member(name string, v Value) (err error) {
	switch name {
	case "offset":
		var n int64
		n, err = v.Int(0, MaxOffset)
		e.Offset = ident.Offset(n)
	case "delay":
		e.Delay, err = v.Duration(0, cluster.MaxLease)
	case "reason":
		if e.Reason, err = v.String(); err == nil && len(e.Reason) > cluster.MaxReasonBytes {
			err = v.invalid("takes at most %d bytes", cluster.MaxReasonBytes)
		}
	}
	return err
}

// GroupMove is the body of PUT …/offsets.
type GroupMove struct {
	From          string // empty: Offsets are given
	Offsets       map[ident.Index]ident.Offset
	DryRun, Force bool
}

// ParseGroupMove reads it.
func ParseGroupMove(body []byte) (m GroupMove, err error) {
	err = Object(body, []string{"from", "offsets", "dry_run", "force"}, func(name string, v Value) (err error) {
		switch name {
		case "from":
			if m.From, err = v.String(); err == nil {
				err = CheckFrom(m.From)
			}
		case "offsets":
			m.Offsets, err = v.offsets()
		case "dry_run":
			m.DryRun, err = v.Bool()
		case "force":
			m.Force, err = v.Bool()
		}
		return err
	})
	switch {
	case err != nil:
	case m.From == "" && len(m.Offsets) == 0:
		err = invalidField("from", "or \"offsets\" is needed: where the group is to go")
	case m.From != "" && m.Offsets != nil:
		err = invalidField("offsets", "and \"from\" exclude one another")
	}
	return m, err
}

// offsets takes an object of offsets by partition.
func (v Value) offsets() (map[ident.Index]ident.Offset, error) {
	out := map[ident.Index]ident.Offset{}
	err := v.Each(func(name string, v Value) error {
		index, err := ParsePartition(name)
		if err != nil {
			return err
		}
		offset, err := v.Int(0, MaxOffset)
		out[index] = ident.Offset(offset)
		return err
	})
	return out, err
}

// JoinFrame makes a connection a member of a group, which it registers on the way where
// settings come along.
type JoinFrame struct {
	Topic, Group, Member string
	Credit               int64 // -1: no bound but max_in_flight
	GroupSettings
}

func (j *JoinFrame) member(name string, v Value) (err error) {
	switch name {
	case "topic":
		j.Topic, err = v.String()
	case "group":
		j.Group, err = v.String()
	case "member":
		j.Member, err = v.memberID()
	case "credit":
		j.Credit, err = v.Int(0, MaxCredit)
	default:
		err = j.GroupSettings.member(name, v)
	}
	return err
}

func (j *JoinFrame) finish() error {
	switch {
	case j.Topic == "":
		return missing("topic")
	case j.Group == "":
		return missing("group")
	}
	return nil
}

// SettleFrame says something of records that were delivered over the connection.
type SettleFrame struct {
	Entry               // of all of them; its Offset of one
	Offsets             []ident.Offset
	placed, one, others bool
}

func (s *SettleFrame) member(name string, v Value) (err error) {
	switch name {
	case "partition":
		var i *ident.Index
		if i, err = v.Partition(); err == nil {
			s.Partition, s.placed = *i, true
		}
	case "offsets":
		s.others = true
		err = v.items(MaxOffsets, func(v Value) error {
			n, err := v.Int(0, MaxOffset)
			s.Offsets = append(s.Offsets, ident.Offset(n))
			return err
		})
	case "through":
		s.Verb, s.others = Through, true
		var n int64
		n, err = v.Int(0, MaxOffset)
		s.Offsets = append(s.Offsets, ident.Offset(n))
	case "offset":
		s.one = true
		fallthrough
	default:
		err = s.Entry.member(name, v)
	}
	return err
}

func (s *SettleFrame) finish(op string) error {
	switch {
	case !s.placed:
		return missing("partition")
	case s.one && s.others, s.Verb == Through && len(s.Offsets) > 1:
		return invalidField("offset", "excludes \"offsets\" and \"through\", and these each other")
	case !s.one && len(s.Offsets) == 0:
		return invalidField("offset", "or \"offsets\" is needed: which records this is about")
	}
	if s.one {
		s.Offsets = []ident.Offset{s.Offset}
	}
	if s.Verb != Through {
		s.Verb = Verb(op)
	}
	return nil
}

// Entries are what it says of each record.
func (s *SettleFrame) Entries() []Entry {
	out := make([]Entry, len(s.Offsets))
	for i, o := range s.Offsets {
		out[i] = s.Entry
		out[i].Offset = o
	}
	return out
}
