package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// Subprotocol of the WebSocket.
const Subprotocol = "tidewire.v1.json"

// Frame is one line that the server sent over a WebSocket. The lines of a
// "messages" run come one by one with Op "message" and their Message.
type Frame struct {
	Op        string          `json:"op"`
	ID        int64           `json:"id"`
	Sub       string          `json:"sub"`
	Cursor    string          `json:"cursor"`
	Recovered bool            `json:"recovered"`
	Topic     string          `json:"topic"`
	Partition int             `json:"partition"`
	Offset    *int64          `json:"offset"`
	Timestamp string          `json:"timestamp"`
	Duplicate bool            `json:"duplicate"`
	Count     int             `json:"count"`
	RetryIn   string          `json:"retry_after"`
	Code      string          `json:"code"`
	Title     string          `json:"title"`
	Detail    string          `json:"detail"`
	Field     string          `json:"field"`
	Expected  *int64          `json:"expected"`
	Reason    string          `json:"reason"`
	Requested json.RawMessage `json:"requested"`
	Earliest  json.RawMessage `json:"earliest"`
	End       json.RawMessage `json:"end"`
	Limits    json.RawMessage `json:"limits"`
	Ping      string          `json:"ping"`
	Node      string          `json:"node"`

	Message Message         `json:"-"`
	Raw     json.RawMessage `json:"-"`
}

// WS is a WebSocket client. One goroutine reads, any may send.
type WS struct {
	conn    *websocket.Conn
	Welcome Frame
	queue   []Frame
}

// frameLimit bounds a frame that is read.
const frameLimit = 64 << 20

// DialWS opens a WebSocket to host:port and reads its welcome. query may be "".
func DialWS(ctx context.Context, addr, query string) (*WS, error) {
	w, err := UpgradeWS(ctx, addr, query, nil)
	var refused *Refusal
	if errors.As(err, &refused) {
		return nil, fmt.Errorf("upgrade refused: %d %s", refused.Status, refused.Body)
	}
	if err != nil {
		return nil, err
	}
	if w.Welcome, err = w.Next(ctx); err != nil {
		w.Drop()
		return nil, fmt.Errorf("wait for welcome: %w", err)
	}
	if w.Welcome.Op != "welcome" {
		w.Drop()
		return nil, fmt.Errorf("the first line is no welcome: %s", w.Welcome.Raw)
	}
	return w, nil
}

// UpgradeWS opens a WebSocket with more headers and subprotocols and reads
// nothing: who has not said who it is gets no welcome. An upgrade that is refused
// is a *Refusal.
func UpgradeWS(ctx context.Context, addr, query string, header http.Header, protocols ...string) (*WS, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	conn, res, err := websocket.Dial(ctx, "ws://"+addr+"/ws"+query, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport},
		HTTPHeader:   header,
		Subprotocols: append([]string{Subprotocol}, protocols...),
	})
	if err != nil {
		if res != nil && res.StatusCode != http.StatusSwitchingProtocols {
			body, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10)) // what there is of it
			r := &Refusal{Status: res.StatusCode, Header: res.Header, Body: string(body)}
			_ = json.Unmarshal(body, &r.Problem) // an answer that is no problem is shown by its body
			return nil, r
		}
		return nil, err
	}
	conn.SetReadLimit(frameLimit)
	return &WS{conn: conn}, nil
}

// Conn is the connection below, for what the protocol forbids.
func (w *WS) Conn() *websocket.Conn { return w.conn }

// Send writes lines as one frame. A string or []byte is sent as it is, anything
// else as JSON.
func (w *WS) Send(ctx context.Context, lines ...any) error {
	var b []byte
	for i, l := range lines {
		if i > 0 {
			b = append(b, '\n')
		}
		switch l := l.(type) {
		case string:
			b = append(b, l...)
		case []byte:
			b = append(b, l...)
		default:
			j, err := json.Marshal(l)
			if err != nil {
				return err
			}
			b = append(b, j...)
		}
	}
	return w.conn.Write(ctx, websocket.MessageText, b)
}

// Next is the next line. A context that ends ends the connection too.
func (w *WS) Next(ctx context.Context) (Frame, error) {
	for len(w.queue) == 0 {
		if err := w.fill(ctx); err != nil {
			return Frame{}, err
		}
	}
	f := w.queue[0]
	w.queue = w.queue[1:]
	return f, nil
}

// Answer waits for the line with an id and keeps all others for Next.
func (w *WS) Answer(ctx context.Context, id int64) (Frame, error) {
	for i := 0; ; i++ {
		for i == len(w.queue) {
			if err := w.fill(ctx); err != nil {
				return Frame{}, err
			}
		}
		if f := w.queue[i]; f.ID == id && f.Op != "message" {
			w.queue = append(w.queue[:i:i], w.queue[i+1:]...)
			return f, nil
		}
	}
}

// Call sends a line and waits for the answer with its id.
func (w *WS) Call(ctx context.Context, id int64, line any) (Frame, error) {
	if err := w.Send(ctx, line); err != nil {
		return Frame{}, err
	}
	return w.Answer(ctx, id)
}

// fill reads one frame into the queue.
func (w *WS) fill(ctx context.Context) error {
	kind, b, err := w.conn.Read(ctx)
	if err != nil {
		return err
	}
	if kind != websocket.MessageText {
		return errors.New("the server sent a binary frame")
	}
	lines := bytes.Split(bytes.TrimSuffix(b, []byte{'\n'}), []byte{'\n'})
	for i := 0; i < len(lines); i++ {
		f := Frame{Raw: lines[i]}
		if err := json.Unmarshal(lines[i], &f); err != nil || f.Op == "" {
			return fmt.Errorf("a line is no frame (%v): %.200s", err, lines[i])
		}
		if f.Op != "messages" {
			w.queue = append(w.queue, f)
			continue
		}
		if f.Count < 1 || i+f.Count >= len(lines) {
			return fmt.Errorf("a run of %d messages in a frame with %d lines after it", f.Count, len(lines)-i-1)
		}
		for _, line := range lines[i+1 : i+1+f.Count] {
			m, err := ParseMessage(line)
			if err != nil {
				return err
			}
			w.queue = append(w.queue, Frame{Op: "message", Sub: f.Sub, Message: m, Raw: line})
		}
		i += f.Count
	}
	return nil
}

// Close ends the connection in order.
func (w *WS) Close() error { return w.conn.Close(websocket.StatusNormalClosure, "") }

// Drop ends the connection without a word.
func (w *WS) Drop() { _ = w.conn.CloseNow() } // it may be gone already

// CloseCode is the close code an error of Next carries; -1 for none.
func CloseCode(err error) int { return int(websocket.CloseStatus(err)) }
