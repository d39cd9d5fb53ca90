package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tidewire/internal/cluster"
	"tidewire/internal/ident"
)

func TestARegistrationIsRead(t *testing.T) {
	r, err := ParseRegistration([]byte(`{"group":"g","mode":"shared","from":"earliest","lease":"30s","session":"10s","max_deliveries":5,"backoff":"0s","dead_letter":"t.dlq","max_in_flight":256}`))
	p := r.Patch
	if err != nil || r.Group != "g" || r.From != "earliest" || *p.Mode != cluster.Shared || *p.Lease != 30*time.Second || *p.Session != 10*time.Second ||
		*p.MaxDeliveries != 5 || *p.Backoff != 0 || *p.DeadLetter != "t.dlq" || *p.MaxInFlight != 256 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestWhatIsWrongWithABodyOfGroupsIsNamed(t *testing.T) {
	many := `{"member":"m","epoch":1,"ack":[` + strings.Repeat(`{"partition":0,"offset":1},`, MaxEntries) + `{"partition":0,"offset":1}]}`
	for _, c := range []struct {
		parse      func([]byte) error
		body, want string
	}{
		{of(ParseRegistration), `{}`, `"group" is needed`},
		{of(ParseRegistration), `{"group":"g","mod":"shared"}`, `did you mean "mode"`},
		{of(ParseRegistration), `{"group":"g","mode":"both"}`, `"mode" takes one of exclusive, shared`},
		{of(ParseRegistration), `{"group":"g","lease":"1ms"}`, `"lease" takes a duration`},
		{of(ParseRegistration), `{"group":"g","session":"1000.5ms"}`, `whole milliseconds`},
		{of(ParseRegistration), `{"group":"g","from":"now"}`, `"from" takes`},
		{of(ParseRegistration), `{"group":"g","dead_letter":"_x"}`, `"dead_letter" takes the name of a topic`},
		{of(ParseRegistration), `{"group":"g","max_in_flight":1025}`, `"max_in_flight" takes a whole number from 1 to 1024`},
		{of(ParseGroupPatch), `{"mode":"shared"}`, `cannot be changed`},
		{of(ParseGroupPatch), `{"from":"latest"}`, `/offsets moves a group`},
		{of(ParseMembership), `{"group":"g","member":"a/b"}`, `"member" takes the id of a member`},
		{of(ParseMembership), `{"member":"a"}`, `"group" is needed`},
		{of(ParseHeartbeat), `{"partitions":[0]}`, `"epoch" is needed`},
		{of(ParseHeartbeat), `{"epoch":1,"partitions":0}`, `"partitions" takes a list`},
		{of(ParseHeartbeat), `{"epoch":1,"partitions":["0"]}`, `"partitions" takes a whole number`},
		{of(ParseSettlement), `{"epoch":1}`, `"member" is needed`},
		{of(ParseSettlement), `{"member":"m"}`, `"epoch" is needed`},
		{of(ParseSettlement), `{"member":"m","epoch":1,"ack":[{"partition":0}]}`, `"ack" takes objects with "partition" and "offset"`},
		{of(ParseSettlement), `{"member":"m","epoch":1,"ack":[{"partition":0,"offset":1,"delay":"1s"}]}`, `unknown field "delay"`},
		{of(ParseSettlement), `{"member":"m","epoch":1,"reject":[{"partition":0,"offset":1,"reason":"` + strings.Repeat("x", cluster.MaxReasonBytes+1) + `"}]}`, `at most 512 bytes`},
		{of(ParseSettlement), many, `takes at most`},
		{of(ParseGroupMove), `{}`, `"from" or "offsets" is needed`},
		{of(ParseGroupMove), `{"from":"latest","offsets":{"0":1}}`, `exclude one another`},
		{of(ParseGroupMove), `{"offsets":{"x":1}}`, `"partition" takes a whole number`},
	} {
		if err := c.parse([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s:\ngot  %v\nwant %s", c.body, err, c.want)
		}
	}
}

func of[T any](parse func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error { _, err := parse(b); return err }
}

func TestASettlementIsRead(t *testing.T) {
	s, err := ParseSettlement([]byte(`{"member":"m","epoch":7,"ack":[{"partition":0,"offset":1}, {"partition":1,"offset":2}],"through":[{"partition":2,"offset":3}],
		"nack":[{"partition":0,"offset":4},{"partition":0,"offset":5,"delay":"0s"}],"extend":[{"partition":0,"offset":6}],"reject":[{"partition":0,"offset":7,"reason":"bad"}]}`))
	if err != nil || s.Member != "m" || s.Epoch != 7 {
		t.Fatal(s, err)
	}
	want := `[{ack 0 1 -1ns } {ack 1 2 -1ns } {through 2 3 -1ns } {nack 0 4 -1ns } {nack 0 5 0s } {extend 0 6 -1ns } {reject 0 7 -1ns bad}]`
	if got := fmt.Sprint(s.Entries); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestFramesOfGroupsAreRead(t *testing.T) {
	f, err := ParseFrame([]byte(`{"op":"join","id":1,"topic":"t","group":"g","member":"m","credit":5,"mode":"shared","from":"earliest"}`))
	if err != nil || f.Join.Topic != "t" || f.Join.Group != "g" || f.Join.Member != "m" || f.Join.Credit != 5 || !f.Join.Given || *f.Join.Patch.Mode != cluster.Shared {
		t.Fatalf("%+v %v", f.Join, err)
	}
	if f, err = ParseFrame([]byte(`{"op":"join","topic":"t","group":"g"}`)); err != nil || f.Join.Credit != -1 || f.Join.Given {
		t.Fatalf("%+v %v", f.Join, err)
	}
	for line, want := range map[string]string{
		`{"op":"ack","sub":"s1","partition":1,"offset":2}`:                      `[{ack 1 2 -1ns }]`,
		`{"offsets":[2,3],"op":"ack","sub":"s1","partition":1}`:                 `[{ack 1 2 -1ns } {ack 1 3 -1ns }]`,
		`{"op":"ack","sub":"s1","partition":1,"through":9}`:                     `[{through 1 9 -1ns }]`,
		`{"op":"nack","sub":"s1","partition":1,"offset":2,"delay":"2s"}`:        `[{nack 1 2 2s }]`,
		`{"op":"extend","sub":"s1","partition":1,"offsets":[0]}`:                `[{extend 1 0 -1ns }]`,
		`{"op":"reject","sub":"s1","partition":1,"offset":2,"reason":"broken"}`: `[{reject 1 2 -1ns broken}]`,
	} {
		f, err := ParseFrame([]byte(line))
		if err != nil || f.Sub != "s1" || fmt.Sprint(f.Settle.Entries()) != want {
			t.Errorf("%s: %v %v", line, f.Settle, err)
		}
	}
	for line, want := range map[string]string{
		`{"op":"join","topic":"t"}`:                                      `"group" is needed`,
		`{"op":"join","group":"g"}`:                                      `"topic" is needed`,
		`{"op":"ack","partition":1,"offset":2}`:                          `"sub" is needed`,
		`{"op":"ack","sub":"s","offset":2}`:                              `"partition" is needed`,
		`{"op":"ack","sub":"s","partition":1}`:                           `"offset" or "offsets" is needed`,
		`{"op":"ack","sub":"s","partition":1,"offset":2,"through":3}`:    `exclude`,
		`{"op":"ack","sub":"s","partition":1,"offsets":[2],"through":3}`: `exclude`,
		`{"op":"nack","sub":"s","partition":1,"through":3}`:              `unknown field "through"`,
		`{"op":"leave"}`: `"sub" is needed`,
		`{"op":"ack","sub":"s","partition":1,"offset":2,"reason":"done"}`: `unknown field "reason"`,
	} {
		if _, err := ParseFrame([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", line, err, want)
		}
	}
}

func TestWhatElseMembersSay(t *testing.T) {
	if h, err := ParseHeartbeat([]byte(`{"epoch":3,"partitions":[1,0]}`)); err != nil || !h.Says || len(h.Held) != 2 || h.Held[0] != ident.Index(1) {
		t.Error(h, err)
	}
	if h, err := ParseHeartbeat([]byte(`{"epoch":3}`)); err != nil || h.Says {
		t.Error(h, err)
	}
	if m, err := ParseGroupMove([]byte(`{"offsets":{"0":42},"dry_run":true,"force":true}`)); err != nil || m.Offsets[0] != 42 || !m.DryRun || !m.Force {
		t.Error(m, err)
	}
}
