package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tidewire/internal/fault"
)

func TestEveryFaultSurvivesTheWay(t *testing.T) {
	for _, kind := range fault.Kinds() {
		sent := fault.New(kind, "what happened to %q", kind).With("expected", int64(1)<<53).With("words", []string{"a", "b"}).
			With("ratio", 0.5).With("yes", true).With("inner", map[string]any{"n": int64(-1)}).After(1500 * time.Millisecond)
		sent.Op = "storage.append"
		for _, f := range []*fault.Error{sent, sent.Lasts(), sent.Overload(), {Kind: kind}, fault.New(kind, "")} {
			got, refused := reply(statusOf(fmt.Errorf("wrapped: %w", f)))
			if refused {
				t.Errorf("%s: an answer counts as a refusal of the call", kind)
			}
			if got == nil || got.Kind != f.Kind || got.Op != f.Op || got.RetryAfter != f.RetryAfter || got.Lasting != f.Lasting || got.Elsewhere != f.Elsewhere {
				t.Fatalf("%+v became %+v", f, got)
			}
			if got.Detail() != f.Detail() && f.Detail() != "" {
				t.Errorf("%q became %q", f.Detail(), got.Detail())
			}
			for name, want := range f.Fields {
				if fmt.Sprintf("%T %#v", want, want) != fmt.Sprintf("%T %#v", got.Fields[name], got.Fields[name]) {
					t.Errorf("field %s: %#v became %#v", name, want, got.Fields[name])
				}
			}
			if len(got.Fields) != len(f.Fields) {
				t.Errorf("fields %v became %v", f.Fields, got.Fields)
			}
			if status.Code(statusOf(f)) == codes.OK {
				t.Errorf("%s ends a call as if it were well", kind)
			}
		}
	}
}

func TestErrorsNobodyClassified(t *testing.T) {
	if got, _ := reply(statusOf(errors.New("odd"))); got.Kind != fault.Internal || got.Detail() != "odd" {
		t.Errorf("%+v", got)
	}
	if got, _ := reply(statusOf(context.DeadlineExceeded)); got.Kind != fault.LeaderUnavailable {
		t.Errorf("%+v", got)
	}
	if statusOf(nil) != nil || problemOf(nil) != nil || faultOf(nil) != nil || errorOf(nil) != nil {
		t.Error("no error became one")
	}
	p := problemOf(fault.New(fault.Fenced, "old"))
	p.Code = "of-tomorrow"
	if got := faultOf(p); got.Kind != fault.Internal || !strings.Contains(got.Detail(), "of-tomorrow") {
		t.Errorf("a code that is not known became %+v", got)
	}
}

// What an error says is bounded: it travels in headers.
func TestLongErrorsAreCut(t *testing.T) {
	f := fault.New(fault.Invalid, "%s", strings.Repeat("ä", 1<<20)).With("field", strings.Repeat("x", 1<<20)).With("f", func() {})
	p := problemOf(f)
	if len(p.Detail) > maxDetailBytes+8 || len(p.Fields) > maxFieldsBytes {
		t.Fatalf("%d bytes of detail, %d of fields", len(p.Detail), len(p.Fields))
	}
	if b, err := json.Marshal(faultOf(p).Detail()); err != nil || strings.Contains(string(b[:100]), `\ufffd`) {
		t.Error("the detail is no text any more")
	}
}

func TestRefusalsAreDefinite(t *testing.T) {
	got, refused := reply(refuse(fault.New(fault.LeaderUnavailable, "wrong node")))
	if !refused || got.Kind != fault.LeaderUnavailable {
		t.Errorf("%v %v", got, refused)
	}
	if got, refused := reply(status.Error(codes.Unimplemented, "no such service")); got != nil || !refused {
		t.Error("a node without the service may have done something")
	}
	if got, refused := reply(status.Error(codes.Unavailable, "broken")); got != nil || refused {
		t.Error("a broken connection is no answer")
	}
}
