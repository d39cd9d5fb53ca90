package httpapi

import (
	"strings"

	"tidewire/gateway/deliver"
	"tidewire/internal/cluster"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// placeParameters say where to begin and what to read, in polls and streams.
var placeParameters = []string{"from", "cursor", "after", "key", "key_prefix", "partition"}

// pollParameters are those of a poll.
var pollParameters = append([]string{"offset", "at", "limit", "max_bytes", "wait"}, placeParameters...)

// place reads placeParameters, and offset and at where the call takes them.
func (p params) place(t *cluster.Topic) (deliver.Request, error) {
	q := deliver.Request{Topic: t}
	if err := p.exclusive("offset", "at", "cursor", "from"); err != nil {
		return q, err
	}
	if err := p.exclusive("key", "key_prefix"); err != nil {
		return q, err
	}
	if err := p.filter(&q); err != nil {
		return q, err
	}
	q.Cursor, q.HasCursor = p.get("cursor")
	if from, ok := p.get("from"); ok {
		if err := wire.CheckFrom(from); err != nil {
			return q, err
		}
		q.From = from
	}
	if after, ok := p.get("after"); ok {
		if !q.HasCursor {
			return q, invalid("after", `refines "cursor", which is missing`)
		}
		var err error
		if q.After, err = parseAfter(after); err != nil {
			return q, err
		}
	}
	return q, p.onePlace(&q)
}

func (p params) filter(q *deliver.Request) error {
	var partition *ident.Index
	if s, ok := p.get("partition"); ok {
		i, err := wire.ParsePartition(s)
		if err != nil {
			return err
		}
		partition = &i
	}
	keys := map[string]*string{}
	for _, name := range []string{"key", "key_prefix"} {
		if s, ok := p.get(name); ok {
			if _, err := wire.Key(s); err != nil {
				return invalid(name, "takes 1 to %d bytes of UTF-8", wire.MaxKeyBytes)
			}
			keys[name] = &s
		}
	}
	q.Filter = deliver.NewFilter(partition, keys["key"], nil, keys["key_prefix"])
	return nil
}

// onePlace reads offset and at, which are places in one partition.
func (p params) onePlace(q *deliver.Request) error {
	for _, name := range []string{"offset", "at"} {
		s, ok := p.get(name)
		if !ok {
			continue
		}
		if q.Filter.Partition == nil {
			if n := len(q.Topic.Partitions); n != 1 {
				return invalid("partition", "is needed with %q: topic %q has %d partitions; without it use from or cursor", name, q.Topic.Name, n)
			}
			q.Filter.Partition = &q.Topic.Partitions[0].Index
		}
		switch {
		case name == "at":
			if _, err := wire.ParseTime("at", s); err != nil {
				return err
			}
			q.From = s
		case s == deliver.Earliest || s == deliver.Latest:
			q.From = s
		default:
			o, err := wire.ParseOffset("offset", s)
			if err != nil {
				return invalid("offset", `takes a whole number from 0, "earliest" or "latest", not %q`, clip(s))
			}
			q.Offset = &o
		}
	}
	return nil
}

// parseAfter reads the last offsets seen: 0:17,1:20.
func parseAfter(s string) (map[ident.Index]ident.Offset, error) {
	const takes = `takes the last offsets seen, as "0:17,1:20"`
	out := map[ident.Index]ident.Offset{}
	for pair := range strings.SplitSeq(s, ",") {
		left, right, ok := strings.Cut(pair, ":")
		if !ok {
			return nil, invalid("after", takes+", not %q", clip(s))
		}
		i, err := wire.ParsePartition(left)
		if err != nil {
			return nil, invalid("after", takes+"; %q is no partition", clip(left))
		}
		o, err := wire.ParseOffset("after", right)
		if err != nil {
			return nil, invalid("after", takes+"; %q is no offset", clip(right))
		}
		if _, twice := out[i]; twice {
			return nil, invalid("after", "names partition %d twice", i)
		}
		out[i] = o
	}
	return out, nil
}
