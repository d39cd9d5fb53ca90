package wire

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// The AsyncAPI document is written by hand: it has every op, and every field of each.
func TestTheAsyncAPIDocumentHasEveryFieldOfEveryOp(t *testing.T) {
	text, err := os.ReadFile("../../gateway/httpapi/asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	schemas := map[string]string{
		"hello": "Hello", "auth": "Auth", "publish": "Publish", "subscribe": "Subscribe", "unsubscribe": "Unsubscribe", "credit": "Credit",
		"metadata": "Metadata", "join": "Join", "ack": "Ack", "nack": "Nack", "extend": "Extend", "reject": "Reject", "leave": "Leave",
		"request": "Request", "reply": "RespondReply",
	}
	for _, op := range Ops {
		described := slices.Sorted(maps.Keys(doc.Components.Schemas[schemas[op]].Properties))
		if taken := slices.Sorted(slices.Values(opFields[op])); !slices.Equal(described, taken) {
			t.Errorf("%s is described with %v, and takes %v", op, described, taken)
		}
	}
}
