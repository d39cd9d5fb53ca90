package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"tidewire/internal/rpc/tidewirepb"
)

// TestWhatIsWrittenByHandHasEveryField holds that a message which is not left to the
// generated code comes out of the codec as it went in, each of its fields set.
func TestWhatIsWrittenByHandHasEveryField(t *testing.T) {
	for _, m := range []proto.Message{&tidewirepb.ReadResponse{}, &tidewirepb.TakeResponse{}} {
		fill(m.ProtoReflect())
		name := m.ProtoReflect().Descriptor().Name()
		data, err := codec{}.Marshal(m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := (codec{}).Unmarshal(data, got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !proto.Equal(got, m) {
			t.Errorf("%s goes in as\n%v\nand comes out as\n%v", name, m, got)
		}
	}
}

// fill sets every field of a message to something.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(some(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, some(f))
		}
	}
}

func some(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := uint32(f.Number())
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("s")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(n)})
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	default:
		return protoreflect.ValueOfInt64(int64(n))
	}
}
