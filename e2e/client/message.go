package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Message is one record as every reader gets it.
type Message struct {
	Topic       string            `json:"topic"`
	Partition   int               `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   string            `json:"timestamp"`
	Key         *string           `json:"key"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	Value       json.RawMessage   `json:"value"`
	Base64      *string           `json:"value_base64"`
	Tombstone   bool              `json:"tombstone"`
}

// KeyText is the key, "" for none.
func (m *Message) KeyText() string {
	if m.Key == nil {
		return ""
	}
	return *m.Key
}

// Bytes is the value as bytes: of JSON its text, of text the text itself.
func (m *Message) Bytes() []byte {
	switch {
	case m.Base64 != nil:
		b, err := base64.StdEncoding.DecodeString(*m.Base64)
		if err != nil {
			panic(fmt.Sprintf("value_base64 of offset %d: %v", m.Offset, err))
		}
		return b
	case strings.HasPrefix(m.ContentType, "text/"):
		var s string
		if err := json.Unmarshal(m.Value, &s); err != nil {
			panic(fmt.Sprintf("text value of offset %d: %v", m.Offset, err))
		}
		return []byte(s)
	}
	return m.Value
}

// ParseMessage reads one message strictly enough to notice a broken one.
func ParseMessage(b []byte) (Message, error) {
	var m Message
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("a message is no JSON: %w: %.200s", err, b)
	}
	return m, m.check()
}

// check says what a message lacks.
func (m *Message) check() error {
	if m.Topic == "" || m.Headers == nil || (m.Value == nil) == (m.Base64 == nil) {
		return fmt.Errorf("an unfinished message: %+v", m)
	}
	if _, err := time.Parse(time.RFC3339, m.Timestamp); err != nil {
		return fmt.Errorf("offset %d: %w", m.Offset, err)
	}
	return nil
}
