package deliver

import (
	"strconv"
	"strings"

	"tidewire/internal/fault"
	"tidewire/internal/ident"
	"tidewire/internal/wire"
)

// Reasons of a gap.
const (
	ReasonExpired    = "expired"     // retention deleted what was asked for
	ReasonTruncated  = "truncated"   // what was asked for, or read, is no longer part of the log
	ReasonOtherTopic = "other-topic" // the cursor is of another topic, or of another life of this one
	ReasonUnknown    = "unknown"     // not a cursor of this system
)

// Gap says that a reader cannot go on where it asked to, and where it goes on.
// Requested, Earliest and End name offsets as `after` does ("0:17,1:20"), each
// for the partitions concerned; Requested is the cursor itself where that could
// not be read.
type Gap struct {
	Reason    string
	Requested string
	Earliest  string
	End       string
	Cursor    string // to go on from
}

// loss is a gap in one partition.
type loss struct {
	reason    string
	partition ident.Index
	requested ident.Offset
	earliest  ident.Offset
	end       ident.Offset
	resume    ident.Offset // where the reader goes on
}

func gapOf(losses []loss) *Gap {
	if len(losses) == 0 {
		return nil
	}
	g := &Gap{Reason: losses[0].reason}
	var requested, earliest, end strings.Builder
	for _, l := range losses {
		appendPlace(&requested, l.partition, l.requested)
		appendPlace(&earliest, l.partition, l.earliest)
		appendPlace(&end, l.partition, l.end)
	}
	g.Requested, g.Earliest, g.End = requested.String(), earliest.String(), end.String()
	return g
}

func appendPlace(b *strings.Builder, p ident.Index, o ident.Offset) {
	if b.Len() > 0 {
		b.WriteByte(',')
	}
	b.WriteString(strconv.FormatUint(uint64(p), 10))
	b.WriteByte(':')
	b.WriteString(strconv.FormatInt(int64(o), 10))
}

// Fault is the gap as the answer to a poll.
func (g *Gap) Fault() error {
	why := map[string]string{
		ReasonExpired:    "what the cursor points to is no longer kept",
		ReasonTruncated:  "the cursor points past what the log holds",
		ReasonOtherTopic: "the cursor is of another topic, or of an earlier one of this name",
		ReasonUnknown:    "this is not a cursor",
	}[g.Reason]
	return fault.New(fault.CursorExpired, "%s; go on from the cursor in this answer", why).
		With("reason", g.Reason).With("requested", g.Requested).With("earliest", g.Earliest).With("end", g.End).With("cursor", g.Cursor)
}

// AppendTo adds the gap's members to a line.
func (g *Gap) AppendTo(l *wire.Line) *wire.Line {
	return l.Str("reason", g.Reason).Str("requested", g.Requested).Str("earliest", g.Earliest).Str("end", g.End).Str("cursor", g.Cursor)
}
