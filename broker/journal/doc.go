// Package journal is the one file sequence that stands in front of the logs of
// all partitions of a data folder: whatever all of them queued meanwhile goes
// to the disk with one write and one fdatasync (group commit). It knows nothing
// of partitions; it keeps typed entries in order and gives them back in order.
//
// # Files
//
// Files have a fixed size, are filled with zeros ahead and synced together with
// their folder before use, so that a commit never waits for the file system's
// own journal. While one is written the next is prepared in the background,
// from a file that was released by a checkpoint if there is one. Names are the
// file's sequence number, 20 digits, and ".journal".
//
//	offset size   head of a file, never rewritten once the file has its name
//	 0      8     magic "TWJOURNL"
//	 8      4     format version, 1
//	12      4     CRC-32C of bytes 16-64
//	16      8     size of the file
//	24      8     sequence of the file, from 1
//	32     16     salt: random, new each time the file is taken into use
//	48     16     id of the data folder
//	64      …     zeros up to 4096, where the first frame begins
//
//	offset size   frame
//	 0      4     length of the whole frame, this header included; never 0
//	 4      4     CRC-32C of the salt, then bytes 8-length
//	 8      8     sequence of the frame, from 1, without a gap across all files
//	16      8     mark: every frame with a lower sequence was durable when this one was written
//	24      4     number of entries; 0 in a frame that only carries a mark
//	28      4     reserved, 0
//	32      …     entries, each {type 1 byte, 3 bytes 0, length 4 bytes, payload}
//
// All numbers are little endian. A Position is the file's sequence in the upper
// 32 bits and the byte offset in that file below: it grows from frame to frame
// and from file to file, and a person can read it.
//
// # Where the journal ends
//
// A power cut may keep, drop or tear every sector that was not synced, in any
// order. So what follows a bad frame proves nothing by itself; the marks do. A
// bad frame that some mark covers is corruption: reported, never cut. A bad
// frame above every mark is the torn tail: the journal ends there. Because
// marks name frame sequences and not bytes, a torn tail in the middle of a
// sequence of files stays recognisable for ever: the next file goes on with the
// very sequence number that the torn frame would have had.
//
// When the journal falls idle, an empty frame with a fresh mark follows within
// IdleMark, so that the last acknowledged frame is covered too.
//
// Frames that were left in a recycled file by its former life have another
// salt, frames behind a torn tail another sequence; and after every start the
// journal goes on in a fresh file, never behind a tail. A file that is shorter
// than its head says is corruption as well: no crash can shrink a file that was
// filled and synced before its first use.
//
// # Errors
//
// An error of a write or a sync ends the journal for ever: the page cache
// cannot be trusted after it. Everything that waits is told "unknown outcome",
// Run returns the error, and the process is expected to end. Only a lack of
// space is no such error: entries wait until the next file could be prepared,
// and Room tells admission beforehand.
package journal
