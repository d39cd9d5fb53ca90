// Package record is the format of a batch of records: the one unit on disk, in
// memory and between nodes. A gateway builds a batch and seals its body with a
// checksum; the leader writes its own part into the header (place, epoch, time)
// and seals that; from then on nobody changes a byte, and nobody decodes a
// batch in order to copy it.
//
//	offset size
//	 0      4   length       of the whole batch, this header included; never 0
//	 4      1   version      1
//	 5      1   flags        0; a reader refuses bits it does not know
//	 6      2   reserved     0
//	 8      4   head CRC     CRC-32C of bytes 0-8 and 12-64, written by the leader
//	12      4   body CRC     CRC-32C of bytes 64-length, written by the gateway
//	16     16   topic id
//	32      4   partition
//	36      4   leader epoch
//	40      8   base offset
//	48      8   timestamp    ms since 1970, never falling within a log
//	56      4   span         offsets this batch occupies; 0 if it holds voids alone
//	60      4   entries      records and voids in the body
//	64      …   body
//
// All numbers are little endian. The body:
//
//	uvarint n, n × 16 bytes      the producers that the entries name by number
//	entries, each
//	  uvarint length             of the rest of the entry
//	  1 byte  attributes         key, tombstone, producer, idempotency, void, headers, JSON
//	  uvarint delta              offset minus base offset
//	  [uvarint producer, uvarint sequence]
//	  [uvarint length, key]
//	  [uvarint length, principal, uvarint length, idempotency key, 16 bytes hash of the content]
//	  [uvarint length, content type]           absent when the JSON attribute is set
//	  [uvarint n, n × (uvarint length, name, uvarint length, value)]
//	  value                      what is left
//
// A void is an entry that takes no offset: it says that a producer's sequence
// number was used up by a record that was refused for what it is. Span is kept
// apart from the number of entries so that compaction can drop records and
// leave the offsets as they are.
package record
