package group

import (
	"fmt"
	"time"

	"tidewire/internal/ident"
	"tidewire/internal/record"
	"tidewire/internal/rpc"
	"tidewire/internal/wire"
)

// leasedBytes is more than what a lease adds to its message.
const leasedBytes = 112

// Lines are the messages of what was taken of one partition, each in one line without
// the newline, in the order in which they are to be worked on: messages as every reader
// gets them, with lease_until, lease_ms and delivery behind. now is when the answer came.
func Lines(topic string, of *rpc.TakenOf, now time.Time) ([][]byte, error) {
	at := make(map[ident.Offset]int, len(of.Leases))
	for i, l := range of.Leases {
		at[l.Offset] = i
	}
	lines := make([][]byte, len(of.Leases))
	found := 0
	for rest := of.Batches; len(rest) > 0; {
		b, more, err := record.Cut(rest)
		if err != nil {
			return nil, fmt.Errorf("what was taken: %w", err)
		}
		rest = more
		h := b.Header()
		it := b.Entries()
		for it.Next() {
			e := it.Entry()
			i, leased := at[wire.OffsetOf(h, e)]
			if e.Void || !leased || lines[i] != nil {
				continue
			}
			line := wire.AppendMessage(make([]byte, 0, wire.MessageBytes(topic, e)+leasedBytes), topic, h, e)
			lines[i] = appendLease(line[:len(line)-1], &of.Leases[i], now)
			found++
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("what was taken: %w", err)
		}
	}
	if found < len(lines) {
		return nil, fmt.Errorf("%d records were leased of partition %d, and %d came", len(lines), of.Partition.Index, found)
	}
	return lines, nil
}

// appendLease ends a message with what its lease says.
func appendLease(b []byte, l *rpc.Lease, now time.Time) []byte {
	left := max(l.Left, 0)
	b = append(b, `,"delivery":`...)
	b = fmt.Appendf(b, `%d,"lease_ms":%d,"lease_until":"`, l.Delivery, left.Milliseconds())
	b = wire.AppendTime(b, now.Add(left).UnixMilli())
	return append(b, `"}`...)
}
