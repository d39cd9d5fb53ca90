package httpapi

import (
	"encoding/json"
	"reflect"
	"testing"
)

// What both documents describe, they describe alike. That frames and events are as the
// AsyncAPI document says is held by a test with a real node, in e2e.
func TestBothDocumentsSayTheSame(t *testing.T) {
	schemas := func(text []byte) map[string]any {
		var doc struct {
			Components struct{ Schemas map[string]any }
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Components.Schemas
	}
	calls, frames := schemas(openAPI), schemas(asyncAPI)
	for _, name := range []string{"Code", "Problem", "TopicName", "GroupName", "Message", "LeasedMessage"} {
		if calls[name] == nil || !reflect.DeepEqual(calls[name], frames[name]) {
			t.Errorf("%s is\n%v\nin openapi.json, and\n%v\nin asyncapi.json", name, calls[name], frames[name])
		}
	}
}
