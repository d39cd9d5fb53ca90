package load

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tidewire/internal/bench/frame"
	"tidewire/internal/bench/http1"
	"tidewire/internal/bench/sock"
)

const subprotocol = "tidewire.v1.json"

// acceptGUID is RFC 6455's.
const acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// MaskKey draws a key for a connection's frames: no secret, only not the same
// for all.
func MaskKey() (key [4]byte) {
	binary.LittleEndian.PutUint32(key[:], MaskNumber())
	return key
}

// MaskNumber draws a number for a connection: no secret either.
func MaskNumber() uint32 { return rand.Uint32() | 1 }

// dialWebSocket opens one of Tidewire's.
func dialWebSocket(t Target) (*sock.Conn, error) { return DialWebSocket(t, "/ws", subprotocol) }

// DialWebSocket connects and upgrades, with a subprotocol or none (""). What the server
// has said since waits in the connection's Rest.
func DialWebSocket(t Target, path, protocol string) (*sock.Conn, error) {
	c, err := t.dial()
	if err != nil {
		return nil, err
	}
	if err := upgrade(c, t, path, protocol); err != nil {
		c.Cut()
		return nil, fmt.Errorf("open a WebSocket: %w", err)
	}
	return c, nil
}

func upgrade(c *sock.Conn, t Target, path, protocol string) error {
	var nonce [16]byte
	binary.LittleEndian.PutUint64(nonce[:], rand.Uint64())
	key := base64.StdEncoding.EncodeToString(nonce[:])
	if protocol != "" {
		protocol = "Sec-WebSocket-Protocol: " + protocol + "\r\n"
	}
	err := c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: " + t.Host + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
		key + "\r\n" + protocol + t.bearer() + "\r\n"))
	if err != nil {
		return err
	}
	head, text, err := fetchHead(c)
	if err != nil {
		return err
	}
	if head.Status != 101 {
		return fetchRefusal(c, head, text)
	}
	sum := sha1.Sum([]byte(key + acceptGUID))
	if !bytes.Contains(text[:head.Size], []byte(base64.StdEncoding.EncodeToString(sum[:]))) {
		return errors.New("the server's answer to the upgrade does not fit its question")
	}
	c.Use(head.Size)
	return nil
}

// fetchHead waits for the head of an answer; text is it and what came behind.
func fetchHead(c *sock.Conn) (http1.Head, []byte, error) {
	deadline := time.Now().Add(handshakeTimeout)
	for {
		b, err := c.Fetch(deadline)
		if err != nil {
			return http1.Head{}, nil, err
		}
		if h, whole, err := http1.ParseHead(b); whole || err != nil {
			return h, b, err
		}
	}
}

// Texts gives the payloads of the frames in b away, text or not, and answers pings.
func Texts(b []byte, c *sock.Conn, key [4]byte, text func(payload []byte) error) (used int, err error) {
	for {
		f, whole, err := frame.Parse(b[used:])
		if err != nil || !whole {
			return used, err
		}
		used += f.Size
		switch f.Op {
		case frame.Text, frame.Binary:
			err = text(f.Payload)
		case frame.Ping:
			err = c.Write(frame.Append(nil, frame.Pong, f.Payload, key))
		case frame.Close:
			err = fmt.Errorf("the server closed the connection with code %d %s", frame.CloseCode(f.Payload), f.Payload[min(2, len(f.Payload)):])
		}
		if err != nil {
			return used, err
		}
	}
}

// notice is a line of the server that is read as JSON, which none is that comes
// per message.
type notice struct {
	Op     string `json:"op"`
	ID     int64  `json:"id"`
	Sub    string `json:"sub"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`

	Cursor     string `json:"cursor"`
	Recovered  bool   `json:"recovered"`
	RetryAfter string `json:"retry_after"`
}

func (n notice) Error() string {
	text := n.Detail
	if text == "" {
		text = n.Title + n.Reason
	}
	return fmt.Sprintf("the server says %s: %s (%s)", n.Op, text, n.Code)
}

// refusal is what an error frame says.
func (n notice) refusal() error {
	return &Refusal{Code: n.Code, Title: n.Title + n.Reason, Detail: n.Detail}
}

func readNotice(line []byte) (notice, error) {
	var n notice
	if err := json.Unmarshal(line, &n); err != nil {
		return n, fmt.Errorf("a line of the server is no JSON: %.200s", line)
	}
	return n, nil
}
