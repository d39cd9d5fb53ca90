package inbox

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"tidewire/internal/ident"
)

type (
	// Token is what makes an inbox impossible to guess: 128 bits of chance.
	Token [16]byte
	// Process names one life of a gateway's process.
	Process [8]byte
)

// Address is an inbox: where a reply goes. As text it is opaque to clients:
//
//	base64url of  version | topic | node | process | token [| life | partition | timeout]
//	bytes            1       16     16       8        16       8        4           4
type Address struct {
	Topic   ident.TopicID // of the request: the right to reply is asked for there
	Node    ident.NodeID  // the gateway that was asked
	Process Process       // in this life of it
	Token   Token
	// Lasting says that the request has a correlation id of its client's, so that it can be
	// repeated elsewhere: once the Life of the node is over a reply is kept at the leader of
	// Partition, no longer than Timeout.
	Lasting   bool
	Life      ident.BrokerEpoch // 0: none counted when it was asked
	Partition ident.Index
	Timeout   time.Duration // whole milliseconds, at most MaxTimeout
}

// Bounds of a request's timeout.
const (
	MinTimeout     = time.Millisecond
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = 5 * time.Minute
)

const (
	version      = 2
	briefBytes   = 1 + 16 + 16 + 8 + 16
	lastingBytes = briefBytes + 8 + 4 + 4
	// MaxText is the length of the longest inbox.
	MaxText = (lastingBytes*8 + 5) / 6
)

var text = base64.RawURLEncoding.Strict()

var errAddress = errors.New("this is no inbox that a gateway gave")

// String is the address as clients see it.
func (a *Address) String() string {
	var room [lastingBytes]byte
	b := append(room[:0], version)
	b = append(b, a.Topic[:]...)
	b = append(b, a.Node[:]...)
	b = append(b, a.Process[:]...)
	b = append(b, a.Token[:]...)
	if a.Lasting {
		b = binary.BigEndian.AppendUint64(b, uint64(a.Life))
		b = binary.BigEndian.AppendUint32(b, uint32(a.Partition))
		b = binary.BigEndian.AppendUint32(b, uint32(a.Timeout/time.Millisecond))
	}
	return text.EncodeToString(b)
}

// Parse reads an address; any text may come.
func Parse(s string) (a Address, err error) {
	var room [lastingBytes]byte
	if n := text.DecodedLen(len(s)); n != briefBytes && n != lastingBytes {
		return a, errAddress
	}
	n, err := text.Decode(room[:], []byte(s))
	if err != nil || n != briefBytes && n != lastingBytes || room[0] != version {
		return a, errAddress
	}
	b := room[1:n]
	take := func(to []byte) { b = b[copy(to, b):] }
	take(a.Topic[:])
	take(a.Node[:])
	take(a.Process[:])
	take(a.Token[:])
	if len(b) > 0 {
		a.Lasting = true
		a.Life = ident.BrokerEpoch(binary.BigEndian.Uint64(b))
		a.Partition = ident.Index(binary.BigEndian.Uint32(b[8:]))
		a.Timeout = time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Millisecond
		if a.Timeout < MinTimeout || a.Timeout > MaxTimeout {
			return Address{}, errAddress
		}
	}
	if a.String() != s { // a line break among the letters is passed over by the decoder
		return Address{}, errAddress
	}
	return a, nil
}

// Ref is the partition of the request.
func (a *Address) Ref() ident.Partition { return ident.Partition{Topic: a.Topic, Index: a.Partition} }
