package requester_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidewire/cmd/tidewire/internal/client"
	"tidewire/cmd/tidewire/internal/requester"
)

// server gives one answer after the other, the last for good.
type server struct {
	name    string
	answers []func(ctx context.Context, q client.Request) (client.Reply, error)
	asked   []client.Request
}

func (s *server) Server() string { return s.name }

func (s *server) Ask(ctx context.Context, q client.Request) (client.Reply, error) {
	s.asked = append(s.asked, q)
	answer := s.answers[min(len(s.asked), len(s.answers))-1]
	return answer(ctx, q)
}

type answers = []func(context.Context, client.Request) (client.Reply, error)

func says(text string) func(context.Context, client.Request) (client.Reply, error) {
	return func(context.Context, client.Request) (client.Reply, error) {
		return client.Reply{Status: 200, Value: []byte(text)}, nil
	}
}

func fails(after time.Duration, err error) func(context.Context, client.Request) (client.Reply, error) {
	return func(ctx context.Context, _ client.Request) (client.Reply, error) {
		select {
		case <-time.After(after):
			return client.Reply{}, err
		case <-ctx.Done():
			return client.Reply{}, &client.Unreachable{Err: ctx.Err()}
		}
	}
}

func problem(code string, status int) error { return &client.Problem{Code: code, Status: status} }

var dead = &client.Unreachable{Server: "x", Err: errors.New("refused")}

func ask(t *testing.T, more func(context.Context) []requester.Server, servers ...requester.Server) (string, error) {
	t.Helper()
	reply, err := requester.Do(t.Context(), requester.Config{
		Request: client.Request{Topic: "t", Correlation: "c", Timeout: 5 * time.Second}, Servers: servers, More: more, Note: t.Logf,
	})
	return string(reply.Value), err
}

func nobody(context.Context) []requester.Server { return nil }

func TestARequestWhoseNodeDiesIsRepeatedAtAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &server{name: "a", answers: answers{fails(2*time.Second, dead)}}
		b := &server{name: "b", answers: answers{says("hello")}}
		text, err := ask(t, func(context.Context) []requester.Server { return []requester.Server{a, b} }, a)
		if err != nil || text != "hello" || len(a.asked) != 1 || len(b.asked) != 1 {
			t.Fatalf("%q, %v; asked %d and %d times", text, err, len(a.asked), len(b.asked))
		}
		if a.asked[0].Timeout != 5*time.Second || b.asked[0].Timeout != 3*time.Second || b.asked[0].Correlation != "c" {
			t.Errorf("asked %+v, then %+v", a.asked[0], b.asked[0])
		}
	})
}

func TestARequestWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := fails(0, problem("leader-unavailable", 503))
		a := &server{name: "a", answers: answers{busy, busy, fails(0, problem("unknown-outcome", 504)), says("at last")}}
		began := time.Now()
		text, err := ask(t, nobody, a)
		if took := time.Since(began); err != nil || text != "at last" || took != 350*time.Millisecond {
			t.Errorf("%q, %v after %s", text, err, took)
		}
	})
}

func TestWhatWaitingDoesNotMendEndsARequest(t *testing.T) {
	for _, code := range []struct {
		code   string
		status int
	}{{"no-responders", 503}, {"forbidden", 403}, {"idempotency-key-reused", 422}, {"topic-not-found", 404}} {
		synctest.Test(t, func(t *testing.T) {
			a := &server{name: "a", answers: answers{fails(0, problem(code.code, code.status))}}
			_, err := ask(t, nobody, a, &server{name: "b", answers: answers{says("wrong")}})
			var p *client.Problem
			if !errors.As(err, &p) || p.Code != code.code || len(a.asked) != 1 {
				t.Errorf("%s: %v after %d", code.code, err, len(a.asked))
			}
		})
	}
}

// The request was kept, and its responder died before it was asked about again.
func TestARequestThatMayBeKeptWaitsForResponders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := fails(0, problem("no-responders", 503))
		a := &server{name: "a", answers: answers{fails(0, dead), none, none, says("done")}}
		if text, err := ask(t, nobody, a); err != nil || text != "done" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestARequestEndsAtItsDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		answer  answers
		latest  time.Duration
		because error
	}{
		"the server says so":  {answers{fails(5*time.Second, problem("reply-timeout", 504))}, 5 * time.Second, nil},
		"the server is mute":  {answers{fails(time.Hour, nil)}, 6 * time.Second, nil},
		"nobody is there":     {answers{fails(0, dead)}, 5 * time.Second, dead},
		"nobody takes it now": {answers{fails(time.Second, problem("draining", 503))}, 6 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := ask(t, nobody, &server{name: "a", answers: c.answer})
			var late *requester.Late
			if took := time.Since(began); !errors.As(err, &late) || took > c.latest || took < 3*time.Second || c.because != nil && !errors.Is(err, c.because) {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

func TestWhoIsAskedToStopStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		blocked := func(ctx context.Context) []requester.Server { <-ctx.Done(); return nil }
		_, err := requester.Do(ctx, requester.Config{
			Request: client.Request{Timeout: time.Minute}, More: blocked, Note: t.Logf,
			Servers: []requester.Server{&server{name: "a", answers: answers{fails(time.Hour, nil)}}},
		})
		if took := time.Since(began); err == nil || took != time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
